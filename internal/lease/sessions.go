package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"celld/internal/bucket"
	"celld/internal/id"
	"celld/internal/owner"
)

// Skew is how far another node's clock may be ahead of this one's before its
// lease is taken for over too early.
const Skew = 500 * time.Millisecond

// LogRecoverer brings the acknowledged tail of a dead session's log back into
// the bucket. internal/nodelog is the product's; without one no session may have a
// log, and there is nothing to bring back.
type LogRecoverer interface {
	// Recover is called with the record claimed. It seals every member it can
	// reach and uploads what the log holds; an error leaves the session unsealed.
	Recover(ctx context.Context, r Record) error
	// Lost looks for a log of a session whose record is missing; nil, nil: there is none.
	Lost(ctx context.Context, s id.Session) (*Record, error)
}

// Sessions judges and seals other sessions. It implements owner.Sessions.
type Sessions struct {
	store bucket.Store
	self  id.Session
	clock Clock
	logs  LogRecoverer
	wire  *slog.Logger

	mu    sync.Mutex
	seen  map[id.Session]sighting
	gone  map[id.Session]bool // known to be dead by other means
	seals singleflight.Group
}

// sighting is when a record was first seen as it is.
type sighting struct {
	nonce string
	at    time.Time // on this process's monotonic clock
}

// NewSessions makes the judge. logs may be nil.
func NewSessions(store bucket.Store, self id.Session, clock Clock, logs LogRecoverer) *Sessions {
	if clock == nil {
		clock = System{}
	}
	return &Sessions{store: store, self: self, clock: clock, logs: logs, wire: wireLog(), seen: map[id.Session]sighting{}, gone: map[id.Session]bool{}}
}

// Gone notes that a session is known to be dead: its process held the lock of
// this node's work directory, which this process holds now.
func (s *Sessions) Gone(dead id.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[dead] = true
}

func (s *Sessions) isGone(x id.Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[x]
}

// Lease is what a session may still do.
func (s *Sessions) Lease(ctx context.Context, x id.Session) (owner.Lease, error) {
	rec, err := s.read(ctx, x)
	if errors.Is(err, bucket.ErrNotFound) {
		return owner.Lease{}, nil
	}
	if err != nil {
		return owner.Lease{}, err
	}
	return s.judge(rec), nil
}

func (s *Sessions) read(ctx context.Context, x id.Session) (*stored, error) {
	began := time.Now()
	rec, err := bucket.ReadRecord[Record](ctx, s.store, Key(x))
	logRead(s.wire, x, began, err)
	if err != nil {
		return nil, err
	}
	if rec.Value.Session != x {
		return nil, fmt.Errorf("%w: %s is about session %q", bucket.ErrCorruptRecord, Key(x), rec.Value.Session)
	}
	return rec, nil
}

// write replaces old, nil if there is none.
func (s *Sessions) write(ctx context.Context, old *stored, r Record) (rec *stored, err error) {
	began := time.Now()
	if old == nil {
		rec, err = bucket.CreateRecord(ctx, s.store, Key(r.Session), r)
	} else {
		rec, err = bucket.SwapRecord(ctx, s.store, Key(r.Session), old, r)
	}
	logWrite(s.wire, r.Session, r.Generation, began, err)
	return rec, err
}

// judge tells whether the session of a record lives: it is open, its published
// expiry plus a margin has not passed, and the record changed within a TTL of
// ours. So a foreign clock that runs ahead prolongs nothing.
func (s *Sessions) judge(rec *stored) owner.Lease {
	r := rec.Value
	if r.State != Open || s.isGone(r.Session) {
		s.lose(r.Session, r.State == Sealed)
		return owner.Lease{}
	}
	left := min(
		time.UnixMilli(r.ExpiresMS).Add(Skew).Sub(s.clock.Wall()),
		time.Duration(r.TTLMS)*time.Millisecond+Skew-s.unchanged(rec),
	)
	return owner.Lease{Live: left > 0, Deadline: time.Now().Add(left), Address: r.Address}
}

// lose drops what was kept about a session that is over for good.
func (s *Sessions) lose(x id.Session, over bool) {
	if !over {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, x)
	delete(s.gone, x)
}

// unchanged is how long the record has stood as it is, as far as this process saw.
func (s *Sessions) unchanged(rec *stored) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if old, ok := s.seen[rec.Value.Session]; ok && old.nonce == rec.Nonce {
		return now.Sub(old.at)
	}
	s.seen[rec.Value.Session] = sighting{rec.Nonce, now}
	return 0
}

