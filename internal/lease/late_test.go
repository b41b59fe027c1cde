package lease

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/faulty"
	"celld/internal/bucket/mem"
	"celld/internal/call"
	"celld/internal/id"
	"celld/internal/owner"
)

// A renewal whose end nobody could learn may have landed. The next one is then
// rejected by this session's own hand, which is no reason to fence.
func TestARenewalThatLandedUnseenIsItsOwn(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []faulty.Rule
	}{
		{"landed, the reply and the reads after it were lost", []faulty.Rule{
			{Op: faulty.Swap, Times: 1, After: faulty.ErrLost}, {Op: faulty.Get, Times: 4, Before: cut}}},
		{"landed, the store hung until the attempt was given up", []faulty.Rule{
			{Op: faulty.Swap, Times: 1, After: context.DeadlineExceeded}, {Op: faulty.Get, Times: 4, Before: context.DeadlineExceeded}}},
		{"three in a row", []faulty.Rule{
			{Op: faulty.Swap, Times: 3, After: faulty.ErrLost}, {Op: faulty.Get, Times: 12, Before: cut}}},
		{"rejected, and nothing can be read for a while", []faulty.Rule{
			{Op: faulty.Swap, Times: 1, After: faulty.ErrLost}, {Op: faulty.Get, Times: 13, Before: cut}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := begin(t, mem.New(), "a", Bubble{})
				for _, r := range c.rules {
					n.store.Add(r)
				}
				time.Sleep(3 * ttl)
				if event, _ := n.ended(); event != "" || n.l.Authority() != nil {
					t.Errorf("fenced by its own renewal (%s):\n%s", event, n.log.String())
				}
			})
		})
	}
}

// Somebody else's record is not taken for an attempt of one's own.
func TestAClaimBetweenUnseenRenewalsFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "a", Bubble{})
		n.store.Add(faulty.Rule{Op: faulty.Swap, Times: 1, After: faulty.ErrLost})
		n.store.Add(faulty.Rule{Op: faulty.Get, Times: 4, Before: cut})
		time.Sleep(ttl/3 + time.Millisecond) // the renewal is being settled
		s := sessionsOf(base, "b.1")
		s.Gone(n.l.Session())
		if err := s.Seal(t.Context(), n.l.Session()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if event, code := n.ended(); event != Mismatch || code != ExitCode {
			t.Errorf("%q, %d", event, code)
		}
	})
}

// hung is a store that answers no renewal and heeds no context.
type hung struct {
	bucket.Store
	free <-chan struct{}
}

func (h hung) Swap(context.Context, string, []byte, bucket.Version) (bucket.Version, error) {
	<-h.free
	return "", bucket.ErrNotSent
}

func TestAClientThatHangsDelaysNoFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		n := begin(t, hung{mem.New(), free}, "a", Bubble{})
		t.Cleanup(func() { close(free) })
		waiting := make(chan error, 1)
		go func() { waiting <- n.l.Update(t.Context(), func(*Record) {}) }()
		began := time.Now()
		<-n.l.Fenced()
		if took := time.Since(began); took > ttl+10*time.Millisecond {
			t.Errorf("fenced after %v", took)
		}
		synctest.Wait()
		if event, code := n.ended(); event != Expired || code != ExitCode {
			t.Errorf("%q, %d", event, code)
		}
		free <- struct{}{} // the loop goes on, and finds itself fenced
		if err := <-waiting; !errors.Is(err, call.ErrFenced) {
			t.Error(err)
		}
	})
}

func TestASessionSealedBeforeItBeganDoesNotRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		if err := sessionsOf(base, "b.1").Seal(t.Context(), "a.1"); err != nil { // missing: created and sealed
			t.Fatal(err)
		}
		_, err := Start(t.Context(), "a.1", Config{Store: base, Node: "a", TTL: ttl, Clock: Bubble{}})
		if err == nil || !strings.Contains(err.Error(), "b.1") {
			t.Error(err)
		}
	})
}

func TestACloseIsNoFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		var ends []time.Duration
		l, err := Start(t.Context(), "a.1", Config{Store: base, Node: "a", TTL: ttl, Clock: Bubble{},
			Exit:     func(int) { t.Error("it ended the process") },
			Deadline: func(d time.Duration) { ends = append(ends, d) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(t.Context()); err != nil || l.Authority() == nil {
			t.Error(err, l.Authority())
		}
		if last := ends[len(ends)-1]; last != 0 {
			t.Errorf("the watchdog still watches: %v", last)
		}
		if lease, err := sessionsOf(base, "b.1").Lease(t.Context(), "a.1"); lease.Live || err != nil {
			t.Errorf("%+v, %v", lease, err)
		}
		time.Sleep(3 * ttl)
	})
}

// A record that claims to hold for an hour is believed for a TTL.
func TestAForeignClockProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		r := Record{Node: "x", Session: "x.1", State: Open, TTLMS: ttl.Milliseconds(), ExpiresMS: time.Now().Add(time.Hour).UnixMilli()}
		if _, err := bucket.CreateRecord(t.Context(), base, Key("x.1"), r); err != nil {
			t.Fatal(err)
		}
		s := sessionsOf(base, "b.1")
		l, err := s.Lease(t.Context(), "x.1")
		if err != nil || !l.Live || time.Until(l.Deadline) > ttl+Skew {
			t.Errorf("%+v, %v", l, err)
		}
		time.Sleep(ttl + Skew)
		if err := s.Seal(t.Context(), "x.1"); err != nil {
			t.Error(err)
		}
	})
}

