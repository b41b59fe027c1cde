package cell_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket/faulty"
	"celld/internal/bucket/mem"
	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/owner"
)

// TestStories runs the scripts of testdata, each in a bubble with a clock of
// its own. A line is a step, and behind "=>" stands what it must answer:
//
//	start NODE [name=value…]   a new session of a node; see configure
//	NODE OP CELL [arg]         a call; the operations are in class_test.go
//	go NAME NODE OP CELL …     the same in the background; "result NAME" waits for its answer
//	kill NODE                  the process is gone, its lease is known dead
//	expire NODE                its lease ended, and nobody told it to stop
//	fence NODE, drain NODE, close NODE, cut NODE (from its followers)
//	fault NODE KIND OP PREFIX [TIMES]   KIND is before, lost, slow or block; "clear NODE" ends all
//	wait DURATION              time passes
//	next alarm|construct MODE  what the next such handler does
//	owner CELL, seals, stats NODE, objects PREFIX, log
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runStory(t, f) })
		})
	}
}

func runStory(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	defer w.end()
	for n, line := range strings.Split(string(text), "\n") {
		step, want, _ := strings.Cut(line, "=>")
		words := strings.Fields(step)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		got := w.bounded(words)
		if !matches(got, strings.TrimSpace(want)) {
			t.Fatalf("%s:%d: %s\n got  %s\n want %s", file, n+1, strings.TrimSpace(step), got, want)
		}
	}
}

// bounded gives a step a day of the story's time.
func (w *world) bounded(words []string) string {
	answer := make(chan string, 1)
	go func() { answer <- w.step(words) }()
	select {
	case text := <-answer:
		return text
	case <-time.After(24 * time.Hour):
		return "no answer within a day"
	}
}

// matches compares an answer; "…" in want stands for anything.
func matches(got, want string) bool {
	parts := strings.Split(want, "…")
	if len(parts) == 1 {
		return got == want
	}
	if !strings.HasPrefix(got, parts[0]) {
		return false
	}
	for _, p := range parts {
		i := strings.Index(got, p)
		if i < 0 {
			return false
		}
		got = got[i+len(p):]
	}
	return parts[len(parts)-1] == "" || got == ""
}

// world is a bucket and the nodes that share it.
type world struct {
	t      *testing.T
	bucket *mem.Store
	nodes  map[string]*node
	starts map[string]int
	later  map[string]chan string

	mu     sync.Mutex
	dead   map[id.Session]bool
	sealed []string
	log    []string // what handlers noted
	hold   map[string]chan struct{}
	modes  map[string][]string // what the next handlers do
}

type node struct {
	*cell.Manager
	session id.Session
	store   *faulty.Store
	expired atomic.Bool
	fleet   *fleet
}

func newWorld(t *testing.T) *world {
	return &world{t: t, bucket: mem.New(), nodes: map[string]*node{}, starts: map[string]int{},
		later: map[string]chan string{}, dead: map[id.Session]bool{}, hold: map[string]chan struct{}{}, modes: map[string][]string{}}
}

// end stops every node; the bubble then sees to it that no goroutine is left.
func (w *world) end() {
	for _, n := range w.nodes {
		n.store.Clear()
		n.Close()
	}
}

func (w *world) Lease(_ context.Context, s id.Session) (owner.Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return owner.Lease{Live: !w.dead[s], Deadline: time.Now().Add(10 * time.Second)}, nil
}

func (w *world) Seal(_ context.Context, s id.Session) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dead[s] {
		return owner.ErrLives
	}
	w.sealed = append(w.sealed, string(s))
	return nil
}

