package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"celld/internal/call"
	"celld/internal/id"
)

type kind byte

const (
	frameOpen kind = iota + 1
	frameAccept
	frameRefuse
	frameHead
	frameData
	frameEnd
	frameFail
	frameText
	frameBinary
	frameClose
	frameMessage
)

const (
	// maxFrame bounds one frame: the longest RPC or WebSocket message (32 MiB) and its envelope. A longer one ends the stream.
	maxFrame = 33 << 20
	// chunk is how much of a streamed body goes into one frame.
	chunk = 64 << 10
	// frameHeader is one byte of kind and four of length.
	frameHeader = 5
)

var errFrame = errors.New("malformed frame from a peer")

// framed reads and writes the frames of one stream. Writers may be several.
type framed struct {
	rw io.ReadWriteCloser
	r  *bufio.Reader

	mu sync.Mutex // guards w
	w  *bufio.Writer
}

func newFramed(rw io.ReadWriteCloser) *framed {
	return &framed{rw: rw, r: bufio.NewReaderSize(rw, 4<<10), w: bufio.NewWriterSize(rw, 4<<10)}
}

// write sends one frame; with flush it is on its way when write returns.
func (f *framed) write(k kind, payload []byte, flush bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var head [frameHeader]byte
	head[0] = byte(k)
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	f.w.Write(head[:])
	f.w.Write(payload)
	if flush {
		return f.w.Flush()
	}
	return nil
}

func (f *framed) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w.Flush()
}

// read returns the next frame; its payload is the caller's.
func (f *framed) read() (kind, []byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: %d bytes are more than %d", errFrame, n, maxFrame)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(f.r, payload); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return kind(head[0]), payload, nil
}

// Verb is what a call asks of its target.
type Verb byte

const (
	Fetch Verb = iota + 1
	RPC
)

// Target says whom a call means, as its caller knows it. Session and Epoch are
// what the ownership record showed; a callee that is anyone else refuses.
type Target struct {
	Cell    id.Cell
	Name    string // the name the cell's id was made from, or ""
	Session id.Session
	Epoch   id.Epoch
}

// open is the first frame of a call.
type open struct {
	Verb   Verb
	Target Target
	Head   *call.Request // for Fetch; Body is nil or bytes
	Stream bool          // a body follows as Data frames
	Length int64         // of that body; -1: unknown
}

func (o *open) encode() []byte {
	e := encoder{make([]byte, 0, 512)}
	e.uint(uint64(o.Verb))
	e.str(string(o.Target.Cell))
	e.str(o.Target.Name)
	e.str(string(o.Target.Session))
	e.uint(uint64(o.Target.Epoch))
	if o.Verb != Fetch {
		return e.b
	}
	e.str(o.Head.Method)
	e.str(o.Head.URL)
	e.fields(o.Head.Header)
	e.bytes(o.Head.CF)
	e.str(o.Head.Redirect)
	e.bool(o.Head.Upgrade)
	e.bool(o.Stream)
	e.int(o.Length)
	e.bool(o.Head.Body != nil && !o.Stream)
	if o.Head.Body != nil && !o.Stream {
		e.bytes(o.Head.Body.Bytes)
	}
	return e.b
}

func decodeOpen(b []byte) (*open, error) {
	d := decoder{b: b}
	o := &open{Verb: Verb(d.uint())}
	o.Target = Target{Cell: id.Cell(d.str()), Name: d.str(), Session: id.Session(d.str()), Epoch: id.Epoch(d.uint())}
	if o.Verb == Fetch {
		o.Head = &call.Request{Method: d.str(), URL: d.str(), Header: d.fields(), CF: d.bytes(), Redirect: d.str(), Upgrade: d.bool()}
		o.Stream, o.Length = d.bool(), d.int()
		if d.bool() {
			o.Head.Body = call.BytesBody(d.bytes())
		}
	}
	return o, d.end()
}

// encodeHead is a response without its streamed body; small bodies ride along.
func encodeHead(r *call.Response) []byte {
	e := encoder{make([]byte, 0, 256)}
	e.uint(uint64(r.Status))
	e.str(r.StatusText)
	e.fields(r.Header)
	e.bool(r.EncodeManually)
	e.bool(r.Socket != nil)
	switch {
	case r.Body == nil:
		e.uint(bodyNone)
	case r.Body.Stream != nil:
		e.uint(bodyStream)
		e.int(r.Body.Length)
	default:
		e.uint(bodyBytes)
		e.bytes(r.Body.Bytes)
	}
	return e.b
}

const (
	bodyNone = iota
	bodyBytes
	bodyStream
)

// head is a decoded response head: what the response is, and what follows.
type head struct {
	call.Response
	socket, stream bool
	length         int64
}

func decodeHead(b []byte) (*head, error) {
	d := decoder{b: b}
	h := &head{Response: call.Response{Status: int(d.uint()), StatusText: d.str(), Header: d.fields(), EncodeManually: d.bool()}}
	h.socket = d.bool()
	switch d.uint() {
	case bodyNone:
	case bodyBytes:
		h.Body = call.BytesBody(d.bytes())
	case bodyStream:
		h.stream, h.length = true, d.int()
	default:
		d.bad = true
	}
	return h, d.end()
}

// encoder and decoder: unsigned varints, zigzag varints, and strings with their length before them.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) str(s string)  { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bytes(s []byte) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}
func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}
func (e *encoder) fields(f []call.Field) {
	e.uint(uint64(len(f)))
	for _, h := range f {
		e.str(h.Name)
		e.str(h.Value)
	}
}

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	if n == 0 {
		return nil
	}
	return s
}

func (d *decoder) str() string { return string(d.bytes()) }

func (d *decoder) bool() bool {
	if len(d.b) == 0 || d.b[0] > 1 {
		d.bad, d.b = true, nil
		return false
	}
	v := d.b[0] == 1
	d.b = d.b[1:]
	return v
}

func (d *decoder) fields() []call.Field {
	n := d.uint()
	if n > uint64(len(d.b)) { // each field takes at least two bytes
		d.bad = true
		return nil
	}
	f := make([]call.Field, 0, n)
	for range n {
		f = append(f, call.Field{Name: d.str(), Value: d.str()})
	}
	return f
}

func (d *decoder) end() error {
	if d.bad || len(d.b) != 0 {
		return errFrame
	}
	return nil
}
