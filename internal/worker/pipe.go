package worker

import (
	"context"
	"errors"
	"io"
	"sync"

	"celld/internal/call"
	"celld/internal/hostcall"
)

// pipeEnd is JavaScript's end of an RPC session. Messages towards JavaScript
// arrive as events; messages from it leave as outputs.
type pipeEnd struct {
	a     *actor
	n     uint32
	queue *msgQueue // what JavaScript sent, for the other end to receive
	peer  call.Pipe // set on the caller's side: where messages go

	caller  bool   // our JavaScript opened the session
	section uint32 // of the code that sent last, on the caller's side; guarded by a.mu
}

// msgQueue is one direction of a session.
type msgQueue struct {
	mu    sync.Mutex
	wake  chan struct{}
	items [][]byte
	done  bool
	err   error
}

func newMsgQueue() *msgQueue { return &msgQueue{wake: make(chan struct{}, 1)} }

func (q *msgQueue) put(m []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done {
		return false
	}
	q.items = append(q.items, m)
	q.signal()
	return true
}

func (q *msgQueue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.done {
		q.done, q.err = true, err
		q.signal()
	}
}

func (q *msgQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *msgQueue) get(ctx context.Context) ([]byte, error) {
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			m := q.items[0]
			q.items = q.items[1:]
			if len(q.items) > 0 || q.done {
				q.signal()
			}
			q.mu.Unlock()
			return m, nil
		}
		if q.done {
			err := q.err
			q.signal()
			q.mu.Unlock()
			if err == nil {
				err = io.EOF
			}
			return nil, err
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (a *actor) addPipe(p *pipeEnd) (uint32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return 0, a.closed
	}
	a.nextID++
	p.a, p.n = a, a.nextID
	if a.pipes == nil {
		a.pipes = map[uint32]*pipeEnd{}
	}
	a.pipes[p.n] = p
	return p.n, nil
}

func (a *actor) takePipe(n uint32) *pipeEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pipes[n]
}

func (a *actor) dropPipe(n uint32) {
	a.mu.Lock()
	delete(a.pipes, n)
	a.mu.Unlock()
	a.settled()
}

// ---- the callee's side: somebody calls a.

// openPipe opens a session with an entrypoint of a ("" is the cell itself).
func (a *actor) openPipe(entry string) (call.Pipe, error) {
	p := &pipeEnd{queue: newMsgQueue()}
	if _, err := a.addPipe(p); err != nil {
		return nil, err
	}
	i := a.iso
	a.event(func() error {
		g := &i.args
		g.Reset()
		g.Num(float64(a.id))
		g.Num(float64(p.n))
		g.Str(entry)
		_, err := i.v.CallArgs(i.ctx, i.fn.rpcOpen, 0, g)
		return err
	}, p.broken)
	return calledPipe{p}, nil
}

// calledPipe is what the caller holds.
type calledPipe struct{ p *pipeEnd }

func (c calledPipe) Send(_ context.Context, msg []byte) error {
	if c.p.a.failure() != nil {
		return c.p.a.failure()
	}
	c.p.deliver(msg)
	return nil
}

func (c calledPipe) Receive(ctx context.Context) ([]byte, error) { return c.p.queue.get(ctx) }

func (c calledPipe) Close(cause error) { c.p.otherClosed(cause) }

// deliver brings a message into JavaScript as an event.
func (p *pipeEnd) deliver(msg []byte) {
	i := p.a.iso
	p.event(func() error {
		g := &i.args
		g.Reset()
		g.Num(float64(p.a.id))
		g.Num(float64(p.n))
		g.Bytes(msg)
		_, err := i.v.CallArgs(i.ctx, i.fn.pipeMessage, 0, g)
		return err
	}, p.broken)
}

// event is an event of the actor. On the caller's side it belongs to the code
// that called: what a critical section asked for must not wait for its end.
func (p *pipeEnd) event(f func() error, failed func(error)) {
	e := event{run: f, failed: failed}
	if p.caller {
		e.pipe = p
	}
	p.a.arrive(e)
}

// sentBy notes whose code sends.
func (p *pipeEnd) sentBy(section uint32) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	p.section = section
}

