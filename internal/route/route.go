// Package route answers "who serves this cell?": this node, another one, or
// nobody yet. Whoever holds the answer, a call.Service, need not know which.
//
// A call to a cell goes to the local manager (internal/cell), which wakes the
// cell if nobody has it. If another live session owns it the call goes through
// the tunnel (internal/peer), and the route is remembered until the end of the
// lease that was seen with it.
//
// What may be done twice is decided here and nowhere else: a call is made
// again only after proof that no handler ran (call.ErrNotStarted), and only
// while its body is still untouched. Everything else is the caller's to judge. A
// refused or stale route waits until the ownership record shows another session or
// epoch. All of it together takes no longer than the operation deadline.
//
// An owner that is frozen answers nothing: when the lease that was seen runs
// out before a response head has come, ownership is looked at again. If the
// lease was renewed the call goes on waiting; if not it ends with an error.
package route

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/peer"
)

const (
	// firstPause and lastPause bound the doubling wait between two looks.
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// sweepPeriod is how often routes that are over are dropped, at most.
	sweepPeriod = time.Minute
)

// Local is this node's cells.
type Local interface {
	Service(ctx context.Context, c id.Cell, name string) (call.Service, error)
	Owned(c id.Cell) (id.Epoch, bool)
}

// Peers are the other nodes.
type Peers interface {
	Service(address string, t peer.Target) call.Service
	// Forget ends what is under way at a session that is gone.
	Forget(s id.Session)
}

// Config is what a Router is made from.
type Config struct {
	Local Local
	Peers Peers // nil on a node without a fleet
	// Lives tells whether a session still holds its lease, and until when.
	Lives func(ctx context.Context, s id.Session) (deadline time.Time, live bool, err error)
	// Deadline bounds the routing of one call (CELLD_OPERATION_DEADLINE_MS).
	Deadline time.Duration
	// Session is this node's own.
	Session id.Session
	// Authority is asked before a peer's call is let in.
	Authority func() error
}

// Router routes calls to cells.
type Router struct {
	cfg Config

	mu     sync.RWMutex
	remote map[id.Cell]*cell.Remote
	swept  time.Time // when routes that are over were last dropped

	draining atomic.Bool
}

// New makes a router.
func New(cfg Config) *Router { return &Router{cfg: cfg, remote: map[id.Cell]*cell.Remote{}} }

// SetDraining makes the router tell peers that it refuses because it drains.
func (r *Router) SetDraining() { r.draining.Store(true) }

// Cell is the cell as something that can be called. Nothing happens before a call.
func (r *Router) Cell(_ context.Context, c id.Cell, name string) call.Service {
	return &routed{r, c, name}
}

type routed struct {
	r    *Router
	cell id.Cell
	name string
}

func (t *routed) Fetch(ctx context.Context, req *call.Request) (*call.Response, error) {
	body := watch(req)
	var resp *call.Response
	err := t.r.call(ctx, t.cell, t.name, body.untouched, func(ctx context.Context, s call.Service, release func()) (err error) {
		if resp, err = s.Fetch(ctx, req); err == nil {
			holdResponse(resp, release)
		}
		return err
	})
	return resp, err
}

func (t *routed) RPC(ctx context.Context) (call.Pipe, error) {
	var p call.Pipe
	err := t.r.call(ctx, t.cell, t.name, func() bool { return true }, func(ctx context.Context, s call.Service, release func()) (err error) {
		if p, err = s.RPC(ctx); err == nil && release != nil {
			p = &heldPipe{p, release}
		}
		return err
	})
	return p, err
}

// do makes the call at whoever was found. Unless release is nil, it is to be
// called when nothing of the answer needs the context any more.
type do func(_ context.Context, _ call.Service, release func()) error

