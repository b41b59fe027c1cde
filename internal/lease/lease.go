package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
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

	rec     *stored   // of the loop alone
	pending []attempt // writes after rec that nobody knows the end of; of the loop alone
	updates chan update
	stop    context.CancelFunc
	done    chan struct{}
	fencing atomic.Bool
	fenced  chan struct{}
	ended   chan struct{} // the fence has done all, where Exit returns
}

// attempt is a renewal whose answer never came. It may still land, and is then
// known by its nonce: the record that it makes is this session's own.
type attempt struct {
	nonce string
	boot  time.Duration
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
		cfg.Wire = wireLog()
	}
	l := &Lease{cfg: cfg, session: session, updates: make(chan update), done: make(chan struct{}), fenced: make(chan struct{}), ended: make(chan struct{})}
	for {
		held, err := l.create(ctx)
		if err != nil {
			return nil, err
		}
		if held {
			break
		}
		if sleep(ctx, pause()) != nil {
			return nil, fmt.Errorf("no lease: %w", context.Cause(ctx))
		}
	}
	run, stop := context.WithCancel(context.Background())
	l.stop = stop
	guarded := make(chan struct{})
	go func() {
		defer close(guarded)
		l.guard(run)
	}()
	go func() {
		defer close(l.done)
		l.run(run)
		<-guarded
	}()
	return l, nil
}

// Session of this lease.
func (l *Lease) Session() id.Session { return l.session }

// ErrExpired: the lease is over, whether or not the fence has been executed yet.
var ErrExpired = fmt.Errorf("the node lease has expired: %w", call.ErrFenced)

// Authority is nil while the lease holds on both clocks.
func (l *Lease) Authority() error {
	if l.dead.Load() || l.expired() {
		return ErrExpired
	}
	return nil
}

func (l *Lease) expired() bool {
	return l.cfg.Clock.Wall().UnixMilli() >= l.wall.Load() || int64(l.cfg.Clock.Boot()) >= l.boot.Load()
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

// create makes one attempt to take the lease. An error is final.
func (l *Lease) create(ctx context.Context) (held bool, err error) {
	r, boot := l.next(Record{Node: l.cfg.Node, Session: l.session, Address: l.cfg.Address, Zone: l.cfg.Zone, Protocol: l.cfg.Protocol,
		TTLMS: l.cfg.TTL.Milliseconds(), State: Open})
	limited, cancel := context.WithTimeout(ctx, maxAttempt)
	defer cancel()
	began := time.Now()
	rec, err := bucket.CreateRecord(limited, l.cfg.Store, Key(l.session), r)
	if errors.Is(err, bucket.ErrPrecondition) && rec != nil {
		if rec.Value.State != Open {
			return false, fmt.Errorf("no lease: session %s was ended by %s before it had begun; start again, with a new session", l.session, by(rec.Value))
		}
		// An earlier attempt landed after all: nobody else writes this key. Go on from it.
		r, boot = l.next(rec.Value)
		rec, err = bucket.SwapRecord(limited, l.cfg.Store, Key(l.session), rec, r)
	}
	logWrite(l.cfg.Wire, l.session, r.Generation, began, err)
	if err != nil {
		l.cfg.Log.Warn("no lease yet, trying on", "event", "node_lease_attempt", "err", err)
		return false, nil
	}
	l.publish(rec, boot)
	return l.Authority() == nil, nil // one that landed when it had expired is tried again
}

// publish makes a record that this session wrote count.
func (l *Lease) publish(rec *stored, boot time.Duration) {
	l.rec, l.pending = rec, nil
	end := boot + l.cfg.TTL
	if rec.Value.State != Open { // the session has ended itself: nothing is left to watch
		l.dead.Store(true)
		end = 0
	} else {
		l.wall.Store(rec.Value.ExpiresMS)
		l.boot.Store(int64(end))
	}
	if l.cfg.Deadline != nil {
		l.cfg.Deadline(end)
	}
}

// guard fences at the expiry, though the loop may hang in the bucket's client.
func (l *Lease) guard(ctx context.Context) {
	for {
		if sleep(ctx, max(l.Left(), time.Millisecond)) != nil || l.dead.Load() {
			return
		}
		if l.expired() {
			l.Fence(Expired, l.late())
			return
		}
	}
}

func (l *Lease) late() error {
	return fmt.Errorf("no renewal succeeded before %s", time.UnixMilli(l.wall.Load()).UTC().Format(time.RFC3339Nano))
}

// run is the one goroutine that writes the record.
func (l *Lease) run(ctx context.Context) {
	next := time.NewTimer(l.cfg.TTL / 3)
	defer next.Stop()
	var waiting []update
	defer func() { settleAll(waiting, call.ErrFenced) }()
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
			l.Fence(event, err)
			return
		case done:
			settleAll(waiting, nil)
			waiting = nil
			if l.rec.Value.State != Open {
				return
			}
			next.Reset(l.cfg.TTL / 3)
		default:
			next.Reset(min(pause(), max(l.Left(), time.Millisecond)))
		}
	}
}

