package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/mem"
	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/cell/goengine"
	"celld/internal/id"
	"celld/internal/lease"
	"celld/internal/replica"
	"celld/internal/storage"

	"github.com/anishathalye/porcupine"
)

var (
	seeds = flag.Int("seeds", 60, "how many seeds TestSeeds runs")
	seed  = flag.Uint64("seed", 0, "the first of them")
	trace = flag.Bool("trace", false, "tell the story of seeds that pass, too")
)

// brokenBound is how many seeds may pass before a broken variant is caught.
const brokenBound = 60

func TestSeeds(t *testing.T) {
	total := 0
	for s := *seed; s < *seed+uint64(*seeds); s++ {
		t.Run(strconv.FormatUint(s, 10), func(t *testing.T) {
			o := run(t, s, "")
			total += o.ops
			if *trace || len(o.violations) > 0 {
				t.Log(strings.Join(o.story, "\n"))
			}
			for _, v := range o.violations {
				t.Error(v)
			}
			if t.Failed() {
				t.Logf("replay: go test ./internal/sim -run TestSeeds -args -seeds 1 -seed %d -trace", s)
			}
		})
	}
	t.Logf("%d seeds, %d bucket operations", *seeds, total)
}

func TestBroken(t *testing.T) {
	for _, way := range brokenWays {
		t.Run(way, func(t *testing.T) {
			for s := range uint64(brokenBound) {
				if o := run(t, s, way); len(o.violations) > 0 {
					t.Logf("seed %d: %s", s, o.violations[0])
					return
				}
			}
			t.Errorf("%d seeds did not notice it", brokenBound)
		})
	}
}

type outcome struct {
	violations, story []string
	ops               int
}

// event is one call on a counter cell as its client saw it.
type event struct {
	cell      string
	inc       bool
	value     int
	known     bool
	from, end int64
}

func run(t *testing.T, seed uint64, broken string) outcome {
	w := &world{
		t: t, broken: broken, rnd: rand.New(rand.NewPCG(seed, 1)), wild: seed%2 == 1, nodes: make([]*node, nodeCount),
		epochs: map[string]id.Epoch{}, granted: map[string]bool{}, active: map[string]bool{},
		ran: map[string]int{}, armed: map[string]bool{}, fired: map[string]int{},
	}
	var h history
	synctest.Test(t, func(t *testing.T) { w.play(&h, seed) })
	h.check(w)
	return outcome{w.violations, w.story, w.ops}
}

type history struct {
	mu     sync.Mutex
	events []event
	clock  int64
}

func (h *history) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

func (w *world) play(h *history, seed uint64) {
	w.mem, w.faults = mem.New(), true
	for i := range w.nodes {
		w.start(i, filepath.Join(w.t.TempDir(), "disk"), "")
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 3 {
		rnd := rand.New(rand.NewPCG(seed, uint64(c)+10))
		clients.Go(func() { w.client(h, rnd, c, stop) })
	}
	for end := time.Now().Add(faultTime); time.Now().Before(end); {
		w.step()
	}
	close(stop)
	w.faults = false
	w.tell("the faults stop")
	for _, n := range w.nodes {
		w.kill(n) // what is acknowledged must not need any memory
	}
	done := make(chan struct{})
	go func() { clients.Wait(); w.settle(h); close(done) }()
	for open := true; open; {
		w.step()
		select {
		case <-done:
			open = false
		default:
		}
	}
	for _, n := range w.nodes {
		w.kill(n)
	}
	w.bg.Wait()
	time.Sleep(calmTime) // seals of dead nodes end with their next attempt
}

func (w *world) client(h *history, rnd *rand.Rand, c int, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rnd.IntN(800)) * time.Millisecond):
		}
		token := fmt.Sprintf("c%d.%d", c, i)
		at := rnd.IntN(nodeCount)
		switch k := rnd.IntN(10); {
		case k < 5:
			w.do(h, at, "inc", fmt.Sprintf("k%d", rnd.IntN(4)), token)
		case k < 9:
			w.do(h, at, "get", fmt.Sprintf("k%d", rnd.IntN(4)), token)
		default:
			if _, err := w.call(at, "arm", "alarm-"+token, token); err == nil {
				w.mu.Lock()
				w.armed[token] = true
				w.mu.Unlock()
			}
		}
	}
}

var errUnknown = errors.New("the node died before it could answer")

// do is one call on a counter, written down as the client sees it.
func (w *world) do(h *history, at int, verb, cellName, token string) error {
	from := h.now()
	text, err := w.call(at, verb, cellName, token)
	if w.broken == "ambiguous-retried" && err != nil && !errors.Is(err, call.ErrNotStarted) {
		text, err = w.call((at+1)%nodeCount, verb, cellName, token)
	}
	if err != nil && (errors.Is(err, call.ErrNotStarted) || verb == "get") {
		return err
	}
	e := event{cell: cellName, inc: verb == "inc", from: from, end: h.now(), known: err == nil}
	if e.known {
		e.value, _ = strconv.Atoi(text)
	} else {
		e.end = math.MaxInt64
	}
	h.mu.Lock()
	h.events = append(h.events, e)
	h.mu.Unlock()
	return err
}

// call asks a node, and once more the owner that it names.
func (w *world) call(at int, verb, name, token string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	w.mu.Lock()
	n := w.nodes[at]
	w.mu.Unlock()
	text, err := w.callAt(ctx, n, verb, name, token)
	var remote *cell.Remote
	if !errors.As(err, &remote) {
		return text, err
	}
	w.mu.Lock()
	all := append([]*node(nil), w.nodes...)
	w.mu.Unlock()
	for _, n := range all {
		if n.session == remote.Session {
			return w.callAt(ctx, n, verb, name, token)
		}
	}
	return "", err
}

