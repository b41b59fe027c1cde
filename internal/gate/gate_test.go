package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"celld/internal/id"
)

// TestStories runs the scripts of testdata. Each line is a step; what left the
// gate in that step stands behind "=>", in order, with the error if it failed.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) { runStory(t, f) })
	}
}

type story struct {
	gate      *Gate
	left      []string
	authority error
	arms      map[string]func(error)
}

func runStory(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{arms: map[string]func(error){}}
	s.gate = New(0, func() error { return s.authority })
	for n, line := range strings.Split(string(text), "\n") {
		step, want, _ := strings.Cut(line, "=>")
		words := strings.Fields(step)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		s.left = nil
		s.step(t, words)
		if got := strings.Join(s.left, " "); got != strings.TrimSpace(want) {
			t.Fatalf("%s:%d: %q let out %q, want %q", file, n+1, strings.TrimSpace(step), got, strings.TrimSpace(want))
		}
	}
}

func (s *story) step(t *testing.T, words []string) {
	switch words[0] {
	case "open":
		s.gate.Open()
	case "emit":
		for _, name := range words[1:] {
			s.emit(name)
		}
	case "emit-nested": // the release of the first emits the second
		s.gate.Emit(func(err error) { s.emit(words[2]); s.record(words[1], err) })
	case "committed":
		s.gate.Committed(txid(t, words[1]))
	case "reject":
		s.gate.Reject(errors.New(words[1]))
	case "proven":
		s.gate.Proven(txid(t, words[1]))
	case "fail":
		s.gate.Fail(errors.New(words[1]))
	case "arm":
		s.arms[words[1]] = s.gate.Arm(txid(t, words[1]))
	case "armed":
		s.arms[words[1]](nil)
	case "arm-failed":
		s.arms[words[1]](errors.New(words[2]))
	case "authority":
		s.authority = nil
		if words[1] != "ok" {
			s.authority = errors.New(words[1])
		}
	case "idle":
		if !s.gate.Idle() {
			s.left = append(s.left, "busy")
		}
	default:
		t.Fatalf("unknown step %q", words[0])
	}
}

func (s *story) emit(name string) { s.gate.Emit(func(err error) { s.record(name, err) }) }

func (s *story) record(name string, err error) {
	if err != nil {
		name += "!" + err.Error()
	}
	s.left = append(s.left, name)
}

func txid(t *testing.T, s string) id.TXID {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return id.TXID(n)
}

// Invariant 4 under concurrency: order is kept, nothing leaves unproven,
// everything leaves once.
func TestConcurrentOrder(t *testing.T) {
	const turns, perTurn = 300, 5
	var mu sync.Mutex
	var provenTo id.TXID
	var left []int
	g := New(0, func() error { return nil })
	commits := make(chan id.TXID, turns)
	var wg sync.WaitGroup
	wg.Go(func() {
		n := 0
		for pos := id.TXID(1); pos <= turns; pos++ {
			g.Open()
			for range perTurn {
				mine := n
				n++
				g.Emit(func(err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil || pos > provenTo {
						t.Errorf("output %d of position %d left at proof %d: %v", mine, pos, provenTo, err)
					}
					left = append(left, mine)
				})
			}
			g.Committed(pos)
			commits <- pos
		}
		close(commits)
	})
	for range 2 {
		wg.Go(func() {
			for pos := range commits {
				mu.Lock()
				provenTo = max(provenTo, pos)
				mu.Unlock()
				g.Proven(pos)
			}
		})
	}
	wg.Wait()
	if len(left) != turns*perTurn {
		t.Fatalf("%d outputs left, want %d", len(left), turns*perTurn)
	}
	for i, n := range left {
		if i != n {
			t.Fatalf("output %d left at place %d", n, i)
		}
	}
	if !g.Idle() {
		t.Error("the gate is not idle at the end")
	}
}

// A read-only turn on a proven cell costs no allocation in the gate.
func TestFastPathAllocatesNothing(t *testing.T) {
	g := New(7, func() error { return nil })
	release := func(error) {}
	got := testing.AllocsPerRun(100, func() {
		g.Open()
		g.Emit(release)
		g.Emit(release)
		g.Committed(7)
	})
	if got != 0 {
		t.Errorf("a read-only turn allocates %v times", got)
	}
}

// A burst does not leave a large queue behind, and a long backlog is compacted.
func TestQueueIsGivenBack(t *testing.T) {
	g := New(0, func() error { return nil })
	var left int
	g.Open()
	for range 1000 {
		g.Emit(func(error) { left++ })
	}
	g.Committed(1)
	g.Proven(1)
	if left != 1000 || cap(g.queue) > keep {
		t.Errorf("%d left, queue of %d kept", left, cap(g.queue))
	}
	for pos := id.TXID(2); pos < 500; pos++ { // never empty: the last one waits
		g.Open()
		g.Emit(func(error) { left++ })
		g.Committed(pos)
		g.Proven(pos - 1)
	}
	if len(g.queue) > 200 {
		t.Errorf("a queue of one waiting output is %d long", len(g.queue))
	}
}

func BenchmarkReadOnlyTurn(b *testing.B) {
	g := New(7, func() error { return nil })
	release := func(error) {}
	b.ReportAllocs()
	for b.Loop() {
		g.Open()
		g.Emit(release)
		g.Committed(7)
	}
}

func ExampleGate() {
	g := New(0, func() error { return nil })
	g.Open()
	g.Emit(func(err error) { fmt.Println("response left:", err) })
	g.Committed(1)
	fmt.Println("committed")
	g.Proven(1)
	// Output:
	// committed
	// response left: <nil>
}