func (w *world) start(name string, settings []string) string {
	if old := w.nodes[name]; old != nil {
		old.Close()
	}
	w.starts[name]++
	n := &node{session: id.Session(fmt.Sprintf("%s.%d", name, w.starts[name])), store: faulty.New(w.bucket)}
	self := owner.Self{Session: n.session, Node: id.Node(name), Address: name + ":1"}
	cfg := cell.Config{
		Store: n.store, Records: owner.New(n.store, self, w), Engine: w.engine(n),
		Dir:         filepath.Join(w.t.TempDir(), name),
		Replication: cell.FakeReplication{Store: n.store},
		Authority: func() error {
			if n.expired.Load() {
				return call.ErrFenced
			}
			return nil
		},
	}
	for _, s := range settings {
		w.configure(&cfg, s)
	}
	m, err := cell.New(cfg)
	if err != nil {
		return err.Error()
	}
	n.Manager = m
	n.fleet, _ = cfg.Fleet.(*fleet)
	w.nodes[name] = n
	return ""
}

func (w *world) configure(cfg *cell.Config, setting string) {
	name, value, _ := strings.Cut(setting, "=")
	number, _ := strconv.Atoi(value)
	duration, _ := time.ParseDuration(value)
	switch name {
	case "idle":
		cfg.IdleEvict = duration
	case "rest":
		cfg.IdleClose = duration
	case "tick":
		cfg.WakerTick = duration
	case "max":
		cfg.MaxResident = number
	case "fleet":
		cfg.Fleet = &fleet{pace: duration}
	case "calls":
		cfg.MaxCalls = number
	case "activations":
		cfg.Activations = number
	default:
		w.t.Fatalf("unknown setting %q", setting)
	}
}

// fleet proves everything a moment after it was offered, unless it is cut.
type fleet struct {
	pace time.Duration
	cut  atomic.Bool
}

func (f *fleet) Offer(_ id.Cell, _ id.Epoch, _ []cell.Segment, proven func()) {
	if !f.cut.Load() {
		time.AfterFunc(time.Millisecond, proven)
	}
}

func (f *fleet) Pace() time.Duration {
	if f.cut.Load() {
		return 0
	}
	return f.pace
}

func (w *world) step(words []string) string {
	if n, ok := w.nodes[words[0]]; ok {
		return w.call(n, words[1:])
	}
	switch words[0] {
	case "start":
		return w.start(words[1], words[2:])
	case "go":
		return w.background(words[1], words[2:])
	case "result":
		return <-w.later[words[1]]
	case "waiting":
		return w.waiting(words[1])
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(d)
		time.Sleep(time.Microsecond)
		return ""
	case "let":
		close(w.held(words[1]))
		time.Sleep(time.Microsecond)
		return ""
	case "owner":
		return w.owner(cellOf(words[1]))
	case "seals":
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Join(w.sealed, " ")
	case "log":
		w.mu.Lock()
		defer w.mu.Unlock()
		text := strings.Join(w.log, " ")
		w.log = nil
		return text
	case "next": // next alarm|construct MODE…
		w.mu.Lock()
		defer w.mu.Unlock()
		w.modes[words[1]] = append(w.modes[words[1]], strings.Join(words[2:], " "))
		return ""
	case "objects":
		return w.objects(words[1])
	case "write-owner":
		return w.steal(words[1], words[2], words[3])
	}
	n, ok := w.nodes[words[1]]
	if !ok {
		w.t.Fatalf("no node %q for step %v", words[1], words)
	}
	return w.manage(n, words)
}

func (w *world) manage(n *node, words []string) string {
	switch words[0] {
	case "kill":
		w.mu.Lock()
		w.dead[n.session] = true
		w.mu.Unlock()
		n.expired.Store(true)
		n.Close()
	case "dead": // its lease is known dead, and it does not know yet
		w.mu.Lock()
		w.dead[n.session] = true
		w.mu.Unlock()
	case "cut":
		n.fleet.cut.Store(true)
	case "expire":
		n.expired.Store(true)
	case "fence":
		n.Fence()
		time.Sleep(time.Microsecond)
	case "close":
		n.Close()
	case "drain":
		ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
		defer cancel()
		if err := n.Drain(ctx); err != nil {
			return err.Error()
		}
	case "release":
		ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
		defer cancel()
		if err := n.Release(ctx, cellOf(words[2])); err != nil {
			return err.Error()
		}
	case "shed":
		k, _ := strconv.Atoi(words[2])
		return strconv.Itoa(n.Shed(k))
	case "fault":
		n.store.Add(rule(w.t, words[2:]))
	case "clear":
		n.store.Clear()
	case "ops":
		return strconv.Itoa(n.store.Count(faulty.Op(words[2])))
	case "stats":
		time.Sleep(time.Microsecond)
		st := n.Stats()
		return fmt.Sprintf("resident=%d owned=%d calls=%d alarms=%d", st.Resident, st.Owned, st.Calls, st.Alarms)
	default:
		w.t.Fatalf("unknown step %v", words)
	}
	return ""
}