// call makes a call until it was started once, or the deadline has passed. again
// tells whether it can still be made another time.
func (r *Router) call(ctx context.Context, c id.Cell, name string, again func() bool, do do) error {
	t := attempts{Router: r, cell: c, name: name, end: time.Now().Add(r.cfg.Deadline), wait: firstPause}
	for {
		err := t.once(ctx, do)
		if err == nil || !repeatable(err) || !again() {
			return err
		}
		if err := t.pause(ctx, err); err != nil {
			return err
		}
	}
}

// repeatable: no handler ran, and another attempt may do better. A node that
// has lost its authority will not get it back, and overload is an answer.
func repeatable(err error) bool {
	return errors.Is(err, call.ErrNotStarted) && !errors.Is(err, call.ErrOverloaded) && !errors.Is(err, call.ErrFenced)
}

// attempts are the attempts to route one call.
type attempts struct {
	*Router
	cell id.Cell
	name string
	end  time.Time
	wait time.Duration
	// refused is the owner that said it is not. It is not asked again: the
	// ownership record must name another session or epoch first.
	refused *cell.Remote
}

// once makes one attempt: at the owner that is known, else wherever the
// ownership record says.
func (t *attempts) once(ctx context.Context, do do) error {
	remote := t.known(t.cell)
	if remote == nil {
		s, err := t.look(ctx)
		if err == nil {
			return do(ctx, s, nil)
		}
		if !errors.As(err, &remote) || t.cfg.Peers == nil {
			return err
		}
		if same(remote, t.refused) {
			return fmt.Errorf("its owner %s says that it does not own it at epoch %d, and the ownership record still says so: %w", remote.Session, remote.Epoch, call.ErrNotStarted)
		}
		t.remember(t.cell, remote)
	}
	err := t.there(ctx, t.cell, t.name, remote, do)
	if err != nil && repeatable(err) {
		t.forget(t.cell, remote)
		if disowned(err) {
			t.refused = remote
		}
	}
	return err
}

// look asks this node's cells: it has the cell, or wakes it, or learns who has it.
func (t *attempts) look(ctx context.Context) (call.Service, error) {
	limited, cancel := context.WithDeadline(ctx, t.end)
	defer cancel()
	return t.cfg.Local.Service(limited, t.cell, t.name)
}

// pause spaces the attempts out, and says when there can be no more.
func (t *attempts) pause(ctx context.Context, last error) error {
	if time.Now().Add(t.wait).After(t.end) {
		return fmt.Errorf("cell %s could not be reached within %v: %w", t.cell, t.cfg.Deadline, last)
	}
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.wait = min(2*t.wait, lastPause)
	return nil
}

func same(a, b *cell.Remote) bool {
	return b != nil && a.Session == b.Session && a.Epoch == b.Epoch
}

// disowned: the callee itself said that it will not serve the cell as its owner.
// Any other failure to start may pass.
func disowned(err error) bool {
	var r *peer.RefusedError
	return errors.As(err, &r) && (r.Reason == peer.Stale || r.Reason == peer.Fenced || r.Reason == peer.Draining)
}

// there makes the call at its owner, and does not outwait the owner's lease.
func (r *Router) there(ctx context.Context, c id.Cell, name string, remote *cell.Remote, do do) error {
	s := r.cfg.Peers.Service(remote.Address, peer.Target{Cell: c, Name: name, Session: remote.Session, Epoch: remote.Epoch})
	running, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		err := do(running, s, func() { cancel(nil) })
		if err != nil {
			cancel(err)
		}
		done <- err
	}()
	timer := time.NewTimer(time.Until(remote.Deadline))
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
		}
		deadline, live, err := r.cfg.Lives(ctx, remote.Session)
		switch {
		case err == nil && live && time.Until(deadline) > 0:
			timer.Reset(time.Until(deadline))
		case err != nil && ctx.Err() == nil:
			timer.Reset(lastPause) // the bucket does not answer: nothing is known
		default:
			return r.lost(ctx, c, remote, cancel, done)
		}
	}
}

