// Package call holds what travels between a client, a Worker and a cell:
// requests, responses, sockets and RPC messages, and the one interface that
// everything callable has. A stateless entrypoint, a cell on this node, a cell
// behind the peer tunnel and a service of ours are all a Service; whoever holds
// one need not know which.
package call

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Service is anything that answers calls. ctx ends when the caller is gone.
type Service interface {
	// Fetch returns when the response head may be shown to the caller. The
	// caller closes the response's body.
	Fetch(ctx context.Context, r *Request) (*Response, error)
	// RPC opens a session of RPC messages; the runtime on both ends gives them meaning.
	RPC(ctx context.Context) (Pipe, error)
}

// Field is one header line. Names are as the sender wrote them.
type Field struct{ Name, Value string }

// Request is one HTTP request on its way to a handler.
type Request struct {
	Method string
	URL    string // absolute
	Header []Field
	Body   *Body  // nil: no body
	CF     []byte // JSON of request.cf, or nil
	// Redirect is "follow" or "manual"; it means something only for outbound calls.
	Redirect string
	// WebSocket: the caller asks for an upgrade.
	Upgrade bool
}

// Response is a handler's answer.
type Response struct {
	Status     int
	StatusText string
	Header     []Field
	Body       *Body  // nil: no body
	Socket     Socket // set when Status is 101
	// EncodeManually: the body is already in its Content-Encoding.
	EncodeManually bool
}

// Body is bytes at hand, or a stream. Exactly one of the two is used.
type Body struct {
	Bytes  []byte
	Stream io.ReadCloser
	Length int64 // of Stream; -1: unknown
}

// BytesBody is a body that is already here.
func BytesBody(b []byte) *Body { return &Body{Bytes: b, Length: int64(len(b))} }

// StreamBody is a body that arrives as it is read.
func StreamBody(r io.ReadCloser, length int64) *Body { return &Body{Stream: r, Length: length} }

// Frame is one WebSocket message, or a close.
type Frame struct {
	Kind FrameKind
	Data []byte // payload; for Close the reason
	Code int    // for Close
}

// FrameKind tells the three kinds of frames apart.
type FrameKind uint8

const (
	Text FrameKind = iota + 1
	Binary
	Close
)

// Socket is one end of an accepted WebSocket. After a Close frame was received
// Receive returns io.EOF; a connection lost without one gives another error.
type Socket interface {
	Receive(ctx context.Context) (Frame, error)
	Send(ctx context.Context, f Frame) error
	// Abort tears the connection down without a close handshake.
	Abort(cause error)
}

// Pipe carries the messages of one RPC session, in order, both ways.
type Pipe interface {
	Receive(ctx context.Context) ([]byte, error) // io.EOF when the other end closed
	Send(ctx context.Context, msg []byte) error
	// Close ends the session for both ends; nil means that all is well.
	Close(cause error)
}

// ErrNotStarted is in the chain of every error that proves that no handler
// ran, so that the call may be made again.
var ErrNotStarted = errors.New("the handler was not started")

// ErrOverloaded: the callee has too much to do and refused before it started.
var ErrOverloaded = fmt.Errorf("overloaded: %w", ErrNotStarted)

// ErrFenced: this node cannot prove its authority any more.
var ErrFenced = errors.New("this node is fenced")

// ErrUnproven: a write could not be proven durable in time. It may survive or not.
var ErrUnproven = errors.New("durability unproven: the write may or may not have been kept")

// Exception is an error that a handler threw, as the caller sees it.
type Exception struct {
	Name    string // class, "Error", "TypeError", …
	Message string
	Stack   string
	// Remote: thrown behind an RPC boundary. Retryable, Overloaded and Reset
	// are the flags that the platform documents on such errors.
	Remote, Retryable, Overloaded, Reset bool
	// Clone is the error in structured-clone form when it could be cloned.
	Clone []byte
}

func (e *Exception) Error() string {
	if e.Name == "" {
		return e.Message
	}
	return e.Name + ": " + e.Message
}
