package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/internal/call"
	"celld/internal/hostcall"
)

// afterlife is how long a stateless request may go on with waitUntil once its
// response has ended or its client is gone, as on the platform.
const afterlife = 30 * time.Second

// tries is how many isolates a request may find dying before it gives up.
const tries = 3

// errClientGone ends what nobody waits for any more.
var errClientGone = errors.New("the client disconnected")

// Entrypoint is a stateless entrypoint of a script: its default export, or a named one.
type Entrypoint struct {
	script *Script
	name   string
	props  []byte // structured clone of ctx.props, or nil
}

func (e *Entrypoint) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) {
	for try := 1; ; try++ {
		resp, err := e.fetchOnce(ctx, r)
		if try == tries || !errors.Is(err, errIsolateGone) || ctx.Err() != nil {
			return resp, err
		}
		// The isolate died of somebody else's request before this one had begun.
	}
}

func (e *Entrypoint) fetchOnce(ctx context.Context, r *call.Request) (*call.Response, error) {
	i, release, err := e.script.admit(ctx)
	if err != nil {
		return nil, err
	}
	a := i.newActor(context.WithoutCancel(ctx), nil, e.script.bundle.Name)
	a.ended = release
	n, rep := a.addCall()
	a.event(func() error { return i.callFetch(a, n, e.name, r) }, func(err error) {
		rep.fail(err)
		a.fail(err)
	})
	stop := context.AfterFunc(ctx, func() { a.clientGone(n) })
	resp, err := rep.wait(ctx)
	if err != nil || resp.Body == nil || resp.Body.Stream == nil {
		if err == nil && resp.Socket == nil {
			stop()
			a.limitAfterlife()
		}
		return resp, err
	}
	return resp, nil
}

// callFetch calls the runtime's fetch in the turn of a.
func (i *isolate) callFetch(a *actor, n uint32, entry string, r *call.Request) error {
	g := &i.args
	g.Reset()
	g.Num(float64(a.id))
	g.Num(float64(n))
	g.Str(entry)
	g.Str(r.Method)
	g.Str(r.URL)
	g.Str(packFields(r.Header))
	switch {
	case r.Body == nil:
		g.Undefined()
		g.Num(0)
	case r.Body.Stream != nil:
		g.Undefined()
		g.Num(float64(a.addIn(r.Body.Stream)))
	default:
		g.Bytes(r.Body.Bytes)
		g.Num(0)
	}
	g.Str(string(r.CF))
	g.Bool(r.Upgrade)
	_, err := i.v.CallArgs(i.ctx, i.fn.fetch, 0, g)
	return err
}

func (a *actor) addCall() (uint32, *reply) {
	r := newReply()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	if a.closed != nil {
		r.fail(a.closed)
		return a.nextID, r
	}
	if a.calls == nil {
		a.calls = map[uint32]*reply{}
	}
	a.calls[a.nextID] = r
	return a.nextID, r
}

func (a *actor) takeCall(n uint32) *reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.calls[n]
	delete(a.calls, n)
	return r
}

// clientGone tells the handler of call n that its caller went away.
func (a *actor) clientGone(n uint32) {
	if a.seat == nil {
		a.limitAfterlife()
	}
	a.inside(func() error {
		g := &a.iso.args
		g.Reset()
		g.Num(float64(a.id))
		g.Num(float64(n))
		_, err := a.iso.v.CallArgs(a.iso.ctx, a.iso.fn.abort, 0, g)
		return err
	}, func(error) {})
}

// limitAfterlife gives a stateless actor its last half minute.
func (a *actor) limitAfterlife() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil || a.finished {
		return
	}
	t := time.AfterFunc(afterlife, func() { a.fail(errClientGone) })
	context.AfterFunc(a.ctx, func() { t.Stop() })
}

// settled ends a stateless actor that has nothing left to do.
func (a *actor) settled() {
	a.mu.Lock()
	over := a.finished && a.seat == nil && len(a.out) == 0 && len(a.pipes) == 0 && a.regular == 0 && a.closed == nil
	a.mu.Unlock()
	if !over {
		return
	}
	a.end(nil)
	a.iso.later(func() { a.iso.forget(a) })
}

// respond is worker.respond(call, status, statusText, headers, body, stream, length, flags, socket).
func respond(f hostcall.Frame) error {
	a := actorOf(f)
	rep := a.takeCall(uint32(f.Arg(0).Int()))
	resp := &call.Response{
		Status: f.Arg(1).Int(), StatusText: f.Arg(2).Str(), Header: unpackFields(f.Arg(3).Str()),
		EncodeManually: f.Arg(7).Int()&respondManual != 0,
	}
	if s := f.Arg(8).Int(); s != 0 {
		sock, err := a.giveSocket(s)
		if err != nil {
			return err
		}
		resp.Socket = sock
	} else {
		resp.Body = a.bodyFrom(f.Arg(4), f.Arg(5).Int(), f.Arg(6).Num())
	}
	if rep == nil {
		discard(resp)
		return nil
	}
	a.emit(func(err error) {
		if err != nil {
			discard(resp)
			rep.fail(err)
			return
		}
		rep.settle(resp, nil)
	})
	return nil
}

// Flags of worker.respond.
const respondManual = 1

// failCall is worker.fail(call, name, message, stack, clone, flags): the handler threw.
func failCall(f hostcall.Frame) error {
	a := actorOf(f)
	rep := a.takeCall(uint32(f.Arg(0).Int()))
	flags := f.Arg(5).Int()
	ex := &call.Exception{
		Name: f.Arg(1).Str(), Message: f.Arg(2).Str(), Stack: a.iso.script.mapStack(f.Arg(3).Str()),
		Clone:  append([]byte(nil), f.Arg(4).Bytes()...),
		Remote: flags&1 != 0, Retryable: flags&2 != 0, Overloaded: flags&4 != 0, Reset: flags&8 != 0,
	}
	if rep == nil {
		return nil
	}
	a.emit(func(err error) {
		if err != nil {
			rep.fail(err)
			return
		}
		rep.fail(ex)
	})
	return nil
}

// finished is worker.finished(): a stateless actor has answered and waits for nothing.
func finished(f hostcall.Frame) error {
	a := actorOf(f)
	a.mu.Lock()
	a.finished = true
	a.mu.Unlock()
	a.settled()
	return nil
}

func actorOf(f hostcall.Frame) *actor {
	a, _ := f.Actor().(*actor)
	if a == nil {
		panic(throwError{"Error", "this cannot be called outside of a handler"})
	}
	return a
}

// RPC opens a session with the entrypoint.
func (e *Entrypoint) RPC(ctx context.Context) (call.Pipe, error) {
	i, release, err := e.script.admit(ctx)
	if err != nil {
		return nil, err
	}
	a := i.newActor(context.WithoutCancel(ctx), nil, e.script.bundle.Name)
	a.ended = release
	return a.openPipe(e.name)
}

func (e *Entrypoint) String() string { return fmt.Sprintf("%s#%s", e.script.bundle.Name, e.name) }