// otherClosed tells JavaScript that the session has ended, behind the messages
// that came before.
func (p *pipeEnd) otherClosed(cause error) {
	i := p.a.iso
	p.event(func() error {
		g := &i.args
		g.Reset()
		g.Num(float64(p.a.id))
		g.Num(float64(p.n))
		if cause == nil {
			g.Undefined()
		} else {
			g.Value(rejection(outgoingError(cause)))
		}
		_, err := i.v.CallArgs(i.ctx, i.fn.pipeClosed, 0, g)
		p.a.dropPipe(p.n)
		return err
	}, func(error) { p.a.dropPipe(p.n) })
	if p.queue != nil {
		p.queue.close(nil)
	}
}

// broken ends the session because the actor ended.
func (p *pipeEnd) broken(cause error) {
	if p.queue != nil {
		p.queue.close(cause)
	}
	if p.peer != nil {
		p.peer.Close(cause)
	}
}

// ---- the caller's side: a calls somebody.

// openTo opens a session with svc for JavaScript, which may send before it is open.
func (a *actor) openTo(svc func(context.Context) (call.Service, error)) (uint32, error) {
	out := newMsgQueue()
	p := &pipeEnd{queue: out, caller: true, section: a.callSection()}
	n, err := a.addPipe(p)
	if err != nil {
		return 0, err
	}
	a.emit(func(err error) {
		if err != nil {
			p.fromThere(err)
			return
		}
		go p.run(svc)
	})
	return n, nil
}

func (p *pipeEnd) run(svc func(context.Context) (call.Service, error)) {
	s, err := svc(p.a.ctx)
	var peer call.Pipe
	if err == nil {
		peer, err = s.RPC(p.a.ctx)
	}
	if err != nil {
		p.fromThere(err)
		return
	}
	go func() {
		for {
			msg, err := p.queue.get(p.a.ctx)
			if err == nil {
				err = peer.Send(p.a.ctx, msg)
			}
			if errors.Is(err, io.EOF) {
				peer.Close(nil)
				return
			}
			if err != nil {
				peer.Close(err)
				return
			}
		}
	}()
	for {
		msg, err := peer.Receive(p.a.ctx)
		if err != nil {
			p.fromThere(err)
			return
		}
		p.deliver(msg)
	}
}

// fromThere ends the session as the other side did.
func (p *pipeEnd) fromThere(err error) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	p.queue.close(nil)
	p.otherClosed(err)
}

func pipeOps() []hostcall.Op {
	return []hostcall.Op{
		{Name: "rpc.cell", Sync: func(f hostcall.Frame) error {
			target, err := actorOf(f).iso.cellTarget(f)
			return openFor(f, target, err)
		}},
		{Name: "rpc.service", Sync: func(f hostcall.Frame) error {
			target, err := actorOf(f).iso.serviceTarget(f)
			return openFor(f, target, err)
		}},
		{Name: "pipe.send", Sync: func(f hostcall.Frame) error {
			a := actorOf(f)
			p := a.takePipe(uint32(f.Arg(0).Int()))
			if p == nil {
				return nil
			}
			p.sentBy(a.callSection())
			msg := append([]byte(nil), f.Arg(1).Bytes()...)
			a.emit(func(err error) {
				if err != nil {
					p.queue.close(err)
					return
				}
				p.queue.put(msg)
			})
			return nil
		}},
		{Name: "pipe.close", Sync: func(f hostcall.Frame) error {
			a, n := actorOf(f), uint32(f.Arg(0).Int())
			var cause error
			if m := f.Arg(1); !m.IsUndefined() {
				cause = errors.New(m.Str())
			}
			if p := a.takePipe(n); p != nil {
				a.emit(func(err error) {
					if err == nil {
						err = cause
					}
					p.queue.close(err)
					a.dropPipe(n)
				})
			}
			return nil
		}},
	}
}

func openFor(f hostcall.Frame, target func(context.Context) (call.Service, error), err error) error {
	if err != nil {
		return err
	}
	n, err := actorOf(f).openTo(target)
	if err == nil {
		f.SetNum(float64(n))
	}
	return err
}
