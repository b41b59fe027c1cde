package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/faulty"
	"celld/internal/bucket/mem"
	"celld/internal/id"
	"celld/internal/owner"
)

const ttl = 10 * time.Second

// node is one session in a bubble, its store, and how it ended.
type node struct {
	l     *Lease
	store *faulty.Store

	mu    sync.Mutex
	event Event
	code  int
	log   strings.Builder
}

func (n *node) ended() (Event, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.event, n.code
}

func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(p)
}

func begin(t *testing.T, base bucket.Store, name id.Node, clock Clock) *node {
	t.Helper()
	n := &node{store: faulty.New(base)}
	l, err := Start(t.Context(), NewSession(name), Config{
		Store: n.store, Node: name, Address: "10.0.0.1:9", TTL: ttl, Clock: clock,
		Log:    slog.New(slog.NewTextHandler(n, nil)),
		Fenced: func(e Event) { n.mu.Lock(); n.event = e; n.mu.Unlock() },
		Exit:   func(code int) { n.mu.Lock(); n.code = code; n.mu.Unlock() },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.l = l
	t.Cleanup(func() { l.stop(); <-l.done })
	return n
}

var cut = errors.New("the network is cut")

func TestTheLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, mem.New(), "a", Bubble{})
		for range 60 {
			time.Sleep(time.Second)
			if err := n.l.Authority(); err != nil {
				t.Fatal(err)
			}
		}
		if left := n.l.Left(); left < ttl/2 {
			t.Errorf("%v left", left)
		}
	})
}

func TestABucketThatIsCut(t *testing.T) {
	for _, c := range []struct {
		name  string
		cut   time.Duration
		fence bool
	}{{"half a TTL: nobody fences", ttl / 2, false}, {"two TTLs: fence", 2 * ttl, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := begin(t, mem.New(), "a", Bubble{})
				time.Sleep(ttl / 5)
				n.store.Add(faulty.Rule{Op: "swap", Before: cut})
				time.Sleep(c.cut)
				n.store.Clear()
				time.Sleep(ttl)
				event, code := n.ended()
				if fenced := code == ExitCode && event == Expired; fenced != c.fence {
					t.Errorf("event %q, code %d", event, code)
				}
				if alive := n.l.Authority() == nil; alive == c.fence {
					t.Errorf("authority: %v", alive)
				}
				if line := strings.Contains(n.log.String(), "SELF-FENCE: node_lease_watchdog_fence"); line != c.fence {
					t.Error(n.log.String())
				}
			})
		})
	}
}

func TestRenewalsWithLostRepliesHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := begin(t, mem.New(), "a", Bubble{})
		n.store.Add(faulty.Rule{Op: "swap", After: faulty.ErrLost}) // every write lands, no reply comes
		time.Sleep(5 * ttl)
		if err := n.l.Authority(); err != nil {
			t.Error(err, n.log.String())
		}
	})
}

func TestSomebodyAtTheRecord(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s bucket.Store, key string)
		want Event
	}{
		{"deleted", func(s bucket.Store, key string) { s.Delete(context.Background(), key) }, Missing},
		{"overwritten", func(s bucket.Store, key string) { s.Put(context.Background(), key, []byte(`{"v":1,"nonce":"x"}`)) }, Mismatch},
		{"garbage", func(s bucket.Store, key string) { s.Put(context.Background(), key, []byte("hello")) }, Mismatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := mem.New()
				n := begin(t, base, "a", Bubble{})
				c.do(base, Key(n.l.Session()))
				before, _, _ := base.Get(t.Context(), Key(n.l.Session()))
				time.Sleep(ttl / 2)
				if event, code := n.ended(); event != c.want || code != ExitCode {
					t.Errorf("%q, %d", event, code)
				}
				after, _, _ := base.Get(t.Context(), Key(n.l.Session()))
				if string(before) != string(after) {
					t.Error("the fence wrote to the bucket")
				}
			})
		})
	}
}

