package cell_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"celld/internal/bucket/mem"
	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/owner"
)

func benchManager(b *testing.B) *cell.Manager {
	store := mem.New()
	w := &world{dead: map[id.Session]bool{}, hold: map[string]chan struct{}{}, modes: map[string][]string{}}
	m, err := cell.New(cell.Config{
		Store: store, Records: owner.New(store, owner.Self{Session: "a.1", Node: "a"}, w), Engine: w.engine(&node{}),
		Replication: cell.FakeReplication{Store: store}, Dir: b.TempDir(), Authority: func() error { return nil },
		IdleClose: 100 * time.Millisecond,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	return m
}

// BenchmarkWarmCall is the cost of this package around a handler that does nothing.
func BenchmarkWarmCall(b *testing.B) {
	m := benchManager(b)
	b.ReportAllocs()
	for b.Loop() {
		svc, err := m.Service(b.Context(), cellOf("c"), "c")
		if err == nil {
			_, err = svc.Fetch(b.Context(), &call.Request{Method: "epoch"})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWarmRead reads a value in a turn.
func BenchmarkWarmRead(b *testing.B) {
	m := benchManager(b)
	svc, err := m.Service(b.Context(), cellOf("c"), "c")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := svc.Fetch(b.Context(), &call.Request{Method: "get"}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkResident is the memory of a resident cell whose database rests.
func BenchmarkResident(b *testing.B) {
	const cells = 2000
	for b.Loop() {
		m := benchManager(b)
		before := heap()
		for i := range cells {
			if _, err := m.Service(b.Context(), cellOf(fmt.Sprintf("k%d", i)), ""); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/cells, "bytes/cell")
		if n := m.Stats().Resident; n != cells {
			b.Fatalf("%d of %d cells are resident", n, cells)
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc + s.StackInuse)
}
