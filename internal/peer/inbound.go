package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"celld/internal/call"
)

// inbound reads what a caller sends behind its first frame: the body, then
// frames of a socket. Somebody must always be reading, since the end of the
// stream is how a callee learns that its caller is gone.
type inbound struct {
	f      *framed
	cancel context.CancelFunc // ends the handler

	pr   *io.PipeReader
	pw   *io.PipeWriter
	read atomic.Bool

	mu   sync.Mutex
	sock call.Socket
	got  *sync.Cond    // signals sock or over
	over bool          // no socket will come any more
	lost error         // the caller was lost, perhaps before there was a socket to tell
	done chan struct{} // closed when run has ended
}

func newInbound(f *framed, cancel context.CancelFunc) *inbound {
	in := &inbound{f: f, cancel: cancel, done: make(chan struct{})}
	in.got = sync.NewCond(&in.mu)
	in.pr, in.pw = io.Pipe()
	return in
}

func (in *inbound) Read(p []byte) (int, error) {
	in.read.Store(true)
	return in.pr.Read(p)
}

func (in *inbound) Close() error { return in.pr.Close() }

// touched: the handler has begun to read the body.
func (in *inbound) touched() bool { return in.read.Load() }

// socket hands over the socket that the caller's frames go to.
func (in *inbound) socket(s call.Socket) {
	in.mu.Lock()
	in.sock = s
	lost := in.lost
	in.mu.Unlock()
	in.got.Broadcast()
	if lost != nil {
		s.Abort(&LostError{lost})
	}
}

// stop ends run when the call is over.
func (in *inbound) stop() {
	in.pr.Close()
	in.mu.Lock()
	in.over = true
	in.mu.Unlock()
	in.got.Broadcast()
	in.f.rw.Close()
	closeRead(in.f.rw)
	<-in.done
}

// finish waits until the caller has taken everything and closed its end.
func (in *inbound) finish(ctx context.Context) {
	in.mu.Lock()
	in.over = true
	in.mu.Unlock()
	in.got.Broadcast()
	in.pr.Close()
	select {
	case <-in.done:
	case <-ctx.Done():
	}
}

func (in *inbound) run(body bool) {
	defer close(in.done)
	defer in.cancel()
	for body {
		k, p, err := in.f.read()
		switch {
		case err != nil:
			in.pw.CloseWithError(&LostError{io.ErrUnexpectedEOF})
			in.abort(err)
			return
		case k == frameData:
			in.pw.Write(p) // a handler that does not want the body has closed its end, and the rest is dropped
		case k == frameEnd:
			in.pw.Close()
			body = false
		case k == frameFail:
			in.pw.CloseWithError(decodeFailure(p))
			body = false
		default:
			in.pw.CloseWithError(errFrame)
			in.abort(errFrame)
			return
		}
	}
	in.frames()
}

// frames passes the caller's frames to the socket, and notices the caller's end.
func (in *inbound) frames() {
	for {
		k, p, err := in.f.read()
		if err != nil {
			in.abort(err)
			return
		}
		s := in.wait()
		if s == nil {
			return
		}
		var fr call.Frame
		switch {
		case k == frameText:
			fr = call.Frame{Kind: call.Text, Data: p}
		case k == frameBinary:
			fr = call.Frame{Kind: call.Binary, Data: p}
		case k == frameClose && len(p) >= 2:
			fr = call.Frame{Kind: call.Close, Code: int(binary.BigEndian.Uint16(p)), Data: p[2:]}
		case k == frameFail:
			s.Abort(decodeFailure(p))
			return
		default:
			s.Abort(errFrame)
			return
		}
		if s.Send(context.Background(), fr) != nil {
			return
		}
	}
}

// wait returns the socket, or nil when there will be none.
func (in *inbound) wait() call.Socket {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.sock == nil && !in.over {
		in.got.Wait()
	}
	return in.sock
}

func (in *inbound) abort(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	in.mu.Lock()
	s := in.sock
	in.lost = err
	in.mu.Unlock()
	if s != nil {
		s.Abort(&LostError{err})
	}
}
