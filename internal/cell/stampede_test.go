package cell_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"celld/internal/bucket/faulty"
)

// Many callers of one cold cell on three nodes: one node acquires it, once, and
// every write has one place in the order.
func TestStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 20
		w := newWorld(t)
		defer w.end()
		for _, name := range []string{"a", "b", "c"} {
			w.start(name, nil)
			w.nodes[name].store.Add(faulty.Rule{Delay: 1e6}) // nobody is alone
		}
		var mu sync.Mutex
		answers := map[string]int{}
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			for range callers {
				wg.Go(func() {
					got := w.call(w.nodes[name], []string{"inc", "k"})
					mu.Lock()
					defer mu.Unlock()
					answers[got]++
				})
			}
		}
		wg.Wait()
		winner := w.owner(cellOf("k"))[:1]
		for n := 1; n <= callers; n++ {
			if answers[strconv.Itoa(n)] != 1 {
				t.Errorf("%d was answered %d times", n, answers[strconv.Itoa(n)])
			}
		}
		if remote := answers[fmt.Sprintf("remote %s.1 e1", winner)]; remote != 2*callers {
			t.Errorf("%d callers were sent to the owner, want %d: %v", remote, 2*callers, answers)
		}
		if n := w.nodes[winner].store.Count(faulty.Create); n != 1 {
			t.Errorf("the winner wrote the record %d times", n)
		}
	})
}
