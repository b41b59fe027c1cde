package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/internal/bucket"
	"celld/internal/call"
	"celld/internal/id"
)

const (
	// maxUnclear bounds the write attempts of one Acquire that ended in an
	// error; then the error is the caller's. Attempts lost to another node do
	// not count: each is somebody's progress, and the context bounds them.
	maxUnclear = 5
	// firstPause and lastPause bound the doubling wait between attempts.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Sessions is what ownership must know about other sessions.
type Sessions interface {
	// Lease reads what a session may still do.
	Lease(ctx context.Context, s id.Session) (Lease, error)
	// Seal makes every later proof of s impossible and its acknowledged tail
	// visible in the bucket. ErrLives: s renewed meanwhile, nothing was sealed.
	Seal(ctx context.Context, s id.Session) error
}

// Lease is the judgement about a session's lease.
type Lease struct {
	Live bool
	// Deadline is when it ends as far as this node has seen, on this node's clock.
	Deadline time.Time
	// Address is the session's newest address, or "" to use the ownership record's.
	Address string
}

// ErrLives: a session that looked dead renewed its lease before it was sealed.
var ErrLives = errors.New("the session lives")

// Remote is the answer of Acquire when another live session owns the cell.
type Remote struct {
	Cell     id.Cell
	Session  id.Session
	Node     id.Node
	Address  string
	Epoch    id.Epoch
	Deadline time.Time // the end of the owner's lease as it was seen
}

func (r *Remote) Error() string {
	return fmt.Sprintf("cell %s is owned by %s at epoch %d (%s)", r.Cell, r.Session, r.Epoch, r.Address)
}

// Unwrap: no handler ran here.
func (r *Remote) Unwrap() error { return call.ErrNotStarted }

// Superseded: the record does not name the session and epoch that asked.
type Superseded struct {
	Cell    id.Cell
	Session id.Session
	Epoch   id.Epoch
	Now     Record // zero: the record is gone
}

func (s *Superseded) Error() string {
	if s.Now.Session == "" {
		return fmt.Sprintf("cell %s is no longer owned by %s at epoch %d: its ownership record is gone", s.Cell, s.Session, s.Epoch)
	}
	return fmt.Sprintf("cell %s is no longer owned by %s at epoch %d: the record names %s at epoch %d (%s)",
		s.Cell, s.Session, s.Epoch, s.Now.Session, s.Now.Epoch, s.Now.State)
}

// Self is the session that acquires.
type Self struct {
	Session id.Session
	Node    id.Node
	Address string
}

// Records reads and writes the ownership records of a fleet for one session.
type Records struct {
	store    bucket.Store
	self     Self
	sessions Sessions
}

// New makes the Records of the session self.
func New(store bucket.Store, self Self, sessions Sessions) *Records {
	return &Records{store: store, self: self, sessions: sessions}
}

// Self is the session that acquires.
func (r *Records) Self() Self { return r.self }

// Held is a cell that this session owns.
type Held struct {
	Epoch id.Epoch
	// Before is whose the cell was; zero if it is new.
	Before Record
}

// Acquire makes this session the owner of cell, at an epoch that no activation
// had before. If another live session owns it, the error is a *Remote. likely is
// a guess who the owner is, or "": its lease is then read beside the record
// instead of after it.
func (r *Records) Acquire(ctx context.Context, cell id.Cell, likely id.Session) (Held, error) {
	a := attempt{Records: r, cell: cell, likely: likely}
	for {
		held, err := a.once(ctx)
		if !errors.Is(err, errAgain) {
			return held, err
		}
		if a.pause(ctx) != nil {
			return Held{}, fmt.Errorf("acquire %s: %w (last: %v)", cell, context.Cause(ctx), a.last)
		}
	}
}

// errAgain: the record must be read again.
var errAgain = errors.New("read the record again")

// attempt is one Acquire on its way.
type attempt struct {
	*Records
	cell   id.Cell
	likely id.Session

	unclear int // writes that ended in an error
	rounds  int
	last    error // the newest reason to go round again
}

// once reads the record, decides, and tries one write.
func (a *attempt) once(ctx context.Context) (Held, error) {
	ahead := a.readAhead(ctx)
	defer ahead.stop()
	now, err := read(ctx, a.store, a.cell)
	if errors.Is(err, bucket.ErrNotFound) {
		return a.write(ctx, nil)
	}
	if err != nil {
		return Held{}, fmt.Errorf("acquire %s: %w", a.cell, err)
	}
	rec := now.Value
	if rec.State == Released || rec.Session == a.self.Session {
		return a.write(ctx, now)
	}
	lease, err := a.lease(ctx, rec.Session, ahead)
	if err != nil {
		return Held{}, fmt.Errorf("acquire %s: read the lease of %s: %w", a.cell, rec.Session, err)
	}
	if lease.Live {
		return Held{}, a.remote(rec, lease)
	}
	// Seal before the write: a crash between the two leaves nothing to remember.
	err = a.sessions.Seal(ctx, rec.Session)
	if errors.Is(err, ErrLives) {
		return Held{}, a.again(err)
	}
	if err != nil {
		return Held{}, fmt.Errorf("acquire %s: seal %s: %w", a.cell, rec.Session, err)
	}
	return a.write(ctx, now)
}

// write tries to make this session the owner after old, nil if there is none.
func (a *attempt) write(ctx context.Context, old *stored) (Held, error) {
	var before Record
	if old != nil {
		before = old.Value
	}
	mine := a.record(before.Epoch+1, Owned)
	err := a.put(ctx, a.cell, old, mine)
	switch bucket.OutcomeOf(err) {
	case bucket.Applied:
		return Held{Epoch: mine.Epoch, Before: before}, nil
	case bucket.Rejected:
		return Held{}, a.again(err)
	}
	if a.unclear++; a.unclear >= maxUnclear {
		return Held{}, fmt.Errorf("acquire %s: %w", a.cell, err)
	}
	return Held{}, a.again(err)
}

// put writes one record; the error is settled by reading as far as that can be.
func (r *Records) put(ctx context.Context, cell id.Cell, old *stored, rec Record) (err error) {
	if old == nil {
		_, err = bucket.CreateRecord(ctx, r.store, Key(cell), rec)
	} else {
		_, err = bucket.SwapRecord(ctx, r.store, Key(cell), old, rec)
	}
	return err
}

func (r *Records) record(epoch id.Epoch, state State) Record {
	return Record{Session: r.self.Session, Node: r.self.Node, Address: r.self.Address, Epoch: epoch, State: state}
}

func (a *attempt) again(why error) error {
	a.last = why
	return errAgain
}

// pause spaces the rounds out; the first ones follow at once.
func (a *attempt) pause(ctx context.Context) error {
	a.rounds++
	if a.rounds <= 2 {
		return ctx.Err()
	}
	t := time.NewTimer(min(firstPause<<min(a.rounds-3, 10), lastPause))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *attempt) remote(rec Record, lease Lease) *Remote {
	address := lease.Address
	if address == "" {
		address = rec.Address
	}
	return &Remote{
		Cell: a.cell, Session: rec.Session, Node: rec.Node, Address: address,
		Epoch: rec.Epoch, Deadline: lease.Deadline,
	}
}

// early is a lease that was read beside the ownership record.
type early struct {
	session id.Session
	cancel  context.CancelFunc
	done    chan struct{}
	lease   Lease
	err     error
}

// readAhead starts to read the lease of the likely owner.
func (a *attempt) readAhead(ctx context.Context) *early {
	if a.likely == "" || a.likely == a.self.Session {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &early{session: a.likely, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.lease, e.err = a.sessions.Lease(ctx, e.session)
	}()
	return e
}

// stop ends a read that nobody needs any more and waits for its end.
func (e *early) stop() {
	if e != nil {
		e.cancel()
		<-e.done
	}
}

// lease takes the lease that was read ahead if the guess was right.
func (a *attempt) lease(ctx context.Context, s id.Session, ahead *early) (Lease, error) {
	a.likely = "" // the guess was for the first round
	if ahead == nil || ahead.session != s {
		return a.sessions.Lease(ctx, s)
	}
	<-ahead.done
	return ahead.lease, ahead.err
}

// Verify reads the record and compares it, not a clock. Nil means that at some
// moment after Verify was called this session owned cell at epoch. *Superseded means
// that it does not; any other error proves nothing.
func (r *Records) Verify(ctx context.Context, cell id.Cell, epoch id.Epoch) error {
	rec, err := read(ctx, r.store, cell)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		return &Superseded{Cell: cell, Session: r.self.Session, Epoch: epoch}
	case err != nil:
		return err
	case !rec.Value.names(r.self.Session, epoch):
		return &Superseded{Cell: cell, Session: r.self.Session, Epoch: epoch, Now: rec.Value}
	}
	return nil
}

// Release marks the record released. The caller has proven in the bucket
// everything that the cell acknowledged, and never serves epoch again, whatever
// the result: a lost reply may hide a success. A record that is someone else's by
// now is left alone, which is no error.
func (r *Records) Release(ctx context.Context, cell id.Cell, epoch id.Epoch) error {
	for try := 1; ; try++ {
		now, err := read(ctx, r.store, cell)
		if errors.Is(err, bucket.ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("release %s: %w", cell, err)
		}
		if !now.Value.names(r.self.Session, epoch) {
			return nil
		}
		err = r.put(ctx, cell, now, r.record(epoch, Released))
		if err == nil {
			return nil
		}
		if try >= maxUnclear {
			return fmt.Errorf("release %s: %w", cell, err)
		}
	}
}
