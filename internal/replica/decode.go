package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/pierrec/lz4/v4"
	"github.com/superfly/ltx"

	"celld/internal/sqlite"
)

// readBuffer is what an object is read through: the decoder asks for a few bytes at a time.
const readBuffer = 16 << 10

// errFrame: a page of an object is not stored as this package stores pages.
var errFrame = errors.New("a page is longer than a page can be, or in a form that celld does not write")

// source is the bytes of one LTX object. It remembers when reading failed: that
// says something of the network, and nothing of the object. And it lets no page
// through whose length is absurd, because the library allocates what it is told
// (up to 4 GiB) before any checksum could object.
type source struct {
	body   io.Reader
	r      *bufio.Reader // over body, by way of fill
	failed error         // of body

	skip  int                          // bytes until the next page's head
	head  [ltx.PageHeaderSize + 4]byte // as much of it as was read
	n     int
	ended bool // the pages are over
}

func newSource(body io.Reader) *source {
	s := &source{body: body, skip: ltx.HeaderSize}
	s.r = bufio.NewReaderSize(fill{s}, readBuffer)
	return s
}

// fill reads the body and keeps its failure.
type fill struct{ s *source }

func (f fill) Read(p []byte) (int, error) {
	n, err := f.s.body.Read(p)
	if err != nil && err != io.EOF {
		f.s.failed = err
	}
	return n, err
}

func (s *source) Read(p []byte) (int, error) {
	switch {
	case s.ended:
		return s.r.Read(p)
	case s.skip > 0:
		n, err := s.r.Read(p[:min(len(p), s.skip)])
		s.skip -= n
		return n, err
	}
	part := ltx.PageHeaderSize // the number and flags, then the length
	if s.n >= part {
		part = len(s.head)
	}
	n, err := s.r.Read(p[:min(len(p), part-s.n)])
	copy(s.head[s.n:], p[:n])
	s.n += n
	if s.n == part {
		if bad := s.check(); bad != nil {
			return 0, bad
		}
	}
	return n, err
}

// check looks at a head that is complete up to one of its two parts.
func (s *source) check() error {
	flags := binary.BigEndian.Uint16(s.head[4:])
	if s.n == ltx.PageHeaderSize {
		if binary.BigEndian.Uint32(s.head[:]) == 0 && flags == 0 {
			s.ended = true
			return nil
		}
		if flags != ltx.PageHeaderFlagSize {
			return errFrame
		}
		return nil
	}
	size := binary.BigEndian.Uint32(s.head[ltx.PageHeaderSize:])
	if size == 0 || size > uint32(lz4.CompressBlockBound(sqlite.PageSize)) {
		return errFrame
	}
	s.skip, s.n = int(size), 0
	return nil
}

// decode reads an LTX file: its header first, then each page. Nothing of it is
// trustworthy before decode returned without an error.
func decode(src *source, header func(ltx.Header) error, page func(n uint32, data []byte) error) (ltx.Trailer, error) {
	dec := ltx.NewDecoder(src)
	dec.SetRetainPageIndex(false) // it would grow with the database
	if err := dec.DecodeHeader(); err != nil {
		return ltx.Trailer{}, fmt.Errorf("its header does not decode: %w", err)
	}
	if size := dec.Header().PageSize; size != sqlite.PageSize {
		return ltx.Trailer{}, fmt.Errorf("it has pages of %d bytes", size)
	}
	if err := header(dec.Header()); err != nil {
		return ltx.Trailer{}, err
	}
	data := make([]byte, sqlite.PageSize)
	for {
		var h ltx.PageHeader
		err := dec.DecodePage(&h, data)
		if err == io.EOF && src.ended {
			break
		}
		if err != nil {
			return ltx.Trailer{}, fmt.Errorf("a page does not decode: %w", err)
		}
		if h.Pgno == 0 || h.Pgno > dec.Header().Commit || h.Pgno == ltx.LockPgno(sqlite.PageSize) {
			return ltx.Trailer{}, fmt.Errorf("it holds page %d of a database of %d", h.Pgno, dec.Header().Commit)
		}
		if err := page(h.Pgno, data); err != nil {
			return ltx.Trailer{}, err
		}
	}
	if err := dec.Close(); err != nil {
		return ltx.Trailer{}, fmt.Errorf("it is damaged: %w", err)
	}
	return dec.Trailer(), nil
}
