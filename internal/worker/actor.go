package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/hostcall"
	"celld/internal/storage"
	"celld/internal/v8"
)

// actor is whose code runs: a request to a stateless entrypoint, or a cell.
// Everything that its JavaScript started hangs on it and ends with it.
type actor struct {
	id    uint32
	iso   *isolate
	seat  cell.Seat       // nil for a stateless request
	ctx   context.Context // ends with the actor
	stop  context.CancelCauseFunc
	label string // for logs

	mu      sync.Mutex
	closed  error
	ops     map[uint32]*op // host promises that wait, by id
	done    []completion   // results that wait for a turn
	held    []completion   // results that wait for a critical section to end
	inbox   []event        // events of a cell that have not begun, in order
	queued  bool           // a turn for done is on the run queue
	section []section      // open critical sections, the innermost last
	timers  map[uint32]timer
	in      map[uint32]*inBody
	out     map[uint32]*outBody
	pipes   map[uint32]*pipeEnd
	calls   map[uint32]*reply // requests under way, by id
	cancels map[uint32]context.CancelFunc
	nextID  uint32
	ended   func() // called when a stateless actor has ended: its place is free
	regular int    // open sockets that pin it

	sockets    map[uint32]*jsSocket
	foreign    map[uint32]call.Socket // came with responses, not accepted yet
	resetCause error                  // set by the cell's own code: reset it when the turn is over
	finished   bool                   // its JavaScript says that a stateless actor is done
}

// op is one asynchronous host call under way.
type op struct {
	section uint32
	cancel  context.CancelFunc
}

// completion is the result of one, on its way back into JavaScript.
type completion struct {
	promise uint32
	section uint32
	value   hostcall.Value
	err     error
}

func (i *isolate) newActor(parent context.Context, seat cell.Seat, label string) *actor {
	a := &actor{iso: i, seat: seat, label: label}
	a.ctx, a.stop = context.WithCancelCause(parent)
	i.load.Add(1)
	return a
}

// enter gives the actor its number. Within a job only.
func (i *isolate) enter(a *actor) {
	if a.id == 0 {
		i.next++
		a.id = i.next
		i.actors[a.id] = a
	}
}

// Context ends with the actor.
func (a *actor) Context() context.Context { return a.ctx }

// Storage is the storage of the cell whose turn it is.
func (a *actor) Storage() (*storage.Storage, error) {
	if a.seat == nil {
		return nil, errors.New("there is no storage outside of a Durable Object")
	}
	return a.seat.Storage(), nil
}

// ---- turns

// turn runs f as one turn of a; within a job. The error is what ended the
// actor, or what f itself failed with.
func (i *isolate) turn(a *actor, f func() error) error {
	if err := a.failure(); err != nil {
		return err
	}
	if a.seat != nil {
		if err := a.seat.Begin(); err != nil {
			return err
		}
	}
	i.enter(a)
	i.cur = a
	i.beginTurn(a)
	err := classify(f())
	over := i.endTurn()
	i.cur = nil
	i.args.Reset()
	if errors.Is(err, errTerminated) {
		err = over
	}
	if a.seat != nil {
		if gone := fatalToActor(err); gone != nil {
			a.seat.End() // what the killed turn wrote is dropped by the reset
			a.seat.Reset(gone)
		} else if endErr := a.seat.End(); endErr != nil && err == nil {
			err = endErr
		}
		if cause := a.resetCause; cause != nil {
			a.resetCause = nil
			a.seat.Reset(cause)
		}
	}
	if fatalToActor(err) != nil {
		i.closeActor(a, err)
	}
	if errors.Is(err, ErrMemory) {
		i.kill(err)
	}
	return err
}

// fatalToActor is err when nothing of the actor may run after it.
func fatalToActor(err error) error {
	if errors.Is(err, ErrCPU) || errors.Is(err, ErrMemory) || errors.Is(err, errTerminated) || errors.Is(err, errWall) {
		return err
	}
	return nil
}

func (a *actor) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// emit queues an output behind the cell's earlier ones; a stateless actor has
// nothing to prove.
func (a *actor) emit(release func(error)) {
	if a.seat == nil {
		release(nil)
		return
	}
	a.seat.Emit(release)
}

// ---- asynchronous host calls

// begin starts one; within a turn.
func (i *isolate) begin(o *hostcall.Op, promise uint32, f *frame) error {
	a := i.cur
	if a == nil {
		return throwError{"Error", "Disallowed operation called within global scope. Asynchronous I/O (ex: fetch() or connect()), setting a timeout, and generating random values are not allowed within global scope. To fix this error, perform this operation within a handler."}
	}
	ctx, cancel := context.WithCancel(a.ctx)
	a.track(promise, cancel)
	i.promise = promise
	work, err := o.Async(f)
	if err != nil || work == nil { // without work the function settles the promise through complete
		if err != nil {
			a.untrack(promise)
		}
		return err
	}
	run := func() {
		v, err := guarded(ctx, work)
		a.complete(promise, v, err)
	}
	if !o.Output {
		go run()
		return nil
	}
	a.emit(func(err error) {
		if err != nil {
			a.complete(promise, hostcall.Value{}, err)
			return
		}
		go run()
	})
	return nil
}

