package worker

import (
	"context"
	"sync/atomic"
	"time"

	"celld/internal/call"
	"celld/internal/hostcall"
)

// fatals counts the isolates of this process that V8 has lost.
var fatals atomic.Int32

// ops is the worker's own table of host functions.
func ops() []hostcall.Op {
	all := []hostcall.Op{
		{Name: "worker.respond", Sync: respond},
		{Name: "worker.fail", Sync: failCall},
		{Name: "worker.finished", Sync: finished},
		{Name: "worker.section", Sync: func(f hostcall.Frame) error { actorOf(f).iso.frameSection = uint32(f.Arg(0).Int()); return nil }},
		{Name: "worker.enterSection", Sync: func(f hostcall.Frame) error { actorOf(f).enterSection(uint32(f.Arg(0).Int())); return nil }},
		{Name: "worker.leaveSection", Sync: func(f hostcall.Frame) error { actorOf(f).leaveSection(uint32(f.Arg(0).Int())); return nil }},
		{Name: "worker.reset", Sync: resetCell},
		{Name: "worker.actor", Sync: func(f hostcall.Frame) error {
			if a, _ := f.Actor().(*actor); a != nil {
				f.SetNum(float64(a.id))
			} else {
				f.SetNum(0)
			}
			return nil
		}},
		{Name: "console.log", Sync: consoleLog},
		{Name: "timer.wait", Async: timerWait},
		{Name: "timer.cancel", Sync: timerCancel},
		{Name: "id.fromName", Sync: idFromName},
		{Name: "id.unique", Sync: idUnique},
		{Name: "id.parse", Sync: idParse},
		{Name: "fetch.out", Async: fetchOut, Output: true},
		{Name: "fetch.cell", Async: fetchCell, Output: true},
		{Name: "fetch.service", Async: fetchService, Output: true},
		{Name: "fetch.cancel", Sync: func(f hostcall.Frame) error { actorOf(f).cancelCall(uint32(f.Arg(0).Int())); return nil }},
		{Name: "storage.sync", Async: storageSync},
		{Name: "storage.wake", Sync: func(hostcall.Frame) error { return nil }},
	}
	all = append(all, bodyOps()...)
	all = append(all, pipeOps()...)
	return append(all, socketOps()...)
}

// ---- timers

// timer is one that runs, and the promise that it settles.
type timer struct {
	timer   *time.Timer
	promise uint32
}

// timerWait is timer.wait(ms, timer): settled when the time has come.
func timerWait(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	a, promise := actorOf(f), actorOf(f).iso.promise
	ms, n := f.Arg(0).Num(), uint32(f.Arg(1).Int())
	if !(ms > 0) { // negative, zero, NaN
		ms = 0
	}
	d := time.Duration(min(ms, float64(1<<31-1)) * float64(time.Millisecond))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timers == nil {
		a.timers = map[uint32]timer{}
	}
	a.timers[n] = timer{promise: promise, timer: time.AfterFunc(d, func() {
		a.mu.Lock()
		delete(a.timers, n)
		a.mu.Unlock()
		a.complete(promise, hostcall.Value{}, nil)
	})}
	return nil, nil
}

// timerCancel is timer.cancel(timer). Its promise is settled all the same, so that
// nothing of the timer stays behind; JavaScript knows that it was cancelled.
func timerCancel(f hostcall.Frame) error {
	a, n := actorOf(f), uint32(f.Arg(0).Int())
	a.mu.Lock()
	t, ok := a.timers[n]
	delete(a.timers, n)
	a.mu.Unlock()
	if ok && t.timer.Stop() {
		a.complete(t.promise, hostcall.Value{}, nil)
	}
	return nil
}

// ---- ids

func (i *isolate) namespace(f hostcall.Frame) (namespace, error) {
	n := f.Arg(0).Int()
	bs := i.script.bundle.Bindings
	if n < 0 || n >= len(bs) {
		return namespace{}, throwError{"Error", "bug: no such namespace"}
	}
	return namespaceOf(bs[n].Namespace), nil
}

// frameIsolate is the isolate of a call that may come from the global scope.
func frameIsolate(f hostcall.Frame) *isolate { return f.(*frame).iso }

func idFromName(f hostcall.Frame) error {
	n, err := frameIsolate(f).namespace(f)
	if err == nil {
		f.SetStr(n.fromName(f.Arg(1).Str()))
	}
	return err
}

