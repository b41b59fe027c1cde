package worker

import (
	"context"
	"errors"
	"io"
	"sync"

	"celld/internal/call"
	"celld/internal/hostcall"
)

// A WebSocket that leaves JavaScript, as the client end of a pair in a
// response, becomes a jsSocket: what the server end sends are outputs, what the
// client sends are events. A WebSocket that comes in with a response to a fetch
// is the same the other way round.

// jsSocket is the far end of a WebSocket whose near end is in JavaScript.
type jsSocket struct {
	a *actor
	n uint32

	mu     sync.Mutex
	wake   chan struct{}
	frames []call.Frame
	err    error
	closed bool
}

func (a *actor) newSocket() *jsSocket {
	s := &jsSocket{a: a, wake: make(chan struct{}, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	s.n = a.nextID
	if a.sockets == nil {
		a.sockets = map[uint32]*jsSocket{}
	}
	a.sockets[s.n] = s
	a.regular++
	return s
}

func (a *actor) takeSocket(n uint32) *jsSocket {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sockets[n]
}

func (a *actor) dropSocket(n uint32) {
	a.mu.Lock()
	if _, ok := a.sockets[n]; ok {
		delete(a.sockets, n)
		a.regular--
	}
	a.mu.Unlock()
	a.settled()
}

// giveSocket hands a socket to the response that carries it: one that
// JavaScript opened, or (negative) one of the host's that it never accepted.
func (a *actor) giveSocket(n int) (call.Socket, error) {
	if n < 0 {
		a.mu.Lock()
		far := a.foreign[uint32(-n)]
		delete(a.foreign, uint32(-n))
		a.mu.Unlock()
		if far == nil {
			return nil, throwError{"TypeError", "The WebSocket of this response was already used."}
		}
		return far, nil
	}
	s := a.takeSocket(uint32(n))
	if s == nil {
		return nil, throwError{"TypeError", "The WebSocket of this response was already used."}
	}
	return s, nil
}

// push queues a frame for the far end.
func (s *jsSocket) push(f call.Frame) {
	s.mu.Lock()
	if !s.closed && s.err == nil {
		s.frames = append(s.frames, f)
		s.closed = f.Kind == call.Close
	}
	s.mu.Unlock()
	s.signal()
}

func (s *jsSocket) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *jsSocket) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.signal()
}

func (s *jsSocket) Receive(ctx context.Context) (call.Frame, error) {
	for {
		s.mu.Lock()
		if len(s.frames) > 0 {
			f := s.frames[0]
			s.frames = s.frames[1:]
			s.mu.Unlock()
			return f, nil
		}
		err := s.err
		if s.closed && err == nil {
			err = io.EOF
		}
		s.mu.Unlock()
		if err != nil {
			return call.Frame{}, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return call.Frame{}, context.Cause(ctx)
		}
	}
}

// Send brings a frame of the far end into JavaScript, and returns when it was
// taken: who sends faster than the handler works has to wait.
func (s *jsSocket) Send(ctx context.Context, f call.Frame) error {
	if err := s.a.failure(); err != nil {
		return err
	}
	i := s.a.iso
	taken := make(chan struct{})
	s.a.event(func() error {
		defer close(taken)
		g := &i.args
		g.Reset()
		g.Num(float64(s.a.id))
		g.Num(float64(s.n))
		switch f.Kind {
		case call.Text:
			g.Str(string(f.Data))
		case call.Binary:
			g.Bytes(f.Data)
		default:
			g.Undefined()
			g.Num(float64(f.Code))
			g.Str(string(f.Data))
			g.Bool(true)
		}
		fn := i.fn.socketFrame
		if f.Kind == call.Close {
			fn = i.fn.socketClosed
		}
		_, err := i.v.CallArgs(i.ctx, fn, 0, g)
		return err
	}, func(err error) { s.fail(err) })
	select {
	case <-taken:
		return nil
	case <-s.a.ctx.Done():
		return context.Cause(s.a.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Abort tells JavaScript that the far end was lost.
func (s *jsSocket) Abort(cause error) {
	s.fail(errors.Join(io.ErrClosedPipe, cause))
	i := s.a.iso
	s.a.event(func() error {
		if s.a.takeSocket(s.n) == nil {
			return nil
		}
		g := &i.args
		g.Reset()
		g.Num(float64(s.a.id))
		g.Num(float64(s.n))
		g.Undefined()
		g.Num(1006)
		g.Str("WebSocket disconnected without sending Close frame.")
		g.Bool(false)
		_, err := i.v.CallArgs(i.ctx, i.fn.socketClosed, 0, g)
		return err
	}, func(error) {})
	s.a.dropSocket(s.n)
}

// addSocket takes a socket that came with a response. Nothing is read from it
// before JavaScript accepts it, so that it can be passed on whole.
func (a *actor) addSocket(far call.Socket) uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	if a.foreign == nil {
		a.foreign = map[uint32]call.Socket{}
	}
	a.foreign[a.nextID] = far
	return a.nextID
}

// acceptSocket begins to carry frames between a held socket and JavaScript.
func (a *actor) acceptSocket(n uint32) {
	s := &jsSocket{a: a, n: n, wake: make(chan struct{}, 1)}
	a.mu.Lock()
	far := a.foreign[n]
	delete(a.foreign, n)
	if far == nil || a.closed != nil {
		a.mu.Unlock()
		return
	}
	if a.sockets == nil {
		a.sockets = map[uint32]*jsSocket{}
	}
	a.sockets[n] = s
	a.regular++
	a.mu.Unlock()
	go s.fromThere(far)
	go s.toThere(far)
}

func (s *jsSocket) fromThere(far call.Socket) {
	for {
		f, err := far.Receive(s.a.ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			s.Abort(err)
			return
		}
		s.Send(s.a.ctx, f)
	}
}

func (s *jsSocket) toThere(far call.Socket) {
	for {
		f, err := s.Receive(s.a.ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			far.Abort(err)
			return
		}
		if far.Send(s.a.ctx, f) != nil {
			return
		}
	}
}

func socketOps() []hostcall.Op {
	send := func(kind call.FrameKind) hostcall.Sync {
		return func(f hostcall.Frame) error {
			a := actorOf(f)
			s := a.takeSocket(uint32(f.Arg(0).Int()))
			if s == nil {
				return nil
			}
			fr := call.Frame{Kind: kind, Data: append([]byte(nil), f.Arg(1).Bytes()...)}
			if kind == call.Close {
				fr.Code = f.Arg(2).Int()
			}
			a.emit(func(err error) {
				if err != nil {
					s.fail(err)
					return
				}
				s.push(fr)
			})
			return nil
		}
	}
	return []hostcall.Op{
		{Name: "socket.open", Sync: func(f hostcall.Frame) error { f.SetNum(float64(actorOf(f).newSocket().n)); return nil }},
		{Name: "socket.accept", Sync: func(f hostcall.Frame) error { actorOf(f).acceptSocket(uint32(f.Arg(0).Int())); return nil }},
		{Name: "socket.text", Sync: send(call.Text)},
		{Name: "socket.binary", Sync: send(call.Binary)},
		{Name: "socket.close", Sync: send(call.Close)},
		{Name: "socket.drop", Sync: func(f hostcall.Frame) error { actorOf(f).dropSocket(uint32(f.Arg(0).Int())); return nil }},
	}
}
