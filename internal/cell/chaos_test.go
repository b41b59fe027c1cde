package cell_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket/faulty"
)

var chaosSeeds = flag.Int("chaos", 12, "seeds of TestChaos")

// TestChaos lets clients increment cells over three nodes while the bucket
// fails, nodes die and return, and cells are evicted. It keeps a ledger of what
// was acknowledged (protocol §10, 1 to 5 and 10): no value twice, none lost, no
// more increments than attempts.
func TestChaos(t *testing.T) {
	for seed := range *chaosSeeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, uint64(seed)) })
		})
	}
}

type ledger struct {
	mu       sync.Mutex
	attempts map[string]int
	acked    map[string]map[int]bool
	highest  map[string]int
}

func chaos(t *testing.T, seed uint64) {
	w := newWorld(t)
	defer w.end()
	rnd := rand.New(rand.NewPCG(seed, 1))
	l := &ledger{attempts: map[string]int{}, acked: map[string]map[int]bool{}, highest: map[string]int{}}
	names := []string{"a", "b", "c"}
	var nodes sync.Map
	start := func(name string) {
		w.start(name, []string{"idle=3s", "rest=1s", "max=3"})
		nodes.Store(name, w.nodes[name])
	}
	for _, name := range names {
		start(name)
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 4 {
		rnd := rand.New(rand.NewPCG(seed, uint64(c)+10))
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rnd.IntN(400)) * time.Millisecond):
				}
				n, _ := nodes.Load(names[rnd.IntN(3)])
				l.increment(t, w, n.(*node), fmt.Sprintf("k%d", rnd.IntN(5)))
			}
		})
	}
	for range 40 {
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		name := names[rnd.IntN(3)]
		n := w.nodes[name]
		switch rnd.IntN(7) {
		case 0:
			w.step([]string{"kill", name})
			start(name)
		case 1: // the others believe it dead, and it does not know: only the proof holds it back
			w.step([]string{"dead", name})
		case 2:
			n.Shed(2)
		case 3:
			n.store.Clear()
		default:
			ops := []faulty.Op{faulty.Put, faulty.Get, faulty.Swap, faulty.Create, faulty.List, faulty.Any}
			r := faulty.Rule{Op: ops[rnd.IntN(len(ops))], Times: 1 + rnd.IntN(20), Skip: rnd.IntN(3)}
			switch rnd.IntN(3) {
			case 0:
				r.Before = faulty.ErrLost
			case 1:
				r.After = faulty.ErrLost
			default:
				r.Delay = time.Duration(rnd.IntN(3000)) * time.Millisecond
			}
			n.store.Add(r)
		}
	}
	close(stop)
	for _, n := range w.nodes {
		n.store.Clear()
	}
	clients.Wait()
	for _, name := range names {
		w.step([]string{"kill", name})
	}
	start("d")
	l.check(t, w)
}

func (l *ledger) increment(t *testing.T, w *world, n *node, key string) {
	l.mu.Lock()
	l.attempts[key]++
	before := l.highest[key]
	l.mu.Unlock()
	answer := w.call(n, []string{"inc", key})
	value, err := strconv.Atoi(answer)
	if err != nil {
		return // remote, or ambiguous: nothing was promised
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked[key] == nil {
		l.acked[key] = map[int]bool{}
	}
	if l.acked[key][value] {
		t.Errorf("%s: %d was acknowledged twice", key, value)
	}
	if value <= before {
		t.Errorf("%s: %d was acknowledged after %d", key, value, before)
	}
	l.acked[key][value] = true
	l.highest[key] = max(l.highest[key], value)
}

// check reads every cell when all is calm again (invariants 2 and 9).
func (l *ledger) check(t *testing.T, w *world) {
	for key, highest := range l.highest {
		answer := w.call(w.nodes["d"], []string{"get", key})
		value, err := strconv.Atoi(answer)
		switch {
		case err != nil:
			t.Errorf("%s is not served: %s", key, answer)
		case value < highest:
			t.Errorf("%s: %d was acknowledged, %d is there", key, highest, value)
		case value > l.attempts[key]:
			t.Errorf("%s: %d increments from %d attempts", key, value, l.attempts[key])
		}
	}
}