// Seal makes every later proof of x impossible and what it acknowledged visible
// in the bucket (protocol §5). Callers at once share one attempt.
func (s *Sessions) Seal(ctx context.Context, x id.Session) error {
	if x == s.self {
		return errors.New("bug: a session does not seal itself")
	}
	result := s.seals.DoChan(string(x), func() (any, error) { return nil, s.seal(context.WithoutCancel(ctx), x) })
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sealBudget bounds one attempt that nobody waits for any more.
const sealBudget = 5 * time.Minute

func (s *Sessions) seal(ctx context.Context, x id.Session) error {
	ctx, cancel := context.WithTimeout(ctx, sealBudget)
	defer cancel()
	for {
		err := s.sealOnce(ctx, x)
		if errors.Is(err, errChanged) {
			continue // it was renewed, claimed or sealed meanwhile: look again
		}
		if err != nil && !errors.Is(err, owner.ErrLives) {
			return fmt.Errorf("seal session %s: %w", x, err)
		}
		return err
	}
}

// errChanged: the record is not what this attempt went by any more. It says
// nothing of the bucket's own classes, lest one of them pass for this session's.
var errChanged = errors.New("the session's record has changed meanwhile")

func (s *Sessions) sealOnce(ctx context.Context, x id.Session) error {
	rec, err := s.read(ctx, x)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		rec, err = s.claimMissing(ctx, x)
	case err != nil:
		return err
	case rec.Value.State == Sealed:
		s.lose(x, true)
		return nil
	case rec.Value.State == Recovering && s.recovererLives(rec):
		// Somebody is at it: wait for the record to change, or to stop changing.
		if err := sleep(ctx, ttlOf(rec)/10); err != nil {
			return fmt.Errorf("%s: %w", by(rec.Value), err)
		}
		return errChanged
	case rec.Value.State == Open && s.judge(rec).Live:
		return owner.ErrLives
	default:
		rec, err = s.claim(ctx, rec)
	}
	if errors.Is(err, bucket.ErrPrecondition) {
		return errChanged
	}
	if err != nil {
		return err
	}
	return s.finish(ctx, rec)
}

// by tells who ended the session of a record.
func by(r Record) string {
	if r.Recoverer == nil {
		return "itself"
	}
	return fmt.Sprintf("recoverer %s (attempt %s)", r.Recoverer.Session, r.Recoverer.Attempt)
}

func ttlOf(rec *stored) time.Duration {
	return max(time.Duration(rec.Value.TTLMS)*time.Millisecond, time.Second)
}

// recovererLives judges by the record's own changes, never by a foreign clock.
func (s *Sessions) recovererLives(rec *stored) bool {
	c := rec.Value.Recoverer
	if c == nil || c.Session == s.self || s.isGone(c.Session) {
		return false
	}
	return s.unchanged(rec) < ttlOf(rec)
}

// claim moves the record to recovering in this session's name. From there on x
// cannot renew. Losing to a renewal means that x lives.
func (s *Sessions) claim(ctx context.Context, rec *stored) (*stored, error) {
	r := rec.Value
	r.State, r.Recoverer = Recovering, &Claim{s.self, rand.Text()}
	return s.write(ctx, rec, r)
}

// claimMissing stands in for a record that somebody deleted: it proves nothing,
// so the log is looked for among the nodes.
func (s *Sessions) claimMissing(ctx context.Context, x id.Session) (*stored, error) {
	r := Record{Node: x.Node(), Session: x, State: Recovering, Recoverer: &Claim{s.self, rand.Text()}}
	if s.logs != nil {
		found, err := s.logs.Lost(ctx, x)
		if err != nil {
			return nil, err
		}
		if found != nil {
			r.Term, r.Active, r.Members = found.Term, found.Active, found.Members
		}
	}
	return s.write(ctx, nil, r)
}

// finish recovers what the log of a claimed session holds, and seals it.
func (s *Sessions) finish(ctx context.Context, rec *stored) error {
	if rec.Value.Active {
		if s.logs == nil {
			return fmt.Errorf("session %s has a log (term %d) and this node cannot recover one", rec.Value.Session, rec.Value.Term)
		}
		if err := s.recover(ctx, &rec); err != nil {
			return err
		}
	}
	r := rec.Value
	r.State = Sealed
	_, err := s.write(ctx, rec, r)
	if errors.Is(err, bucket.ErrPrecondition) {
		return errChanged // by another recoverer, or a claim of this one that landed late
	}
	if err == nil {
		s.lose(r.Session, true)
	}
	return err
}

// recover runs the recovery and keeps the claim fresh meanwhile.
func (s *Sessions) recover(ctx context.Context, rec **stored) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	claimed := (*rec).Value
	go func() { done <- s.logs.Recover(ctx, claimed) }()
	tick := time.NewTicker(ttlOf(*rec) / 3)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
		fresh, err := s.claim(ctx, *rec)
		if errors.Is(err, bucket.ErrPrecondition) && fresh != nil && s.claimed(fresh) {
			err = nil // an earlier claim of this recovery landed late
		}
		switch {
		case err == nil:
			*rec = fresh
		case errors.Is(err, bucket.ErrPrecondition):
			cancel()
			<-done
			return errChanged
		}
	}
}

// claimed tells that this session is the recoverer. It recovers a session once
// at a time, so any claim in its name is the one under way.
func (s *Sessions) claimed(rec *stored) bool {
	r := rec.Value
	return r.State == Recovering && r.Recoverer != nil && r.Recoverer.Session == s.self
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