// guarded: a bug in a host function fails its call and nothing else.
func guarded(ctx context.Context, work func(context.Context) (hostcall.Value, error)) (v hostcall.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	return work(ctx)
}

func (a *actor) track(promise uint32, cancel context.CancelFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ops == nil {
		a.ops = map[uint32]*op{}
	}
	a.ops[promise] = &op{section: a.callSection(), cancel: cancel}
}

func (a *actor) untrack(promise uint32) {
	a.mu.Lock()
	o := a.ops[promise]
	delete(a.ops, promise)
	a.mu.Unlock()
	if o != nil && o.cancel != nil {
		o.cancel()
	}
}

// callSection is the critical section that the running code belongs to.
func (a *actor) callSection() uint32 { return a.iso.frameSection }

// complete brings a result back. Any goroutine.
func (a *actor) complete(promise uint32, v hostcall.Value, err error) {
	a.mu.Lock()
	o := a.ops[promise]
	if o == nil || a.closed != nil {
		a.mu.Unlock()
		return
	}
	delete(a.ops, promise)
	if o.cancel != nil {
		defer o.cancel()
	}
	c := completion{promise, o.section, v, err}
	if a.blocks(c.section) {
		a.held = append(a.held, c)
		a.mu.Unlock()
		return
	}
	a.done = append(a.done, c)
	wake := !a.queued
	a.queued = true
	a.mu.Unlock()
	if wake {
		a.iso.later(a.settle)
	}
}

// settle is the job that takes all results that have come for a.
func (a *actor) settle() {
	a.mu.Lock()
	a.holdBack() // a section may have opened since they came
	batch := a.done
	a.done, a.queued = nil, false
	dead := a.closed != nil
	a.mu.Unlock()
	if dead || len(batch) == 0 {
		return
	}
	err := a.iso.turn(a, func() error {
		i := a.iso
		ids := make([]uint32, len(batch))
		reject := make([]uint8, len(batch))
		for k, c := range batch {
			ids[k] = c.promise
			if c.err != nil {
				reject[k] = 1
				c.value = rejection(c.err)
			}
			i.args.Value(c.value)
		}
		return i.v.Settle(i.ctx, ids, reject, &i.args, 0)
	})
	if err != nil && fatalToActor(err) == nil {
		a.fail(err)
	}
}

// rejection is an error as JavaScript gets it.
func rejection(err error) hostcall.Value {
	var ex *call.Exception
	if errors.As(err, &ex) && len(ex.Clone) > 0 {
		return hostcall.Cloned(ex.Clone)
	}
	t := asThrow(err)
	return hostcall.Text(t.class + "\x00" + t.message)
}

// ---- the end

// fail ends the actor from outside of its turn.
func (a *actor) fail(cause error) {
	a.end(cause)
	a.iso.later(func() { a.iso.forget(a) })
}

// closeActor ends it from within a job.
func (i *isolate) closeActor(a *actor, cause error) {
	a.end(cause)
	i.forget(a)
}

// end marks a closed, and lets everything go that hangs on it. It does not enter JavaScript.
func (a *actor) end(cause error) {
	if cause == nil {
		cause = errEnded
	}
	a.mu.Lock()
	if a.closed != nil {
		a.mu.Unlock()
		return
	}
	a.closed = cause
	calls, pipes, in, out, timers, sockets, foreign := a.calls, a.pipes, a.in, a.out, a.timers, a.sockets, a.foreign
	a.calls, a.pipes, a.in, a.out, a.timers, a.sockets, a.foreign, a.held, a.done = nil, nil, nil, nil, nil, nil, nil, nil, nil
	inbox, sections := a.inbox, a.section
	a.inbox, a.section = nil, nil
	a.mu.Unlock()
	for _, s := range sections {
		s.limit.Stop()
	}
	for _, e := range inbox {
		e.failed(cause)
	}
	a.iso.load.Add(-1)
	a.stop(cause)
	for _, t := range timers {
		t.timer.Stop()
	}
	for _, r := range calls {
		r.fail(cause)
	}
	for _, b := range out {
		b.abort(cause)
	}
	for _, b := range in {
		b.cancel()
	}
	for _, p := range pipes {
		p.broken(cause)
	}
	for _, s := range sockets {
		s.fail(cause)
	}
	for _, s := range foreign {
		s.Abort(cause)
	}
	if a.ended != nil {
		a.ended()
	}
}

var errEnded = errors.New("the object that this belongs to has ended")

// forget drops what V8 holds for the actor; within a job.
func (i *isolate) forget(a *actor) {
	if a.id == 0 || i.actors[a.id] != a {
		return
	}
	delete(i.actors, a.id)
	a.mu.Lock()
	ops := a.ops
	a.ops = nil
	a.mu.Unlock()
	if i.isDead() {
		return
	}
	for promise, o := range ops {
		i.v.DropResolver(promise)
		if o.cancel != nil {
			o.cancel()
		}
	}
	i.args.Reset()
	i.args.Num(float64(a.id))
	i.v.CallArgs(i.ctx, i.fn.drop, v8.NoMicro, &i.args)
	i.args.Reset()
}

// busy: work is pending that has no caller.
func (a *actor) busy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ops) > 0 || len(a.timers) > 0 || len(a.done) > 0 || a.queued || a.regular > 0 || len(a.pipes) > 0 || len(a.out) > 0
}