// A node that was killed while it recovered another does not wait for itself.
func TestThePredecessorsClaimIsTakenOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		x := withLog(t, base)
		if _, err := NewSessions(base, "b.1", Bubble{}, &logs{}).claim(t.Context(), mustRead(t, base, x)); err != nil {
			t.Fatal(err)
		}
		s := NewSessions(base, "b.2", Bubble{}, &logs{})
		s.Gone("b.1")
		began := time.Now()
		if err := s.Seal(t.Context(), x); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A claim whose reply was lost is the recovery's own, not another recoverer's.
func TestARecoveryKnowsItsOwnClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty.New(mem.New())
		x := withLog(t, store)
		l := &logs{took: 3 * ttl}
		store.Add(faulty.Rule{Op: faulty.Swap, Skip: 1, Times: 2, After: faulty.ErrLost})
		store.Add(faulty.Rule{Op: faulty.Get, Skip: 1, Times: 8, Before: cut})
		if err := NewSessions(store, "b.1", Bubble{}, l).Seal(t.Context(), x); err != nil {
			t.Error(err)
		}
		if l.runs != 1 {
			t.Errorf("%d recoveries", l.runs)
		}
	})
}

func mustRead(t *testing.T, s bucket.Store, x id.Session) *stored {
	t.Helper()
	rec, err := bucket.ReadRecord[Record](t.Context(), s, Key(x))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestOldSealedRecordsAreSweptAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		put := func(x id.Session, state State) {
			if _, err := bucket.CreateRecord(t.Context(), base, Key(x), Record{Node: x.Node(), Session: x, State: state}); err != nil {
				t.Fatal(err)
			}
		}
		put("old.1", Sealed)
		put("open.1", Open)
		time.Sleep(retention)
		put("new.1", Sealed)
		s := sessionsOf(base, "b.1")
		if n, err := s.Sweep(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		left, err := s.List(t.Context())
		if err != nil || len(left) != 2 || left[0].Session != "new.1" || left[1].Session != "open.1" {
			t.Errorf("%+v, %v", left, err)
		}
		// The cells of a session whose record was deleted can still be taken.
		if err := s.Seal(t.Context(), "old.1"); err != nil {
			t.Error(err)
		}
	})
}

func TestOneBadRecordHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "z", Bubble{})
		base.Put(t.Context(), "nodes/a/a.1.json", []byte("hello"))
		base.Put(t.Context(), "nodes/b/b.1.json", []byte(`{"v":1,"nonce":"x","session":"c.1"}`))
		infos, err := sessionsOf(base, "y.1").List(t.Context())
		if len(infos) != 1 || infos[0].Session != n.l.Session() || !infos[0].Live {
			t.Errorf("%+v", infos)
		}
		if !errors.Is(err, bucket.ErrCorruptRecord) || !strings.Contains(err.Error(), "a.1") || !strings.Contains(err.Error(), "c.1") {
			t.Error(err)
		}
	})
}

// Every request that is about a lease is one line on target store, and none if that is off.
func TestLeaseRequestsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		var b bytes.Buffer
		s := sessionsOf(base, "b.1")
		s.wire = slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s.Lease(t.Context(), "gone.1")
		s.Seal(t.Context(), "gone.1")
		s.Lease(t.Context(), "gone.1")
		for _, want := range []string{
			"event=node_lease_read outcome=missing key=nodes/gone/gone.1.json",
			"event=node_lease_write outcome=applied key=nodes/gone/gone.1.json",
			"event=node_lease_read outcome=found",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	})
	off := slog.New(slog.DiscardHandler)
	if n := testing.AllocsPerRun(100, func() { logWrite(off, "a.1", 1, time.Time{}, nil); logRead(off, "a.1", time.Time{}, nil) }); n != 0 {
		t.Errorf("%v allocations while the target is off", n)
	}
}

// Two nodes that take the same session for dead: one seals, both go on.
func TestTwoRecoverersWithoutALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "a", Bubble{})
		n.store.Add(faulty.Rule{Op: faulty.Swap, Before: cut})
		time.Sleep(2 * ttl)
		done := make(chan error)
		for _, self := range []id.Session{"b.1", "c.1"} {
			slow := faulty.New(base)
			slow.Add(faulty.Rule{Delay: 10 * time.Millisecond})
			go func() { done <- sessionsOf(slow, self).Seal(t.Context(), n.l.Session()) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if r := mustRead(t, base, n.l.Session()); r.Value.State != Sealed {
			t.Errorf("%+v", r.Value)
		}
	})
}

// The renewal that comes between the look and the claim wins.
func TestARenewalBeatsAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := mem.New()
		n := begin(t, base, "a", Bubble{})
		ahead := &skewed{}
		ahead.move(2*ttl, 0) // this judge's wall clock takes everybody for dead
		store := faulty.New(base)
		store.Add(faulty.Rule{Op: faulty.Get, Times: 1, Hook: func(string) {
			n.l.Update(context.Background(), func(*Record) {})
		}})
		s := NewSessions(store, "b.1", ahead, nil)
		err := s.sealOnce(t.Context(), n.l.Session())
		if !errors.Is(err, errChanged) {
			t.Error(err)
		}
		ahead.move(-2*ttl, 0)
		err = s.Seal(t.Context(), n.l.Session())
		if !errors.Is(err, owner.ErrLives) {
			t.Error(err)
		}
		if n.l.Authority() != nil {
			t.Error("the session that renewed is fenced")
		}
	})
}