func (w *world) callAt(ctx context.Context, n *node, verb, name, token string) (string, error) {
	if !n.ready.Load() || n.dead.Load() {
		return "", call.ErrNotStarted
	}
	svc, err := n.Service(ctx, id.NewCell("Counter", name), name)
	if err != nil {
		return "", err
	}
	r, err := svc.Fetch(ctx, &call.Request{Method: verb, URL: token})
	if n.dead.Load() { // a process that is gone says nothing
		return "", errUnknown
	}
	if err != nil {
		return "", err
	}
	w.answered(n, name)
	return string(r.Body.Bytes), nil
}

// answered checks an answer against the lease that everybody can read
// (invariant 5). The margin is above the clocks' offsets and drift.
func (w *world) answered(n *node, name string) {
	r, err := bucket.ReadRecord[lease.Record](context.Background(), w.mem, lease.Key(n.session))
	if err != nil {
		w.violate("invariant 5: %s answered for %s without a session record: %v", n.session, name, err)
		return
	}
	if late := time.Since(time.UnixMilli(r.Value.ExpiresMS)); late > time.Second {
		w.violate("invariant 5: %s answered for %s %v after its published expiry", n.session, name, late)
	}
}

func (w *world) engine(n *node) cell.Engine {
	e := goengine.Engine{"Counter": {
		New: func(_ context.Context, c *goengine.Cell) error { w.activated(n, c.ID(), c.Epoch()); return nil },
		Fetch: func(_ context.Context, c *goengine.Cell, r *call.Request) (*call.Response, error) {
			w.mu.Lock()
			w.ran[r.URL]++
			times := w.ran[r.URL]
			w.mu.Unlock()
			if times > 1 {
				w.violate("invariant 7: the handler of %s ran %d times", r.URL, times)
			}
			value := 0
			err := c.Turn(func(st *storage.Storage) (err error) { value, err = operate(st, r.Method, r.URL); return err })
			if err != nil {
				return nil, err
			}
			return goengine.Text(strconv.Itoa(value)), nil
		},
		Alarm: func(_ context.Context, c *goengine.Cell, _ cell.AlarmInfo) error {
			return c.Turn(func(st *storage.Storage) error {
				token, err := st.Get("token")
				if err == nil && w.broken != "alarm-swallowed" {
					w.mu.Lock()
					w.fired[string(token)]++
					w.mu.Unlock()
				}
				return err
			})
		},
	}}
	return engine{e, w.broken}
}

type engine struct {
	goengine.Engine
	broken string
}

func (e engine) Create(ctx context.Context, s cell.Seat) (cell.Object, error) {
	if strings.HasPrefix(e.broken, "output-") {
		s = seat{s, e.broken}
	}
	return e.Engine.Create(ctx, s)
}

func operate(st *storage.Storage, verb, token string) (int, error) {
	if verb == "arm" {
		if err := st.Put("token", []byte(token)); err != nil {
			return 0, err
		}
		return 0, st.SetAlarm(storage.AlarmRow{At: time.Now().Add(3 * time.Second)})
	}
	text, err := st.Get("n")
	if err != nil {
		return 0, err
	}
	n, _ := strconv.Atoi(string(text))
	if verb == "get" {
		return n, nil
	}
	return n + 1, st.Put("n", []byte(strconv.Itoa(n+1)))
}

// settle demands progress and alarms once all is calm.
func (w *world) settle(h *history) {
	end := time.Now().Add(calmTime)
	for k := range 4 {
		for i := 0; ; i++ {
			err := w.do(h, i%nodeCount, "get", fmt.Sprintf("k%d", k), fmt.Sprintf("last%d.%d", k, i))
			if err == nil {
				break
			}
			if time.Now().After(end) {
				w.violate("invariant 9: k%d is not served: %v", k, err)
				break
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	for w.unfired() != "" && time.Now().Before(end) {
		time.Sleep(time.Second)
	}
	if token := w.unfired(); token != "" {
		w.violate("invariant 11: the alarm of %s never fired", token)
	}
}

func (w *world) unfired() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for token := range w.armed {
		if w.fired[token] == 0 {
			return token
		}
	}
	return ""
}

func (w *world) restoreFailed(c id.Cell, err error) {
	var corrupt *replica.CorruptError
	if errors.As(err, &corrupt) {
		w.violate("invariant 8: %v", err)
	}
}

var counter = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, in, out any) (bool, any) {
		n, e := state.(int), in.(event)
		if e.inc {
			n++
		}
		return !e.known || e.value == n, n
	},
}

// check looks for an order in which the cells could have answered as they did
// (invariants 1, 2, 4, 5 as a client sees them).
func (h *history) check(w *world) {
	cells := map[string][]porcupine.Operation{}
	for i, e := range h.events {
		if w.wild && !e.inc && e.end < h.clock-20 { // a stale read is possible until the owner's next renewal
			continue
		}
		cells[e.cell] = append(cells[e.cell], porcupine.Operation{ClientId: i, Input: e, Output: e.value, Call: e.from, Return: e.end})
	}
	for name, ops := range cells {
		if porcupine.CheckOperationsTimeout(counter, ops, 5*time.Second) == porcupine.Illegal {
			w.violate("invariants 1, 2, 5: the history of %s is not linearizable: %+v", name, ops)
		}
	}
}
