package webapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"celld/internal/hostcall"
)

var zipOps = []hostcall.Op{
	{Name: "zip.open", Sync: zipOpen},
	{Name: "zip.push", Async: zipPush},
	{Name: "zip.finish", Async: zipFinish},
	{Name: "zip.drop", Sync: func(f hostcall.Frame) error {
		if c, ok := codecs.Drop(f.Arg(0).Int()); ok {
			c.close()
		}
		return nil
	}},
}

// codec is a stream on its way through a compressor or a decompressor.
type codec interface {
	push(p []byte) ([]byte, error)
	finish() ([]byte, error)
	close()
}

var codecs Handles[codec]

var (
	errCodecGone    = &hostcall.Throw{Class: "TypeError", Message: "The compression stream has ended."}
	errDecompress   = &hostcall.Throw{Class: "TypeError", Message: "Decompression failed."}
	errIncomplete   = &hostcall.Throw{Class: "TypeError", Message: "Called close() on a decompression stream with incomplete data"}
	errTrailingData = &hostcall.Throw{Class: "TypeError", Message: "Trailing bytes after end of compressed data"}
)

// zipOpen (format, compress) begins a stream and gives its number.
func zipOpen(f hostcall.Frame) error {
	format := f.Arg(0).Str()
	var c codec
	if f.Arg(1).Bool() {
		w, err := newDeflater(format)
		if err != nil {
			return err
		}
		c = w
	} else {
		c = newInflater(format)
	}
	f.SetNum(float64(codecs.Add(f, c, c.close)))
	return nil
}

// zipPush (id, bytes) gives the output that the bytes bring about.
func zipPush(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	c, ok := codecs.Get(f.Arg(0).Int())
	if !ok {
		return nil, errCodecGone
	}
	p := bytes.Clone(f.Arg(1).Bytes())
	return func(context.Context) (hostcall.Value, error) {
		out, err := c.push(p)
		return hostcall.Buf(out), err
	}, nil
}

// zipFinish (id) gives the rest of the output, and forgets the stream.
func zipFinish(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	c, ok := codecs.Drop(f.Arg(0).Int())
	if !ok {
		return nil, errCodecGone
	}
	return func(context.Context) (hostcall.Value, error) {
		defer c.close()
		out, err := c.finish()
		return hostcall.Buf(out), err
	}, nil
}

// ---- compression

type deflater struct {
	out bytes.Buffer
	w   io.WriteCloser
}

func newDeflater(format string) (*deflater, error) {
	d := &deflater{}
	switch format {
	case "gzip":
		d.w = gzip.NewWriter(&d.out)
	case "deflate":
		d.w = zlib.NewWriter(&d.out)
	case "deflate-raw":
		d.w, _ = flate.NewWriter(&d.out, flate.DefaultCompression)
	case "brotli":
		d.w = brotli.NewWriter(&d.out)
	default:
		return nil, fmt.Errorf("no compression format %q", format)
	}
	return d, nil
}

func (d *deflater) push(p []byte) ([]byte, error) {
	_, err := d.w.Write(p)
	return d.take(), err
}

func (d *deflater) finish() ([]byte, error) {
	err := d.w.Close()
	return d.take(), err
}

func (d *deflater) take() []byte {
	b := bytes.Clone(d.out.Bytes())
	d.out.Reset()
	return b
}

func (d *deflater) close() {}

// ---- decompression

// inflater runs a decoder, which pulls, on a goroutine of its own, because
// JavaScript pushes. A push ends when the decoder asks for more input.
type inflater struct {
	in     chan []byte   // chunks for the decoder; closed at the end of input
	asks   chan struct{} // the decoder wants more than it was given
	ended  chan struct{} // the decoder is done; err and rest are set
	gone   chan struct{} // nobody wants the output any more
	once   sync.Once
	start  sync.Once
	format string

	mu  sync.Mutex
	out []byte

	chunk []byte // what the decoder has not read of the last chunk
	err   error
}

func newInflater(format string) *inflater {
	return &inflater{in: make(chan []byte), asks: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}), format: format}
}

// begin starts the decoder at the first input: a stream that is never used costs no goroutine.
func (d *inflater) begin() {
	d.start.Do(func() {
		go d.run()
		select {
		case <-d.asks:
		case <-d.ended:
		}
	})
}

func (d *inflater) push(p []byte) ([]byte, error) {
	d.begin()
	if len(p) == 0 {
		return nil, nil
	}
	select {
	case d.in <- p:
	case <-d.ended:
		return d.after(errTrailingData)
	}
	select {
	case <-d.asks:
		return d.take(), nil
	case <-d.ended:
		return d.after(nil)
	}
}

// after is what a push gives once the decoder has ended by itself.
func (d *inflater) after(late error) ([]byte, error) {
	switch {
	case d.err != nil:
		return nil, errDecompress
	case late != nil || len(d.chunk) > 0:
		return nil, errTrailingData
	}
	return d.take(), nil
}

func (d *inflater) finish() ([]byte, error) {
	d.begin()
	select {
	case <-d.ended:
	default:
		close(d.in)
		<-d.ended
	}
	switch {
	case errors.Is(d.err, io.ErrUnexpectedEOF) || errors.Is(d.err, io.EOF):
		return nil, errIncomplete
	case d.err != nil:
		return nil, errDecompress
	}
	return d.take(), nil
}

func (d *inflater) close() { d.once.Do(func() { close(d.gone) }) }

func (d *inflater) take() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.out
	d.out = nil
	return b
}

// run is the decoder's goroutine. It ends with the data, with an error, or when the stream is dropped.
func (d *inflater) run() {
	defer close(d.ended)
	r, err := d.decoder()
	if err != nil {
		d.err = err
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		d.mu.Lock()
		d.out = append(d.out, buf[:n]...)
		d.mu.Unlock()
		if err == io.EOF {
			return
		}
		if err != nil {
			d.err = err
			return
		}
	}
}

func (d *inflater) decoder() (io.Reader, error) {
	src := (*feed)(d)
	switch d.format {
	case "gzip":
		r, err := gzip.NewReader(src)
		if err != nil {
			return nil, err
		}
		r.Multistream(false)
		return r, nil
	case "deflate":
		return zlib.NewReader(src)
	case "deflate-raw":
		return flate.NewReader(src), nil
	}
	return brotli.NewReader(src), nil
}

// feed is the decoder's input. It is a ByteReader, so that decoders take no byte beyond their end.
type feed inflater

func (s *feed) more() error {
	for len(s.chunk) == 0 {
		select {
		case s.asks <- struct{}{}:
		case <-s.gone:
			return context.Canceled
		}
		select {
		case p, ok := <-s.in:
			if !ok {
				return io.EOF
			}
			s.chunk = p
		case <-s.gone:
			return context.Canceled
		}
	}
	return nil
}

func (s *feed) Read(p []byte) (int, error) {
	if err := s.more(); err != nil {
		return 0, err
	}
	n := copy(p, s.chunk)
	s.chunk = s.chunk[n:]
	return n, nil
}

func (s *feed) ReadByte() (byte, error) {
	if err := s.more(); err != nil {
		return 0, err
	}
	b := s.chunk[0]
	s.chunk = s.chunk[1:]
	return b, nil
}
