package route

import (
	"context"
	"io"
	"sync/atomic"

	"celld/internal/call"
)

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

// holdResponse calls release when the response needs its context no more: now,
// or when its body is closed. A socket holds it until the caller's own ends.
func holdResponse(resp *call.Response, release func()) {
	switch {
	case release == nil:
	case resp.Body != nil && resp.Body.Stream != nil:
		body := *resp.Body
		body.Stream = &heldBody{body.Stream, release}
		resp.Body = &body
	case resp.Socket == nil:
		release()
	}
}

type heldBody struct {
	io.ReadCloser
	release func()
}

func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// heldPipe releases when the session has ended at either end.
type heldPipe struct {
	call.Pipe
	release func()
}

func (p *heldPipe) Close(cause error) {
	p.Pipe.Close(cause)
	p.release()
}

func (p *heldPipe) Receive(ctx context.Context) ([]byte, error) {
	msg, err := p.Pipe.Receive(ctx)
	if err != nil && ctx.Err() == nil {
		p.release()
	}
	return msg, err
}
