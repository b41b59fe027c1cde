package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/mem"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/lease"
	"celld/internal/owner"
	"celld/internal/replica"
)

const (
	ttl       = 3 * time.Second
	nodeCount = 3
	faultTime = 40 * time.Second
	// calmTime bounds how long after the last fault every cell must be served
	// and every alarm fired (invariants 9 and 11).
	calmTime = 60 * time.Second
)

type world struct {
	t      *testing.T
	rnd    *rand.Rand // the driver's
	mem    *mem.Store
	broken string // which way the protocol is broken; "": not
	wild   bool   // live sessions are held for dead, so reads may be stale for a moment
	faults bool

	mu         sync.Mutex
	pending    []*op
	nodes      []*node
	story      []string
	violations []string
	epochs     map[string]id.Epoch // of the ownership records
	granted    map[string]bool     // cell, epoch, session that a record named
	active     map[string]bool     // cell, epoch that were activated
	ran        map[string]int      // handler starts of each call
	armed      map[string]bool     // acknowledged alarms
	fired      map[string]int
	ops        int
	bg         sync.WaitGroup
}

type node struct {
	w       *world
	name    string
	session id.Session
	dir     string
	*cell.Manager
	replicas *replica.Replicator
	lease    *lease.Lease
	sessions *lease.Sessions
	ready    atomic.Bool
	dead     atomic.Bool // crashed: nothing of it reaches anybody
	over     atomic.Bool // crashed or fenced
	cut      time.Time   // its operations are held until then
	cancel   context.CancelFunc

	mu   sync.Mutex
	mine map[string]result[[]byte] // newest own writes, for broken variants
}

type clock struct {
	offset time.Duration
	drift  float64
	start  time.Time
}

