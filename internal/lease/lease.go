package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"celld/internal/bucket"
	"celld/internal/call"
	"celld/internal/id"
)

const (
	// maxAttempt and minAttempt bound one write; an attempt takes at most half of what is left.
	maxAttempt = 2500 * time.Millisecond
	minAttempt = 250 * time.Millisecond
	// retryPause is how long a failed renewal waits before the next try, at most; jitter shortens it.
	retryPause = 300 * time.Millisecond
)

// Config is what a lease is made from.
type Config struct {
	Store   bucket.Store // with connections of its own, so that uploads cannot starve a renewal
	Node    id.Node
	Address string
	Zone    string
	TTL     time.Duration
	// Protocol of the tunnel.
	Protocol Protocol
	Clock    Clock // nil: the machine's
	// Load is sampled at each renewal.
	Load func() Load
	Log  *slog.Logger // lines about the lease
	Wire *slog.Logger // one line for each request, at debug
	// Fenced stops the node: cells, callers, listeners. It must return soon, and is
	// given up after fenceBudget.
	Fenced func(Event)
	// Exit ends the process; nil: os.Exit.
	Exit func(code int)
	// Deadline is told each new end of the lease on the boot clock, for a watchdog.
	Deadline func(time.Duration)
}

// NewSession names a run of a node.
func NewSession(n id.Node) id.Session { return id.Session(string(n) + "." + ulid.Make().String()) }

// Lease is this session's right to act.
type Lease struct {
	cfg     Config
	session id.Session

	wall atomic.Int64 // published expiry, unix milliseconds
	boot atomic.Int64 // the same instant on the boot clock, nanoseconds
	dead atomic.Bool  // fenced or closed

	rec     *stored // of the loop alone
	updates chan update
	stop    context.CancelFunc
	done    chan struct{}
	fencing sync.Once
	fenced  chan struct{}
}

// update changes the record out of turn.
type update struct {
	change func(*Record)
	done   chan error
}

// Start takes the lease of a new session. It tries until ctx ends; a bucket that
// does not answer delays a node, and does not end it.
func Start(ctx context.Context, session id.Session, cfg Config) (*Lease, error) {
	if cfg.Clock == nil {
		cfg.Clock = System{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Wire == nil {
		cfg.Wire = slog.New(slog.DiscardHandler)
	}
	l := &Lease{cfg: cfg, session: session, updates: make(chan update), done: make(chan struct{}), fenced: make(chan struct{})}
	for !l.create(ctx) {
		select {
		case <-time.After(pause()):
		case <-ctx.Done():
			return nil, fmt.Errorf("no lease: %w", context.Cause(ctx))
		}
	}
	run, stop := context.WithCancel(context.Background())
	l.stop = stop
	go l.run(run)
	return l, nil
}

// Session of this lease.
func (l *Lease) Session() id.Session { return l.session }

// ErrExpired: the lease is over, whether or not the fence has been executed yet.
var ErrExpired = fmt.Errorf("the node lease has expired: %w", call.ErrFenced)

// Authority is nil while the lease holds on both clocks.
func (l *Lease) Authority() error {
	if l.dead.Load() || l.cfg.Clock.Wall().UnixMilli() >= l.wall.Load() || int64(l.cfg.Clock.Boot()) >= l.boot.Load() {
		return ErrExpired
	}
	return nil
}

// Left is how long the lease holds.
func (l *Lease) Left() time.Duration { return time.Duration(l.boot.Load()) - l.cfg.Clock.Boot() }

// Fenced is closed when the session has fenced itself.
func (l *Lease) Fenced() <-chan struct{} { return l.fenced }

func pause() time.Duration { return retryPause/2 + rand.N(retryPause/2) }

// next is the record to write now, and the instant it is anchored at.
func (l *Lease) next(old Record) (Record, time.Duration) {
	wall, boot := l.cfg.Clock.Wall(), l.cfg.Clock.Boot()
	old.ExpiresMS = wall.Add(l.cfg.TTL).UnixMilli()
	old.Generation++
	if l.cfg.Load != nil {
		old.Load = l.cfg.Load()
		old.Load.SampledMS = wall.UnixMilli()
	}
	return old, boot
}

func (l *Lease) create(ctx context.Context) bool {
	r, boot := l.next(Record{Node: l.cfg.Node, Session: l.session, Address: l.cfg.Address, Zone: l.cfg.Zone, Protocol: l.cfg.Protocol,
		TTLMS: l.cfg.TTL.Milliseconds(), State: Open})
	attempt, cancel := context.WithTimeout(ctx, maxAttempt)
	defer cancel()
	rec, err := bucket.CreateRecord(attempt, l.cfg.Store, Key(l.session), r)
	if errors.Is(err, bucket.ErrPrecondition) && rec != nil && rec.Value.Session == l.session {
		// An earlier attempt landed after all: nobody else writes this key. Go on from it.
		r, boot = l.next(rec.Value)
		rec, err = bucket.SwapRecord(attempt, l.cfg.Store, Key(l.session), rec, r)
	}
	l.wire("node_lease_write", outcome(err), err)
	if err != nil {
		l.cfg.Log.Warn("no lease yet, trying on", "event", "node_lease_attempt", "err", err)
		return false
	}
	l.publish(rec, boot)
	return l.Authority() == nil // one that landed when it had expired is tried again
}

// publish makes the new expiry count.
func (l *Lease) publish(rec *stored, boot time.Duration) {
	l.rec = rec
	end := boot + l.cfg.TTL
	l.wall.Store(rec.Value.ExpiresMS)
	l.boot.Store(int64(end))
	if l.cfg.Deadline != nil {
		l.cfg.Deadline(end)
	}
}

// run is the one goroutine that writes the record.
func (l *Lease) run(ctx context.Context) {
	defer close(l.done)
	next := time.NewTimer(l.cfg.TTL / 3)
	defer next.Stop()
	var waiting []update
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case u := <-l.updates:
			waiting = append(waiting, u)
		}
		switch done, event, err := l.renew(ctx, waiting); {
		case event != "":
			settleAll(waiting, call.ErrFenced)
			l.Fence(event, err)
			return
		case done:
			settleAll(waiting, nil)
			waiting = nil
			next.Reset(l.cfg.TTL / 3)
		default:
			if !stillWanted(waiting) {
				waiting = nil
			}
			next.Reset(min(pause(), max(l.Left(), time.Millisecond)))
		}
	}
}

