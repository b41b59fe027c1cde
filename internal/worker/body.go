package worker

import (
	"context"
	"errors"
	"io"
	"sync"

	"celld/internal/call"
	"celld/internal/hostcall"
)

// readSize is how much of an incoming body JavaScript gets at once.
const readSize = 64 << 10

// inBody is a body that JavaScript reads.
type inBody struct {
	r    io.ReadCloser
	once sync.Once
}

func (b *inBody) cancel() { b.once.Do(func() { go b.r.Close() }) }

func (a *actor) addIn(r io.ReadCloser) uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		go r.Close()
		return 0
	}
	a.nextID++
	if a.in == nil {
		a.in = map[uint32]*inBody{}
	}
	a.in[a.nextID] = &inBody{r: r}
	return a.nextID
}

func (a *actor) takeIn(n uint32) *inBody {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.in[n]
}

func (a *actor) dropIn(n uint32) {
	a.mu.Lock()
	b := a.in[n]
	delete(a.in, n)
	a.mu.Unlock()
	if b != nil {
		b.cancel()
	}
}

// readBody is body.read: the next bytes, or null at the end.
func readBody(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	a, n := actorOf(f), uint32(f.Arg(0).Int())
	b := a.takeIn(n)
	if b == nil {
		return nil, &hostcall.Throw{Class: "TypeError", Message: "The body was cancelled or has ended."}
	}
	return func(context.Context) (hostcall.Value, error) {
		buf := make([]byte, readSize)
		for {
			got, err := b.r.Read(buf)
			switch {
			case got > 0:
				return hostcall.Buf(buf[:got]), nil
			case errors.Is(err, io.EOF):
				a.dropIn(n)
				return hostcall.Value{Kind: hostcall.Null}, nil
			case err != nil:
				a.dropIn(n)
				return hostcall.Value{}, err
			}
		}
	}, nil
}

// outBody is a body that JavaScript writes and its reader takes, one chunk at a
// time: a write is done when its chunk was taken, which is the back-pressure.
type outBody struct {
	mu     sync.Mutex
	wake   *sync.Cond
	chunks []outChunk
	rest   []byte
	ended  bool
	err    error
	gone   bool // the reader closed
	onGone func()
}

type outChunk struct {
	data  []byte
	taken func(error)
}

func newOutBody() *outBody {
	b := &outBody{}
	b.wake = sync.NewCond(&b.mu)
	return b
}

var errReaderGone = errors.New("the reader of this stream is gone")

func (b *outBody) write(data []byte, taken func(error)) {
	b.mu.Lock()
	if b.gone || b.err != nil {
		b.mu.Unlock()
		taken(errReaderGone)
		return
	}
	b.chunks = append(b.chunks, outChunk{data, taken})
	b.mu.Unlock()
	b.wake.Broadcast()
}

func (b *outBody) close() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.wake.Broadcast()
}

func (b *outBody) abort(err error) {
	b.mu.Lock()
	if !b.ended && b.err == nil {
		b.err = err
	}
	chunks := b.chunks
	if b.err != nil {
		b.chunks = nil
	} else {
		chunks = nil
	}
	b.mu.Unlock()
	b.wake.Broadcast()
	for _, c := range chunks {
		c.taken(err)
	}
}

func (b *outBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	for len(b.rest) == 0 && len(b.chunks) == 0 && !b.ended && b.err == nil && !b.gone {
		b.wake.Wait()
	}
	if len(b.rest) == 0 && len(b.chunks) > 0 {
		c := b.chunks[0]
		b.chunks = b.chunks[1:]
		b.rest = c.data
		b.mu.Unlock()
		c.taken(nil)
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	switch {
	case len(b.rest) > 0:
		n := copy(p, b.rest)
		b.rest = b.rest[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	case b.gone:
		return 0, io.ErrClosedPipe
	case b.ended && len(b.chunks) == 0:
		return 0, io.EOF
	}
	return 0, nil
}

func (b *outBody) Close() error {
	b.mu.Lock()
	if b.gone {
		b.mu.Unlock()
		return nil
	}
	b.gone = true
	chunks := b.chunks
	b.chunks = nil
	ended, onGone := b.ended, b.onGone
	b.mu.Unlock()
	b.wake.Broadcast()
	for _, c := range chunks {
		c.taken(errReaderGone)
	}
	if onGone != nil && !ended {
		onGone()
	}
	return nil
}

func (a *actor) addOut() (uint32, *outBody) {
	b := newOutBody()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	if a.out == nil {
		a.out = map[uint32]*outBody{}
	}
	a.out[a.nextID] = b
	return a.nextID, b
}

func (a *actor) takeOut(n uint32) *outBody {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out[n]
}

func (a *actor) dropOut(n uint32) {
	a.mu.Lock()
	delete(a.out, n)
	a.mu.Unlock()
	a.settled()
}

// bodyFrom is the body that JavaScript passed as bytes, text or the id of a stream it writes.
func (a *actor) bodyFrom(arg hostcall.Arg, stream int, length float64) *call.Body {
	if stream != 0 {
		b := a.takeOut(uint32(stream))
		if b == nil {
			return nil
		}
		return call.StreamBody(b, int64(length))
	}
	if arg.IsUndefined() || arg.IsNull() {
		return nil
	}
	return call.BytesBody(append([]byte(nil), arg.Bytes()...))
}

func bodyOps() []hostcall.Op {
	return []hostcall.Op{
		{Name: "body.read", Async: readBody},
		{Name: "body.cancel", Sync: func(f hostcall.Frame) error { actorOf(f).dropIn(uint32(f.Arg(0).Int())); return nil }},
		{Name: "body.open", Sync: func(f hostcall.Frame) error {
			n, _ := actorOf(f).addOut()
			f.SetNum(float64(n))
			return nil
		}},
		{Name: "body.write", Async: writeBody},
		{Name: "body.close", Sync: func(f hostcall.Frame) error {
			a, n := actorOf(f), uint32(f.Arg(0).Int())
			if b := a.takeOut(n); b != nil {
				a.emit(func(err error) {
					if err != nil {
						b.abort(err)
					} else {
						b.close()
					}
					a.dropOut(n)
				})
			}
			return nil
		}},
		{Name: "body.abort", Sync: func(f hostcall.Frame) error {
			a, n := actorOf(f), uint32(f.Arg(0).Int())
			cause := errors.New(f.Arg(1).Str())
			if b := a.takeOut(n); b != nil {
				a.emit(func(error) { b.abort(cause); a.dropOut(n) })
			}
			return nil
		}},
	}
}

// writeBody is body.write: its promise is settled when the chunk was taken.
func writeBody(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	a, n := actorOf(f), uint32(f.Arg(0).Int())
	data := append([]byte(nil), f.Arg(1).Bytes()...)
	promise := a.iso.promise
	b := a.takeOut(n)
	if b == nil {
		return nil, &hostcall.Throw{Class: "TypeError", Message: errReaderGone.Error()}
	}
	a.emit(func(err error) {
		if err != nil {
			b.abort(err)
			a.complete(promise, hostcall.Value{}, err)
			return
		}
		b.write(data, func(err error) { a.complete(promise, hostcall.Value{}, err) })
	})
	return nil, nil
}
