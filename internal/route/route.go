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
	"io"
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
)

// Local is this node's cells.
type Local interface {
	Service(ctx context.Context, c id.Cell, name string) (call.Service, error)
	Owned(c id.Cell) (id.Epoch, bool)
}

// Peers are the other nodes.
type Peers interface {
	Service(address string, t peer.Target) call.Service
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

	draining atomic.Bool
}

// New makes a router.
func New(cfg Config) *Router { return &Router{cfg: cfg, remote: map[id.Cell]*cell.Remote{}} }

// SetDraining makes the router refuse calls of peers to cells it does not own.
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
	err := t.r.attempt(ctx, t.cell, t.name, body.untouched, func(ctx context.Context, s call.Service) (err error) {
		resp, err = s.Fetch(ctx, req)
		return err
	})
	return resp, err
}

func (t *routed) RPC(ctx context.Context) (call.Pipe, error) {
	var p call.Pipe
	err := t.r.attempt(ctx, t.cell, t.name, func() bool { return true }, func(ctx context.Context, s call.Service) (err error) {
		p, err = s.RPC(ctx)
		return err
	})
	return p, err
}

// attempt makes a call until it was started once, or the deadline has passed.
func (r *Router) attempt(ctx context.Context, c id.Cell, name string, again func() bool, do func(context.Context, call.Service) error) error {
	// The usual case: the cell is here, or its route is known.
	known := r.known(c)
	err := r.once(ctx, c, name, known, do)
	if err == nil || !errors.Is(err, call.ErrNotStarted) || errors.Is(err, call.ErrOverloaded) || !again() {
		return err
	}
	return r.insist(ctx, c, name, again, do, err)
}

// insist goes on after a first attempt that provably did nothing.
func (r *Router) insist(ctx context.Context, c id.Cell, name string, again func() bool, do func(context.Context, call.Service) error, err error) error {
	end := time.Now().Add(r.cfg.Deadline)
	pause := firstPause
	for {
		var remote *cell.Remote
		if errors.As(err, &remote) && r.cfg.Peers != nil {
			r.remember(c, remote)
		} else {
			remote = nil
		}
		if remote == nil {
			if time.Now().Add(pause).After(end) {
				return fmt.Errorf("cell %s could not be reached within %v: %w", c, r.cfg.Deadline, err)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			pause = min(2*pause, lastPause)
		}
		err = r.once(ctx, c, name, remote, do)
		if err == nil || !errors.Is(err, call.ErrNotStarted) || errors.Is(err, call.ErrOverloaded) || !again() {
			return err
		}
		if remote != nil && !isRemote(err) {
			// The owner refused or is not there: look at the record anew, after a pause.
			r.forget(c, remote)
			err = detach(err)
		}
	}
}

func isRemote(err error) bool {
	var remote *cell.Remote
	return errors.As(err, &remote)
}

// detach keeps what an error says and drops what it leads to.
func detach(err error) error { return fmt.Errorf("%w: %v", call.ErrNotStarted, err) }

// once makes one attempt: at the owner that is known, else here.
func (r *Router) once(ctx context.Context, c id.Cell, name string, remote *cell.Remote, do func(context.Context, call.Service) error) error {
	if remote != nil {
		return r.there(ctx, c, name, remote, do)
	}
	s, err := r.cfg.Local.Service(ctx, c, name)
	if err != nil {
		return err
	}
	return do(ctx, s)
}

// there makes the call at its owner, and does not outwait the owner's lease.
func (r *Router) there(ctx context.Context, c id.Cell, name string, remote *cell.Remote, do func(context.Context, call.Service) error) error {
	s := r.cfg.Peers.Service(remote.Address, peer.Target{Cell: c, Name: name, Session: remote.Session, Epoch: remote.Epoch})
	// Only a call that failed is canceled here: the body of a response that came
	// goes on using the context, which ends with the caller's.
	running, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() { done <- do(running, s) }()
	timer := time.NewTimer(time.Until(remote.Deadline))
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				cancel(err)
			}
			context.AfterFunc(ctx, func() { cancel(nil) })
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
			lost := fmt.Errorf("the owner of cell %s (%s) lost its lease before it answered; the call may have run or not", c, remote.Session)
			cancel(lost)
			r.forget(c, remote)
			if err := <-done; err == nil || isNotStarted(err) {
				return err
			}
			return lost
		}
	}
}

func isNotStarted(err error) bool { return errors.Is(err, call.ErrNotStarted) }

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
func (r *Router) Resolve(ctx context.Context, t peer.Target) (call.Service, error) {
	if err := r.cfg.Authority(); err != nil {
		return nil, &peer.RefusedError{Reason: peer.Fenced, Detail: err.Error()}
	}
	if t.Session != r.cfg.Session {
		return nil, &peer.RefusedError{Reason: peer.Stale, Detail: fmt.Sprintf("session %s was meant, this is %s", t.Session, r.cfg.Session)}
	}
	epoch, owned := r.cfg.Local.Owned(t.Cell)
	if !owned || epoch < t.Epoch {
		return nil, &peer.RefusedError{Reason: peer.Stale, Detail: fmt.Sprintf("cell %s is not owned here at epoch %d", t.Cell, t.Epoch)}
	}
	if r.draining.Load() && !owned {
		return nil, &peer.RefusedError{Reason: peer.Draining, Detail: "this node is shutting down"}
	}
	s, err := r.cfg.Local.Service(ctx, t.Cell, t.Name)
	if isRemote(err) {
		return nil, &peer.RefusedError{Reason: peer.Stale, Detail: err.Error()}
	}
	return s, err
}

// watched tells whether a request's streamed body was touched.
type watched struct {
	io.ReadCloser
	read atomic.Bool
}

func (w *watched) Read(p []byte) (int, error) {
	w.read.Store(true)
	return w.ReadCloser.Read(p)
}

type untouched func() bool

func (u untouched) untouched() bool { return u() }

func watch(req *call.Request) untouched {
	if req.Body == nil || req.Body.Stream == nil {
		return func() bool { return true }
	}
	w := &watched{ReadCloser: req.Body.Stream}
	body := *req.Body
	body.Stream = w
	req.Body = &body
	return func() bool { return !w.read.Load() }
}
