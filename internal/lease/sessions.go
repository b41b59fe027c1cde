package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	return &Sessions{store: store, self: self, clock: clock, logs: logs, seen: map[id.Session]sighting{}, gone: map[id.Session]bool{}}
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
	rec, err := bucket.ReadRecord[Record](ctx, s.store, Key(x))
	if err != nil {
		return nil, err
	}
	return rec, nil
}

// judge tells whether the session of a record lives: it is open, its published
// expiry plus a margin has not passed, and the record changed within a TTL of ours.
func (s *Sessions) judge(rec *stored) owner.Lease {
	r := rec.Value
	if r.State != Open || s.isGone(r.Session) {
		return owner.Lease{}
	}
	left := time.UnixMilli(r.ExpiresMS).Add(Skew).Sub(s.clock.Wall())
	if stale := s.unchanged(rec); stale > 0 {
		left = min(left, time.Duration(r.TTLMS)*time.Millisecond+Skew-stale)
	}
	return owner.Lease{Live: left > 0, Deadline: time.Now().Add(left), Address: r.Address}
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
		rec, err := s.read(ctx, x)
		switch {
		case errors.Is(err, bucket.ErrNotFound):
			rec, err = s.claimMissing(ctx, x)
		case err != nil:
		case rec.Value.State == Sealed:
			return nil
		case rec.Value.State == Recovering && s.recovererLives(rec):
			// Somebody is at it: wait for the record to change, or to stop changing.
			if err := sleep(ctx, ttlOf(rec)/10); err != nil {
				return err
			}
			continue
		case rec.Value.State == Open && s.judge(rec).Live:
			return owner.ErrLives
		default:
			rec, err = s.claim(ctx, rec)
		}
		if errors.Is(err, bucket.ErrPrecondition) {
			continue // it was renewed, claimed or sealed meanwhile: look again
		}
		if err != nil {
			return fmt.Errorf("seal session %s: %w", x, err)
		}
		return s.finish(ctx, rec)
	}
}

func ttlOf(rec *stored) time.Duration {
	return max(time.Duration(rec.Value.TTLMS)*time.Millisecond, time.Second)
}

// recovererLives judges by the record's own changes, never by a foreign clock.
func (s *Sessions) recovererLives(rec *stored) bool {
	c := rec.Value.Recoverer
	if c == nil || c.Session == s.self {
		return false
	}
	return s.unchanged(rec) < ttlOf(rec)
}

// claim moves the record to recovering in this session's name. From there on x
// cannot renew. Losing to a renewal means that x lives.
func (s *Sessions) claim(ctx context.Context, rec *stored) (*stored, error) {
	r := rec.Value
	r.State, r.Recoverer = Recovering, &Claim{s.self, rand.Text()}
	return bucket.SwapRecord(ctx, s.store, Key(r.Session), rec, r)
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
	return bucket.CreateRecord(ctx, s.store, Key(x), r)
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
	_, err := bucket.SwapRecord(ctx, s.store, Key(r.Session), rec, r)
	if errors.Is(err, bucket.ErrPrecondition) {
		return fmt.Errorf("session %s was claimed by another recoverer: %w", r.Session, err)
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
			fresh, err := s.claim(ctx, *rec)
			if errors.Is(err, bucket.ErrPrecondition) {
				cancel()
				<-done
				return fmt.Errorf("session %s was claimed by another recoverer: %w", (*rec).Value.Session, err)
			}
			if err == nil {
				*rec = fresh
			}
		}
	}
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

// Info is one session as an operator sees it.
type Info struct {
	Record
	Live bool
	Left time.Duration
}

// List reads every session record.
func (s *Sessions) List(ctx context.Context) ([]Info, error) {
	var out []Info
	for o, err := range s.store.List(ctx, "nodes/", "") {
		if err != nil {
			return nil, err
		}
		rec, err := bucket.ReadRecord[Record](ctx, s.store, o.Key)
		if errors.Is(err, bucket.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.Key, err)
		}
		j := s.judge(rec)
		out = append(out, Info{rec.Value, j.Live, time.Until(j.Deadline)})
	}
	return out, nil
}