func stillWanted(us []update) bool { return len(us) > 0 }

func settleAll(us []update, err error) {
	for _, u := range us {
		u.done <- err
	}
}

// renew makes one attempt. event names why the session must fence.
func (l *Lease) renew(ctx context.Context, us []update) (done bool, event Event, err error) {
	if l.Authority() != nil {
		return false, Expired, fmt.Errorf("no renewal succeeded before %s", time.UnixMilli(l.wall.Load()).UTC().Format(time.RFC3339Nano))
	}
	attempt, cancel := context.WithTimeout(ctx, min(max(l.Left()/2, minAttempt), maxAttempt))
	defer cancel()
	r, boot := l.next(l.rec.Value)
	for _, u := range us {
		u.change(&r)
	}
	rec, err := bucket.SwapRecord(attempt, l.cfg.Store, Key(l.session), l.rec, r)
	l.wire("node_lease_write", outcome(err), err)
	switch {
	case err == nil && l.Authority() != nil:
		return false, Expired, errors.New("the renewal landed after the expiry of the lease before it")
	case err == nil:
		l.publish(rec, boot)
		return true, "", nil
	case errors.Is(err, bucket.ErrPrecondition):
		return l.rejected(ctx, rec)
	}
	l.cfg.Log.Warn("lease not renewed, trying on", "event", "node_lease_attempt", "left", l.Left(), "err", err)
	return false, "", nil
}

// rejected finds out whether the record is gone or another's.
func (l *Lease) rejected(ctx context.Context, standing *stored) (bool, Event, error) {
	if standing != nil {
		return false, Mismatch, fmt.Errorf("%s now says state %s, generation %d; this session wrote generation %d", Key(l.session), standing.Value.State, standing.Value.Generation, l.rec.Value.Generation)
	}
	attempt, cancel := context.WithTimeout(ctx, maxAttempt)
	defer cancel()
	_, err := bucket.ReadRecord[Record](attempt, l.cfg.Store, Key(l.session))
	l.wire("node_lease_read", readOutcome(err), err)
	if errors.Is(err, bucket.ErrNotFound) {
		return false, Missing, fmt.Errorf("%s is gone from %s", Key(l.session), l.cfg.Store)
	}
	return false, Mismatch, fmt.Errorf("%s is not what this session wrote", Key(l.session))
}

// Update changes the record beside the lease, in a renewal of its own; it
// returns when that was applied.
func (l *Lease) Update(ctx context.Context, change func(*Record)) error {
	u := update{change, make(chan error, 1)}
	select {
	case l.updates <- u:
	case <-l.done:
		return call.ErrFenced
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-u.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the session for good: others need not wait for its lease. What its
// log holds must be in the bucket by then.
func (l *Lease) Close(ctx context.Context) error {
	err := l.Update(ctx, func(r *Record) {
		r.State, r.ExpiresMS, r.Active = Sealed, l.cfg.Clock.Wall().UnixMilli(), false
	})
	l.dead.Store(true)
	l.stop()
	<-l.done
	return err
}

func (l *Lease) wire(event, outcome string, err error) {
	if !l.cfg.Wire.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	l.cfg.Wire.Debug(event, "event", event, "key", Key(l.session), "outcome", outcome, "err", err)
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "applied"
	case errors.Is(err, bucket.ErrPrecondition):
		return "rejected"
	}
	return "error"
}

func readOutcome(err error) string {
	switch {
	case err == nil:
		return "found"
	case errors.Is(err, bucket.ErrNotFound):
		return "missing"
	}
	return "error"
}
