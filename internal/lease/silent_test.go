package lease

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/faulty"
	"celld/internal/bucket/mem"
)

// stuck is a log that nobody reads: its writer waits for ever.
type stuck struct{ free <-chan struct{} }

func (s stuck) Write(p []byte) (int, error) { <-s.free; return len(p), nil }

// Stopping the node waits only a moment for the line that says why.
func TestALogThatNobodyReadsDelaysNoFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		base := mem.New()
		store := faulty.New(base)
		var stopped, ended time.Time
		exit := make(chan int, 1)
		l, err := Start(t.Context(), "a.1", Config{Store: store, Node: "a", TTL: ttl, Clock: Bubble{},
			Log:    slog.New(slog.NewTextHandler(stuck{free}, &slog.HandlerOptions{Level: slog.LevelError})),
			Fenced: func(Event) { stopped = time.Now() },
			Exit:   func(code int) { ended = time.Now(); exit <- code }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.stop(); <-l.done })
		store.Add(faulty.Rule{Op: faulty.Swap, Before: bucket.ErrNotSent})
		expiry := time.Now().Add(l.Left())
		select {
		case code := <-exit:
			if code != ExitCode {
				t.Error(code)
			}
		case <-time.After(time.Minute):
			t.Fatal("the fence hangs in its log")
		}
		const timer = 2 * time.Millisecond // the published expiry is in milliseconds
		if d := stopped.Sub(expiry); d < 0 || d > sayBudget+timer {
			t.Errorf("the cells were stopped %v after the expiry", d)
		}
		if d := ended.Sub(expiry); d > sayBudget+fenceBudget+timer {
			t.Errorf("it ended %v after the expiry", d)
		}
	})
}