// lost ends a call whose owner has no lease any more, and everything else that
// is under way there. The call's own end decides whether it may be made again.
func (r *Router) lost(ctx context.Context, c id.Cell, remote *cell.Remote, cancel context.CancelCauseFunc, done <-chan error) error {
	lost := fmt.Errorf("the owner of cell %s (%s) lost its lease before it answered; the call may have run or not", c, remote.Session)
	cancel(lost)
	r.forget(c, remote)
	if ctx.Err() == nil {
		r.cfg.Peers.Forget(remote.Session)
	}
	if err := <-done; err == nil || errors.Is(err, call.ErrNotStarted) {
		return err
	}
	return lost
}

func (r *Router) known(c id.Cell) *cell.Remote {
	r.mu.RLock()
	remote := r.remote[c]
	r.mu.RUnlock()
	if remote == nil {
		return nil
	}
	if time.Now().After(remote.Deadline) {
		r.forget(c, remote)
		return nil
	}
	return remote
}

func (r *Router) remember(c id.Cell, remote *cell.Remote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remote[c] = remote
	if now := time.Now(); now.Sub(r.swept) > sweepPeriod {
		r.swept = now
		maps.DeleteFunc(r.remote, func(_ id.Cell, remote *cell.Remote) bool { return now.After(remote.Deadline) })
	}
}

// forget drops a route, unless another one has taken its place.
func (r *Router) forget(c id.Cell, remote *cell.Remote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.remote[c] == remote {
		delete(r.remote, c)
	}
}

// Resolve finds the callee of a peer's call; it refuses before any handler runs.
// A caller that read this session's name in the ownership record is believed so
// far that the record is read again, where this session knows nothing of it: a
// write of its own may have landed unseen.
func (r *Router) Resolve(ctx context.Context, t peer.Target) (call.Service, error) {
	if err := r.cfg.Authority(); err != nil {
		return nil, &peer.RefusedError{Reason: peer.Fenced, Detail: err.Error()}
	}
	if t.Session != r.cfg.Session {
		return nil, &peer.RefusedError{Reason: peer.Stale, Detail: fmt.Sprintf("session %s was meant, this is %s", t.Session, r.cfg.Session)}
	}
	if epoch, owned := r.cfg.Local.Owned(t.Cell); owned && epoch < t.Epoch {
		return nil, &peer.RefusedError{Reason: peer.Stale, Detail: fmt.Sprintf("cell %s is owned here at epoch %d, not %d", t.Cell, epoch, t.Epoch)}
	}
	s, err := r.cfg.Local.Service(ctx, t.Cell, t.Name)
	if err != nil {
		return refusal(err, r.draining.Load())
	}
	return s, nil
}

// refusal is how a cell that could not be had is told to a peer.
func refusal(err error, draining bool) (call.Service, error) {
	var remote *cell.Remote
	switch {
	case errors.Is(err, call.ErrFenced):
		return nil, &peer.RefusedError{Reason: peer.Fenced, Detail: err.Error()}
	case errors.Is(err, call.ErrOverloaded):
		return nil, err
	case errors.As(err, &remote):
		return nil, &peer.RefusedError{Reason: peer.Stale, Detail: err.Error()}
	case draining || errors.Is(err, cell.ErrDraining):
		return nil, &peer.RefusedError{Reason: peer.Draining, Detail: err.Error()}
	case errors.Is(err, call.ErrNotStarted):
		return nil, &peer.RefusedError{Reason: peer.Unknown, Detail: err.Error()}
	}
	return failed{err}, nil // code of the cell has run, its constructor perhaps: the caller is told as the cell's own caller is
}

// failed is a cell that could not be constructed.
type failed struct{ err error }

func (f failed) Fetch(context.Context, *call.Request) (*call.Response, error) { return nil, f.err }
func (f failed) RPC(context.Context) (call.Pipe, error)                       { return nil, f.err }