func idUnique(f hostcall.Frame) error {
	n, err := frameIsolate(f).namespace(f)
	if err == nil {
		f.SetStr(n.unique())
	}
	return err
}

func idParse(f hostcall.Frame) error {
	n, err := frameIsolate(f).namespace(f)
	if err != nil {
		return err
	}
	s, err := n.parse(f.Arg(1).Str())
	if err == nil {
		f.SetStr(s)
	}
	return err
}

// ---- calls to others

// The arguments of every fetch start at some offset with
// (call, method, url, headers, body, stream, length, redirect).
func (a *actor) outgoing(f hostcall.Frame, at int) (uint32, *call.Request) {
	r := &call.Request{Method: f.Arg(at + 1).Str(), URL: f.Arg(at + 2).Str(), Header: unpackFields(f.Arg(at + 3).Str()), Redirect: f.Arg(at + 7).Str()}
	r.Body = a.bodyFrom(f.Arg(at+4), f.Arg(at+5).Int(), f.Arg(at+6).Num())
	for _, h := range r.Header {
		if len(h.Name) == 7 && (h.Name == "upgrade" || h.Name == "Upgrade") && h.Value == "websocket" {
			r.Upgrade = true
		}
	}
	return uint32(f.Arg(at).Int()), r
}

// perform makes a call whose response goes back to JavaScript.
func (a *actor) perform(n uint32, r *call.Request, svc func(context.Context) (call.Service, error)) func(context.Context) (hostcall.Value, error) {
	ctx, cancel := context.WithCancel(a.ctx)
	a.mu.Lock()
	if a.cancels == nil {
		a.cancels = map[uint32]context.CancelFunc{}
	}
	a.cancels[n] = cancel
	a.mu.Unlock()
	return func(context.Context) (hostcall.Value, error) {
		s, err := svc(ctx)
		if err != nil {
			return hostcall.Value{}, err
		}
		resp, err := s.Fetch(ctx, r)
		if err != nil {
			a.dropCancel(n)
			return hostcall.Value{}, outgoingError(err)
		}
		if resp.Body == nil || resp.Body.Stream == nil { // else the body still needs the context
			if resp.Socket == nil {
				defer a.dropCancel(n)
			}
		}
		return a.responseValue(resp), nil
	}
}

func (a *actor) dropCancel(n uint32) {
	a.mu.Lock()
	cancel := a.cancels[n]
	delete(a.cancels, n)
	a.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (a *actor) cancelCall(n uint32) { a.dropCancel(n) }

func fetchOut(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	a := actorOf(f)
	n, r := a.outgoing(f, 0)
	return a.perform(n, r, func(context.Context) (call.Service, error) { return a.iso.script.outbound(), nil }), nil
}

// fetchCell is fetch.cell(namespace, object, name, …).
func fetchCell(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	a := actorOf(f)
	target, err := a.iso.cellTarget(f)
	if err != nil {
		return nil, err
	}
	n, r := a.outgoing(f, 3)
	return a.perform(n, r, target), nil
}

// cellTarget reads (namespace, object, name).
func (i *isolate) cellTarget(f hostcall.Frame) (func(context.Context) (call.Service, error), error) {
	ns, err := i.namespace(f)
	if err != nil {
		return nil, err
	}
	object, name := f.Arg(1).Str(), f.Arg(2).Str()
	router := i.script.opts.Router
	if router == nil {
		return nil, throwError{"Error", "no Durable Objects are served here"}
	}
	return func(ctx context.Context) (call.Service, error) { return router.Cell(ctx, ns.cell(object), name), nil }, nil
}

// fetchService is fetch.service(binding, …).
func fetchService(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	a := actorOf(f)
	target, err := a.iso.serviceTarget(f)
	if err != nil {
		return nil, err
	}
	n, r := a.outgoing(f, 1)
	return a.perform(n, r, target), nil
}

func (i *isolate) serviceTarget(f hostcall.Frame) (func(context.Context) (call.Service, error), error) {
	n := f.Arg(0).Int()
	bs := i.script.bundle.Bindings
	if n < 0 || n >= len(bs) {
		return nil, throwError{"Error", "bug: no such service"}
	}
	b := bs[n]
	return func(context.Context) (call.Service, error) {
		if b.Script == "" || b.Script == i.script.bundle.Name {
			return i.script.Entrypoint(b.Entrypoint), nil
		}
		if i.script.opts.Service == nil {
			return nil, throwError{"Error", "no other scripts are served here"}
		}
		return i.script.opts.Service(b.Script, b.Entrypoint)
	}, nil
}