func (c clock) Wall() time.Time { return time.Now().Add(c.offset) }
func (c clock) Boot() time.Duration {
	return time.Duration(float64(time.Since(c.start)) * (1 + c.drift))
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf("%8s ", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.tell("VIOLATION %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, text)
}

// start boots a node; it is ready some bucket operations later.
func (w *world) start(i int, dir string, previous id.Session) {
	name := fmt.Sprintf("n%d", i)
	n := &node{w: w, name: name, dir: dir, session: lease.NewSession(id.Node(name)), mine: map[string]result[[]byte]{}}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	c := clock{offset: time.Duration(w.rnd.IntN(400)-200) * time.Millisecond, drift: float64(w.rnd.IntN(200)-100) / 1e5, start: time.Now()}
	w.mu.Lock()
	w.nodes[i] = n
	w.mu.Unlock()
	w.tell("%s starts as %s", name, n.session)
	w.bg.Go(func() { n.boot(ctx, c, previous) })
}

func (n *node) boot(ctx context.Context, c clock, previous id.Session) {
	w := n.w
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	st := store{n}
	n.sessions = lease.NewSessions(st, n.session, c, nil)
	if previous != "" {
		n.sessions.Gone(previous)
	}
	n.replicas = replica.New(st, quiet)
	defer n.replicas.Close()
	l, err := lease.Start(ctx, n.session, lease.Config{
		Store: st, Node: id.Node(n.name), Address: n.name + ":1", TTL: ttl, Clock: c, Log: quiet, Wire: quiet,
		Fenced: func(e lease.Event) { n.fenced(e) }, Exit: func(int) {},
	})
	if err != nil {
		return
	}
	n.lease = l
	self := owner.Self{Session: n.session, Node: id.Node(n.name), Address: n.name + ":1"}
	m, err := cell.New(cell.Config{
		Store: st, Records: owner.New(st, self, judge{n}), Engine: w.engine(n),
		Replication: replication{n}, Authority: n.authority, Dir: filepath.Join(n.dir, "cells"),
		IdleEvict: 2 * time.Second, IdleClose: time.Second, MaxResident: 3, WakerTick: 5 * time.Second,
		AlarmResident: 500 * time.Millisecond,
	})
	if err != nil {
		w.violate("%s: %v", n.name, err)
		return
	}
	n.Manager = m
	n.ready.Store(true)
	<-ctx.Done()
	m.Fence()
	l.Fence(lease.Expired, errGone)
	m.Close()
	_ = l.Close(context.Background()) // ends its goroutines; a dead node writes nothing
}

func (n *node) authority() error {
	if n.w.broken == "expiry-unchecked" {
		return nil
	}
	return n.lease.Authority()
}

func (n *node) fenced(e lease.Event) {
	if n.w.broken == "expiry-unchecked" {
		return
	}
	n.w.tell("%s fences: %s", n.name, e)
	n.over.Store(true)
	if n.ready.Load() {
		n.Manager.Fence()
	}
}

// kill crashes a node: no operation of it is answered any more.
func (w *world) kill(n *node) {
	if n.dead.Swap(true) {
		return
	}
	w.tell("%s crashes", n.name)
	n.over.Store(true)
	w.mu.Lock()
	kept := w.pending[:0]
	for _, o := range w.pending {
		if o.node == n {
			select {
			case o.reply <- errGone:
			default:
			}
			if o.abandoned = true; !o.write || w.rnd.IntN(3) > 0 {
				continue
			}
		}
		kept = append(kept, o)
	}
	w.pending = kept
	w.mu.Unlock()
	n.cancel()
}

// step finishes at most one operation.
func (w *world) step() {
	synctest.Wait()
	if w.faults && w.rnd.IntN(150) == 0 {
		w.strike()
	}
	w.revive()
	w.mu.Lock()
	var free []int
	for i, o := range w.pending {
		if !w.faults || o.abandoned || time.Now().After(o.node.cut) {
			free = append(free, i)
		}
	}
	if len(free) == 0 || w.rnd.IntN(2) == 0 {
		w.mu.Unlock()
		time.Sleep(time.Duration(1+w.rnd.IntN(30)) * time.Millisecond)
		return
	}
	i := free[w.rnd.IntN(len(free))]
	o := w.pending[i]
	w.pending = append(w.pending[:i], w.pending[i+1:]...)
	w.ops++
	w.mu.Unlock()
	w.finish(o)
}

func (w *world) finish(o *op) {
	fate := 99
	if w.faults && !o.abandoned {
		fate = w.rnd.IntN(100)
	}
	var err error
	switch {
	case fate < 3:
		err = errLost
	case fate < 6:
		_ = o.do()
		err = errLost
	case fate < 7:
		err = bucket.ErrNotSent
	case fate < 8 && o.write:
		err = o.do()
		again := *o
		again.abandoned, again.reply = true, make(chan error, 1)
		w.mu.Lock()
		w.pending = append(w.pending, &again)
		w.mu.Unlock()
	case fate == 8 && w.rnd.IntN(4) == 0:
		_ = o.do()
		w.tell("%s %s %s, then", o.node.name, o.verb, o.key)
		w.kill(o.node)
		err = errGone
	default:
		err = o.do()
	}
	if fate < 8 {
		w.tell("%s %s %s: fate %d, %v", o.node.name, o.verb, o.key, fate, err)
	}
	select {
	case o.reply <- err:
	default: // its caller was told when its node died
	}
}

// strike does something to a whole node.
func (w *world) strike() {
	n := w.nodes[w.rnd.IntN(nodeCount)]
	switch w.rnd.IntN(6) {
	case 0:
		w.kill(n)
	case 1, 2:
		d := time.Duration(w.rnd.IntN(int(2 * ttl)))
		w.tell("%s is cut off for %v", n.name, d)
		n.cut = time.Now().Add(d)
	case 3:
		if n.ready.Load() && !n.over.Load() {
			n.Shed(2)
		}
	default:
		if !w.wild {
			return
		}
		for _, other := range w.nodes {
			if other != n && other.ready.Load() {
				w.tell("%s holds %s for dead", other.name, n.session)
				other.sessions.Gone(n.session)
			}
		}
	}
}

// revive restarts nodes that ended, now and then without their disk.
func (w *world) revive() {
	for i, n := range w.nodes {
		if !n.over.Load() || w.rnd.IntN(30) > 0 {
			continue
		}
		w.kill(n)
		dir, previous := n.dir, n.session
		if w.rnd.IntN(2) == 0 {
			dir, previous = filepath.Join(w.t.TempDir(), "disk"), ""
		} else if err := copyDir(dir, dir+"+"); err != nil {
			dir, previous = filepath.Join(w.t.TempDir(), "disk"), ""
		} else {
			dir += "+"
		}
		w.start(i, dir, previous)
	}
}

// copyDir is the disk as a crash leaves it: what still runs of the dead node keeps its own.
func copyDir(from, to string) error {
	return os.CopyFS(to, os.DirFS(from))
}

// wrote checks each ownership record that landed (invariant 3).
func (w *world) wrote(n *node, key string, body []byte) {
	if !strings.HasSuffix(key, "/owner.json") {
		return
	}
	var r owner.Record
	if json.Unmarshal(body, &r) != nil {
		return
	}
	w.mu.Lock()
	last := w.epochs[key]
	w.epochs[key] = max(last, r.Epoch)
	if r.State == owner.Owned {
		w.granted[fmt.Sprintf("%s %d %s", key, r.Epoch, r.Session)] = true
	}
	w.mu.Unlock()
	if r.State == owner.Owned && r.Epoch <= last || r.State == owner.Released && r.Epoch != last {
		w.violate("invariant 3: %s went from epoch %d to %d (%s, %s)", key, last, r.Epoch, r.State, r.Session)
	}
}

// activated checks each activation (invariants 1 and 3).
func (w *world) activated(n *node, c id.Cell, e id.Epoch) {
	at := fmt.Sprintf("%s %d", owner.Key(c), e)
	w.mu.Lock()
	twice, granted := w.active[at], w.granted[at+" "+string(n.session)]
	w.active[at] = true
	w.mu.Unlock()
	if twice {
		w.violate("invariant 1: %s was activated twice", at)
	}
	if !granted {
		w.violate("invariant 12: %s runs %s, which no record gave it", n.session, at)
	}
}

// judge is lease.Sessions, or one that lies.
type judge struct{ n *node }

func (j judge) Lease(ctx context.Context, s id.Session) (owner.Lease, error) {
	l, err := j.n.sessions.Lease(ctx, s)
	if j.n.w.broken == "live-held-for-dead" {
		l.Live = false
	}
	return l, err
}

func (j judge) Seal(ctx context.Context, s id.Session) error {
	if j.n.w.broken == "live-held-for-dead" {
		return nil
	}
	err := j.n.sessions.Seal(ctx, s)
	if err != nil && !errors.Is(err, owner.ErrLives) {
		j.n.w.tell("%s seals %s: %v", j.n.name, s, err)
	}
	return err
}
