package goengine

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/storage"
)

// Class is a Durable Object class. Handlers that are nil refuse.
type Class struct {
	// New is the constructor.
	New   func(ctx context.Context, c *Cell) error
	Fetch func(ctx context.Context, c *Cell, r *call.Request) (*call.Response, error)
	RPC   func(ctx context.Context, c *Cell) (call.Pipe, error)
	Alarm func(ctx context.Context, c *Cell, a cell.AlarmInfo) error
}

// Engine maps class names to classes.
type Engine map[string]Class

// Create runs the constructor.
func (e Engine) Create(ctx context.Context, s cell.Seat) (cell.Object, error) {
	class, ok := e[s.ID().Class()]
	if !ok {
		return nil, fmt.Errorf("no class named %q", s.ID().Class())
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Cell{Seat: s, class: class, ctx: ctx, cancel: cancel}
	if class.New == nil {
		return c, nil
	}
	if err := class.New(ctx, c); err != nil {
		c.Close(err)
		return nil, err
	}
	return c, nil
}

// Cell is a constructed object, and what its handlers hold on to.
type Cell struct {
	cell.Seat
	class  Class
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	mu   sync.Mutex // one turn at a time
	err  error      // why it was closed
	work sync.WaitGroup
	busy atomic.Int64 // work without a caller

	// Value is what the handlers remember in memory. It is used inside turns.
	Value any
}

// Turn runs f as one turn. What f returns is the turn's error; an error of the
// turn itself (fenced, reset, not committed) wins over it.
func (c *Cell) Turn(f func(*storage.Storage) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if err := c.Begin(); err != nil {
		return err
	}
	err := f(c.Storage())
	if end := c.End(); end != nil {
		return end
	}
	return err
}

// Gate waits until everything the cell did so far is proven.
func (c *Cell) Gate(ctx context.Context) error {
	left := make(chan error, 1)
	c.Emit(func(err error) { left <- err })
	select {
	case err := <-left:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Call is an outbound call: it leaves through the gate.
func (c *Cell) Call(ctx context.Context, to call.Service, r *call.Request) (*call.Response, error) {
	if err := c.Gate(ctx); err != nil {
		return nil, err
	}
	return to.Fetch(ctx, r)
}

// Go runs work that has no caller, like a detached promise: it ends with the
// object, and until it has ended the cell is not evicted.
func (c *Cell) Go(f func(ctx context.Context)) {
	c.busy.Add(1)
	c.work.Go(func() {
		defer c.busy.Add(-1)
		f(c.ctx)
	})
}

// Fetch runs the handler; its result leaves through the gate, an error too.
func (c *Cell) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) {
	if c.class.Fetch == nil {
		return nil, &call.Exception{Name: "Error", Message: "Handler does not export a fetch() function."}
	}
	ctx, end := c.event(ctx)
	defer end()
	resp, err := c.class.Fetch(ctx, c, r)
	if gated := c.leave(ctx, err); gated != nil {
		return nil, gated
	}
	return resp, nil
}

// RPC opens a session through the handler.
func (c *Cell) RPC(ctx context.Context) (call.Pipe, error) {
	if c.class.RPC == nil {
		return nil, &call.Exception{Name: "TypeError", Message: "The class does not serve RPC."}
	}
	ctx, end := c.event(ctx)
	defer end()
	p, err := c.class.RPC(ctx, c)
	if gated := c.leave(ctx, err); gated != nil {
		return nil, gated
	}
	return p, nil
}

// Alarm runs the alarm handler.
func (c *Cell) Alarm(ctx context.Context, a cell.AlarmInfo) error {
	if c.class.Alarm == nil {
		return nil
	}
	ctx, end := c.event(ctx)
	defer end()
	if err := c.class.Alarm(ctx, c, a); err != nil {
		return c.closedOr(err)
	}
	return nil
}

// event is the context of one event: it ends with the caller's or the object's.
func (c *Cell) event(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// leave waits for the gate with the handler's result in hand.
func (c *Cell) leave(ctx context.Context, result error) error {
	if err := c.Gate(ctx); err != nil {
		return c.closedOr(err)
	}
	return c.closedOr(result)
}

// closedOr is the cause of the object's end if it has ended and there was an error.
func (c *Cell) closedOr(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return err
}

// Busy tells that work without a caller is pending.
func (c *Cell) Busy() bool { return c.busy.Load() > 0 }

// Close ends the object: calls in progress fail with cause. It waits for the
// turn that runs and for work without a caller.
func (c *Cell) Close(cause error) {
	c.cancel(cause)
	c.mu.Lock()
	if c.err == nil {
		c.err = cause
	}
	c.mu.Unlock()
	c.work.Wait()
}

// Text is a plain response.
func Text(s string) *call.Response {
	return &call.Response{Status: 200, Body: call.BytesBody([]byte(s))}
}

// Stream is a response whose chunks leave through the gate, one by one, as
// write is called. It ends when write's caller returns.
func (c *Cell) Stream(produce func(ctx context.Context, write func([]byte) error) error) *call.Response {
	r, w := io.Pipe()
	c.Go(func(ctx context.Context) {
		stop := context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
		defer stop()
		err := produce(ctx, func(chunk []byte) error {
			if err := c.Gate(ctx); err != nil {
				return err
			}
			_, err := w.Write(chunk)
			return err
		})
		w.CloseWithError(err)
	})
	return &call.Response{Status: 200, Body: call.StreamBody(r, -1)}
}