// skewed are clocks that a test moves.
type skewed struct {
	mu         sync.Mutex
	wall, boot time.Duration
}

func (s *skewed) move(wall, boot time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wall += wall
	s.boot += boot
}

func (s *skewed) Wall() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.wall)
}

func (s *skewed) Boot() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Bubble{}.Boot() + s.boot
}

// Either clock ends the authority at once, before any timer runs: as after a
// machine slept, or somebody set the time.
func TestEitherClockEndsIt(t *testing.T) {
	for name, move := range map[string][2]time.Duration{"wall stepped ahead": {ttl, 0}, "slept": {ttl, ttl}, "boot clock alone": {0, ttl}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := &skewed{}
				n := begin(t, mem.New(), "a", clock)
				clock.move(move[0], move[1])
				if n.l.Authority() == nil {
					t.Error("still has authority")
				}
				time.Sleep(ttl)
				if _, code := n.ended(); code != ExitCode {
					t.Error("did not fence")
				}
			})
		})
	}
}

func TestStartRetriesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty.New(mem.New())
		store.Add(faulty.Rule{Op: "create", Before: cut})
		go func() {
			time.Sleep(time.Hour)
			store.Clear()
		}()
		l, err := Start(t.Context(), "a.1", Config{Store: store, Node: "a", TTL: ttl, Clock: Bubble{}, Exit: func(int) {}})
		if err != nil {
			t.Fatal(err)
		}
		if l.Authority() != nil {
			t.Error("no authority after an hour of trying")
		}
		l.Close(t.Context())
	})
}

func TestUpdatesRideARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "a", Bubble{})
		if err := n.l.Update(t.Context(), func(r *Record) { r.Draining = true }); err != nil {
			t.Fatal(err)
		}
		rec, err := bucket.ReadRecord[Record](t.Context(), base, Key(n.l.Session()))
		if err != nil || !rec.Value.Draining {
			t.Errorf("%+v, %v", rec, err)
		}
	})
}

func sessionsOf(base bucket.Store, self id.Session) *Sessions {
	return NewSessions(base, self, Bubble{}, nil)
}

func TestWhoLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "a", Bubble{})
		s := sessionsOf(base, "b.1")
		x := n.l.Session()
		live := func() bool {
			l, err := s.Lease(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			return l.Live
		}
		if !live() {
			t.Error("a session that renews is dead")
		}
		if err := s.Seal(t.Context(), x); !errors.Is(err, owner.ErrLives) {
			t.Error(err)
		}
		n.store.Add(faulty.Rule{Op: "swap", Before: cut})
		time.Sleep(ttl)
		if !live() && n.l.Authority() == nil {
			t.Error("taken for dead while it has authority")
		}
		time.Sleep(ttl)
		if live() {
			t.Error("alive long after its expiry")
		}
		if err := s.Seal(t.Context(), x); err != nil {
			t.Error(err)
		}
		if err := s.Seal(t.Context(), x); err != nil {
			t.Error("sealing twice:", err)
		}
		rec, _ := bucket.ReadRecord[Record](t.Context(), base, Key(x))
		if rec.Value.State != Sealed {
			t.Errorf("%+v", rec.Value)
		}
	})
}

// A node whose clock runs far ahead still needs to see the record stand still.
func TestASessionThatIsSealedFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "a", Bubble{})
		s := sessionsOf(base, "b.1")
		s.Gone(n.l.Session()) // a wrong belief
		if err := s.Seal(t.Context(), n.l.Session()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if event, code := n.ended(); event != Mismatch || code != ExitCode {
			t.Errorf("%q, %d", event, code)
		}
	})
}

func TestAKilledNodeIsSealedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "a", Bubble{})
		n.store.Add(faulty.Rule{Op: "swap", Before: cut}) // as if killed
		s := sessionsOf(base, "a.2")
		s.Gone(n.l.Session())
		began := time.Now()
		if err := s.Seal(t.Context(), n.l.Session()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

// logs is a log recoverer that takes its time.
type logs struct {
	took time.Duration
	err  error
	runs int
	mu   sync.Mutex
}

func (l *logs) Recover(ctx context.Context, _ Record) error {
	l.mu.Lock()
	l.runs++
	l.mu.Unlock()
	select {
	case <-time.After(l.took):
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.err
}

func (l *logs) Lost(context.Context, id.Session) (*Record, error) { return nil, nil }

func withLog(t *testing.T, base bucket.Store) id.Session {
	x := id.Session("dead.1")
	_, err := bucket.CreateRecord(t.Context(), base, Key(x), Record{Node: "dead", Session: x, State: Open, Term: 3, Active: true, TTLMS: ttl.Milliseconds(), ExpiresMS: time.Now().Add(-time.Hour).UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestTwoRecoverersOneSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		x := withLog(t, base)
		l := &logs{took: 35 * time.Second} // longer than a TTL: the claim must be kept fresh
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if err := NewSessions(base, id.Session(fmt.Sprintf("r%d.1", i)), Bubble{}, l).Seal(t.Context(), x); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if l.runs != 1 {
			t.Errorf("%d recoveries ran", l.runs)
		}
	})
}

func TestARecovererThatDiesIsTakenOverFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		x := withLog(t, base)
		rec, _ := bucket.ReadRecord[Record](t.Context(), base, Key(x))
		r := rec.Value
		r.State, r.Recoverer = Recovering, &Claim{"crashed.1", "1"}
		if _, err := bucket.SwapRecord(t.Context(), base, Key(x), rec, r); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := NewSessions(base, "b.1", Bubble{}, &logs{}).Seal(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < ttl || waited > 2*ttl {
			t.Errorf("waited %v for a recoverer that stands still", waited)
		}
	})
}

func TestAFailedRecoveryLeavesTheSessionUnsealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		x := withLog(t, base)
		if err := NewSessions(base, "b.1", Bubble{}, &logs{err: errors.New("no complete member")}).Seal(t.Context(), x); err == nil || !strings.Contains(err.Error(), "no complete member") {
			t.Error(err)
		}
		rec, _ := bucket.ReadRecord[Record](t.Context(), base, Key(x))
		if rec.Value.State != Recovering {
			t.Errorf("%+v", rec.Value)
		}
	})
}

func TestAMissingRecordProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		if err := NewSessions(base, "b.1", Bubble{}, &logs{}).Seal(t.Context(), "gone.1"); err != nil {
			t.Fatal(err)
		}
		rec, err := bucket.ReadRecord[Record](t.Context(), base, Key("gone.1"))
		if err != nil || rec.Value.State != Sealed {
			t.Errorf("%+v, %v", rec, err)
		}
	})
}

func TestWorkDir(t *testing.T) {
	dir := t.TempDir()
	w, err := LockWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockWorkDir(dir); err == nil || !strings.Contains(err.Error(), "in use by pid") {
		t.Error(err)
	}
	name, err := w.Node("")
	if err != nil || name == "" {
		t.Fatal(name, err)
	}
	if p, _ := w.Predecessor(); p != "" {
		t.Error(p)
	}
	session := NewSession(name)
	if err := w.Remember(session); err != nil {
		t.Fatal(err)
	}
	w.Unlock()
	w, err = LockWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Unlock()
	if again, _ := w.Node(""); again != name {
		t.Errorf("%s was %s", again, name)
	}
	if p, _ := w.Predecessor(); p != session {
		t.Errorf("%s was %s", p, session)
	}
}

func BenchmarkAuthority(b *testing.B) {
	l, err := Start(b.Context(), "a.1", Config{Store: mem.New(), Node: "a", TTL: time.Hour, Exit: func(int) {}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if l.Authority() != nil {
			b.Fatal()
		}
	}
	l.Close(b.Context())
}
