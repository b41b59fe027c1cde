package faulttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// ledger is the client that writes, and knows what it was told.
type ledger struct {
	t     *testing.T
	cells int

	mu        sync.Mutex
	acked     map[string]map[string]int // by cell and id: the place that the cell answered
	ambiguous map[string]map[string]bool
	n         int
	endless   int // requests that had no end

	stop chan struct{}
	done sync.WaitGroup
}

// write starts writers that go to nodes in turn, until end.
func write(t *testing.T, cells, writers int, nodes ...*node) *ledger {
	l := &ledger{t: t, cells: cells, acked: map[string]map[string]int{}, ambiguous: map[string]map[string]bool{}, stop: make(chan struct{})}
	for c := range cells {
		l.acked[fmt.Sprint("c", c)], l.ambiguous[fmt.Sprint("c", c)] = map[string]int{}, map[string]bool{}
	}
	for w := range writers {
		l.done.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				n := nodes[(w+i)%len(nodes)]
				if int(n.avoided.Load()) > w%2 { // a process that stands still keeps its clients waiting
					n = nodes[(w+i+1)%len(nodes)]
				}
				l.one(n, fmt.Sprint("c", i%cells), fmt.Sprintf("%d-%d", w, i))
			}
		})
	}
	return l
}

func (l *ledger) one(n *node, cell, id string) {
	l.mu.Lock()
	l.ambiguous[cell][id] = true // until we know better
	l.n++
	l.mu.Unlock()
	resp, err := client.Get(n.address() + "/add?cell=" + cell + "&id=" + id)
	if err != nil {
		l.ended(err)
		time.Sleep(5 * time.Millisecond) // a node that is down refuses at once: do not spin
		return
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	l.ended(err)
	var place int
	if _, bad := fmt.Sscanf(string(b), "ok %d", &place); err != nil || bad != nil || resp.StatusCode != http.StatusOK {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ambiguous[cell], id)
	l.acked[cell][id] = place
}

// ended counts requests that only the client's patience ended.
func (l *ledger) ended(err error) {
	if net, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && net.Timeout() {
		l.mu.Lock()
		l.endless++
		l.mu.Unlock()
	}
}

// progress waits until n more writes were acknowledged.
func (l *ledger) progress(n int) {
	l.t.Helper()
	start := l.total()
	for end := time.Now().Add(time.Minute); l.total() < start+n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("%d writes were acknowledged in a minute, %d were waited for", l.total()-start, n)
		}
	}
}

func (l *ledger) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.acked {
		n += len(c)
	}
	return n
}

// check ends the writers and compares what is there, as every node tells it.
func (l *ledger) check(nodes ...*node) {
	l.t.Helper()
	close(l.stop)
	l.done.Wait()
	var v verdict
	for _, n := range nodes {
		n.ready()
		for cell := range l.acked {
			v.compare(l.acked[cell], l.ambiguous[cell], l.read(n, cell))
		}
	}
	l.t.Logf("%d writes, %d acknowledged; through %d nodes: %+v; %d requests without an end", l.n, l.total(), len(nodes), v, l.endless)
	if v != (verdict{}) || l.endless > 0 {
		l.t.Error("the ledger does not agree")
	}
}

// verdict counts what must not be.
type verdict struct{ lost, moved, doubled, foreign int }

// compare what one cell holds with what its writers were told.
func (v *verdict) compare(acked map[string]int, ambiguous map[string]bool, there map[string]row) {
	for id, place := range acked {
		if r, is := there[id]; !is {
			v.lost++
		} else if r.Seq != place { // two writers at once would give one place to two ids
			v.moved++
		}
	}
	for id, r := range there {
		if r.N > 1 {
			v.doubled++
		}
		if acked[id] == 0 && !ambiguous[id] {
			v.foreign++
		}
	}
}

func TestTheLedgerNotices(t *testing.T) {
	acked, ambiguous := map[string]int{"a": 1, "b": 2}, map[string]bool{"c": true}
	for _, c := range []struct {
		name  string
		there map[string]row
		want  verdict
	}{
		{"nothing amiss", map[string]row{"a": {1, 1}, "b": {1, 2}}, verdict{}},
		{"an ambiguous write that is there", map[string]row{"a": {1, 1}, "b": {1, 2}, "c": {1, 3}}, verdict{}},
		{"a lost write", map[string]row{"a": {1, 1}}, verdict{lost: 1}},
		{"two owners at once", map[string]row{"a": {1, 1}, "c": {1, 2}, "b": {1, 3}}, verdict{moved: 1}},
		{"a call sent twice", map[string]row{"a": {2, 1}, "b": {1, 2}}, verdict{doubled: 1}},
		{"an ambiguous call sent twice", map[string]row{"a": {1, 1}, "b": {1, 2}, "c": {2, 3}}, verdict{doubled: 1}},
		{"what nobody wrote", map[string]row{"a": {1, 1}, "b": {1, 2}, "d": {1, 3}}, verdict{foreign: 1}},
	} {
		var v verdict
		if v.compare(acked, ambiguous, c.there); v != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, v, c.want)
		}
	}
}

// row is an id as the cell holds it.
type row struct{ N, Seq int }

func (l *ledger) read(n *node, cell string) map[string]row {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := client.Get(n.address() + "/?cell=" + cell + "&read")
		if err != nil {
			continue
		}
		var ids map[string]row
		err = json.NewDecoder(resp.Body).Decode(&ids)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			return ids
		}
	}
	l.t.Fatalf("%s cannot be read through %s", cell, n.name)
	return nil
}