func rule(t *testing.T, words []string) faulty.Rule {
	r := faulty.Rule{Op: faulty.Op(words[1]), Prefix: words[2]}
	switch words[0] {
	case "before":
		r.Before = faulty.ErrLost
	case "lost":
		r.After = faulty.ErrLost
	case "slow":
		r.Delay = time.Second
	case "block":
		r.Block = make(chan struct{})
	default:
		t.Fatalf("unknown fault %q", words[0])
	}
	if len(words) > 3 {
		r.Times, _ = strconv.Atoi(words[3])
	}
	return r
}

func cellOf(name string) id.Cell { return id.NewCell("Counter", name) }

func (w *world) call(n *node, words []string) string {
	svc, err := n.Service(w.t.Context(), cellOf(words[1]), words[1])
	if err != nil {
		return describe(err)
	}
	resp, err := svc.Fetch(w.t.Context(), &call.Request{Method: words[0], URL: strings.Join(words[2:], " ")})
	if err != nil {
		return describe(err)
	}
	return string(resp.Body.Bytes)
}

func describe(err error) string {
	var remote *cell.Remote
	if errors.As(err, &remote) {
		return fmt.Sprintf("remote %s %s", remote.Session, remote.Epoch.Dir())
	}
	text := "error: " + err.Error()
	for mark, target := range map[string]error{" [fenced]": call.ErrFenced, " [unproven]": call.ErrUnproven,
		" [overloaded]": call.ErrOverloaded, " [draining]": cell.ErrDraining} {
		if errors.Is(err, target) {
			return text + mark
		}
	}
	if errors.Is(err, call.ErrNotStarted) {
		text += " [not started]"
	}
	return text
}

func (w *world) background(name string, words []string) string {
	ch := make(chan string, 1)
	w.later[name] = ch
	go func() { ch <- w.step(words) }()
	time.Sleep(time.Microsecond) // until everybody waits
	return ""
}

// waiting tells whether a background call has no answer yet.
func (w *world) waiting(name string) string {
	time.Sleep(time.Microsecond)
	if len(w.later[name]) > 0 {
		return "no"
	}
	return "yes"
}

func (w *world) owner(c id.Cell) string {
	rec, err := owner.Read(w.t.Context(), w.bucket, c)
	if err != nil {
		return "none"
	}
	return fmt.Sprintf("%s %s %s", rec.Session, rec.Epoch.Dir(), rec.State)
}

// steal makes another session the owner behind everybody's back.
func (w *world) steal(c, session, state string) string {
	s := id.Session(session)
	r := owner.New(w.bucket, owner.Self{Session: s, Node: s.Node()}, thief{w})
	if _, err := r.Acquire(w.t.Context(), cellOf(c), ""); err != nil {
		return err.Error()
	}
	return ""
}

// thief believes that everybody else is dead.
type thief struct{ *world }

func (thief) Lease(context.Context, id.Session) (owner.Lease, error) { return owner.Lease{}, nil }
func (thief) Seal(context.Context, id.Session) error                 { return nil }

func (w *world) objects(prefix string) string {
	time.Sleep(time.Microsecond)
	n := 0
	for _, err := range w.bucket.List(w.t.Context(), prefix, "") {
		if err != nil {
			return err.Error()
		}
		n++
	}
	return strconv.Itoa(n)
}

func (w *world) held(name string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold[name] == nil {
		w.hold[name] = make(chan struct{})
	}
	return w.hold[name]
}

func (w *world) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, text)
}
