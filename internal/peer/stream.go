package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"celld/internal/call"
)

// sendBody streams a body as Data frames, then End, or Fail if it broke.
func sendBody(f *framed, body io.ReadCloser) error {
	defer body.Close()
	buf := make([]byte, chunk)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if werr := f.write(frameData, buf[:n], true); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return f.write(frameEnd, nil, true)
		}
		if err != nil {
			f.write(frameFail, encodeFailure(err), true)
			return err
		}
	}
}

// bodyReader is a streamed body as the other side reads it.
type bodyReader struct {
	f    *framed
	end  func()
	rest []byte
	err  error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.next()
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *bodyReader) next() {
	k, p, err := b.f.read()
	switch {
	case err != nil:
		b.err = &LostError{io.ErrUnexpectedEOF}
	case k == frameData:
		b.rest = p
	case k == frameEnd:
		b.err = io.EOF
	case k == frameFail:
		b.err = decodeFailure(p)
	default:
		b.err = errFrame
	}
}

func (b *bodyReader) Close() error {
	if b.end != nil {
		b.end()
	}
	return nil
}

// socket is one end of a WebSocket that crosses the tunnel.
type socket struct {
	f      *framed
	end    func()
	closed bool // a Close frame was received
}

func (s *socket) Receive(ctx context.Context) (call.Frame, error) {
	if s.closed {
		return call.Frame{}, io.EOF
	}
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	k, p, err := s.f.read()
	if err != nil {
		return call.Frame{}, &LostError{err}
	}
	switch k {
	case frameText:
		return call.Frame{Kind: call.Text, Data: p}, nil
	case frameBinary:
		return call.Frame{Kind: call.Binary, Data: p}, nil
	case frameClose:
		if len(p) < 2 {
			return call.Frame{}, errFrame
		}
		s.closed = true
		return call.Frame{Kind: call.Close, Code: int(binary.BigEndian.Uint16(p)), Data: p[2:]}, nil
	case frameFail:
		return call.Frame{}, decodeFailure(p)
	}
	return call.Frame{}, errFrame
}

func (s *socket) Send(_ context.Context, fr call.Frame) error {
	var err error
	switch fr.Kind {
	case call.Text:
		err = s.f.write(frameText, fr.Data, true)
	case call.Binary:
		err = s.f.write(frameBinary, fr.Data, true)
	default:
		err = s.f.write(frameClose, append(binary.BigEndian.AppendUint16(nil, uint16(fr.Code)), fr.Data...), true)
	}
	if err != nil {
		return &LostError{err}
	}
	return nil
}

func (s *socket) Abort(cause error) {
	if cause != nil {
		s.f.write(frameFail, encodeFailure(cause), true)
	}
	s.end()
}

// pipe is one end of an RPC session that crosses the tunnel.
type pipe struct {
	f    *framed
	end  func()
	once sync.Once
}

func (p *pipe) Receive(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, p.end)
	defer stop()
	k, b, err := p.f.read()
	switch {
	case err != nil:
		return nil, &LostError{err}
	case k == frameMessage:
		return b, nil
	case k == frameEnd:
		return nil, io.EOF
	case k == frameFail:
		return nil, decodeFailure(b)
	}
	return nil, errFrame
}

func (p *pipe) Send(_ context.Context, msg []byte) error {
	if err := p.f.write(frameMessage, msg, true); err != nil {
		return &LostError{err}
	}
	return nil
}

func (p *pipe) Close(cause error) {
	p.once.Do(func() {
		if cause == nil {
			p.f.write(frameEnd, nil, true)
		} else {
			p.f.write(frameFail, encodeFailure(cause), true)
		}
		p.end()
	})
}

// A stream begins with the name of what it carries.
const (
	callProtocol = "call"
	maxPreamble  = 64
)

func writePreamble(w io.Writer, protocol string) error {
	_, err := w.Write(append([]byte{byte(len(protocol))}, protocol...))
	return err
}

func readPreamble(r io.Reader) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", err
	}
	if n[0] > maxPreamble {
		return "", errFrame
	}
	name := make([]byte, n[0])
	_, err := io.ReadFull(r, name)
	return string(name), err
}

// closeRead wakes a reader of the stream; yamux has no half of its own for that.
func closeRead(rw io.Closer) {
	if c, ok := rw.(net.Conn); ok {
		c.SetReadDeadline(time.Unix(1, 0))
	}
}