func settleAll(us []update, err error) {
	for _, u := range us {
		u.done <- err
	}
}

// renew makes one attempt. event names why the session must fence.
func (l *Lease) renew(ctx context.Context, us []update) (done bool, event Event, err error) {
	if l.Authority() != nil {
		return false, Expired, l.late()
	}
	limited, cancel := context.WithTimeout(ctx, min(max(l.Left()/2, minAttempt), maxAttempt))
	defer cancel()
	r, boot := l.next(l.rec.Value)
	for _, u := range us {
		u.change(&r)
	}
	began := time.Now()
	rec, err := bucket.SwapRecord(limited, l.cfg.Store, Key(l.session), l.rec, r)
	logWrite(l.cfg.Wire, l.session, r.Generation, began, err)
	switch {
	case err == nil && l.Authority() != nil:
		return false, Expired, errors.New("the renewal landed after the expiry of the lease before it")
	case err == nil:
		l.publish(rec, boot)
		return true, "", nil
	case errors.Is(err, bucket.ErrPrecondition):
		return l.rejected(ctx, rec)
	case rec != nil:
		l.pending = append(l.pending, attempt{rec.Nonce, boot})
	}
	l.cfg.Log.Warn("lease not renewed, trying on", "event", "node_lease_attempt", "left", l.Left(), "err", err)
	return false, "", nil
}

// rejected finds out what stands there instead of what this session last knew
// of: an attempt of its own that landed late, somebody else's record, or nothing.
// standing is what the write has seen, if anything.
func (l *Lease) rejected(ctx context.Context, standing *stored) (done bool, event Event, err error) {
	if standing == nil {
		limited, cancel := context.WithTimeout(ctx, maxAttempt)
		defer cancel()
		began := time.Now()
		standing, err = bucket.ReadRecord[Record](limited, l.cfg.Store, Key(l.session))
		logRead(l.cfg.Wire, l.session, began, err)
	}
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		return false, Missing, fmt.Errorf("%s is gone from %s", Key(l.session), l.cfg.Store)
	case errors.Is(err, bucket.ErrCorruptRecord), errors.Is(err, bucket.ErrNewerRecord):
		return false, Mismatch, err
	case err != nil: // a read that fails proves nothing
		l.cfg.Log.Warn("the record has changed and cannot be read, trying on", "event", "node_lease_attempt", "left", l.Left(), "err", err)
		return false, "", nil
	}
	if i := slices.IndexFunc(l.pending, func(a attempt) bool { return a.nonce == standing.Nonce }); i >= 0 {
		if l.Authority() != nil {
			return false, Expired, errors.New("a renewal of its own was found to have landed only after the expiry of the lease before it")
		}
		l.publish(standing, l.pending[i].boot)
		return false, "", nil // this attempt is still to be made
	}
	if standing.Nonce == l.rec.Nonce { // the same content under another version: a copy put back by a store or a hand
		return false, Mismatch, fmt.Errorf("%s holds what this session wrote, but was written again since", Key(l.session))
	}
	return false, Mismatch, fmt.Errorf("%s now says state %s, generation %d; this session wrote generation %d",
		Key(l.session), standing.Value.State, standing.Value.Generation, l.rec.Value.Generation)
}

// Update changes the record beside the lease, in a renewal of its own; it
// returns when that was applied. change may be called more than once.
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
	case err := <-u.done: // also where the loop ends without having applied it
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
