package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"celld/internal/sqlite"
)

const (
	walHeader   = 32
	frameHeader = 24
	frameSize   = frameHeader + sqlite.PageSize
	walMagicBE  = 0x377f0683
	walMagicLE  = 0x377f0682
)

var (
	// errRestarted: the log was emptied and begun again with other salts.
	errRestarted = errors.New("the log was restarted")
	// errDamaged: frames that the open database relies on are gone from its log.
	// The database itself can no longer be trusted, the bucket can.
	errDamaged = errors.New("the log was cut or overwritten while the database was open; the cell goes on from the bucket")
)

// framesAtOnce is how much of the log one read takes.
const framesAtOnce = 8

var frameBuffers = sync.Pool{New: func() any { return new([framesAtOnce * frameSize]byte) }}

// wal reads the log of one database, from where it stopped last.
type wal struct {
	offset int64 // of the next frame; 0: the header was not read yet
	order  binary.ByteOrder
	salt   [8]byte
	sum    [2]uint32 // running checksum up to offset
}

// pages are the newest versions of the pages that transactions changed, and the
// size of the database behind the last of them, in pages.
type pages struct {
	data   map[uint32][]byte
	commit uint32
}

// read takes the frames that were committed since the last read. Frames behind
// the last commit are not there yet. A log that was begun anew is errRestarted;
// after reset it is read from its start.
func (w *wal) read(f *os.File) (p pages, err error) {
	if w.offset == 0 {
		if ok, err := w.readHeader(f); err != nil || !ok {
			return p, err
		}
	} else if err := w.sameLog(f); err != nil {
		return p, err
	}
	buf := frameBuffers.Get().(*[framesAtOnce * frameSize]byte)
	defer frameBuffers.Put(buf)
	t := transactions{offset: w.offset, sum: w.sum, pages: pages{data: map[uint32][]byte{}}}
	again := 0 // what is read once more, to see that it is still there
	if w.offset > walHeader {
		again = frameSize
	}
	for more := true; more; again = 0 {
		n, err := f.ReadAt(buf[:], t.offset-int64(again))
		if err != nil && !errors.Is(err, io.EOF) {
			return p, err
		}
		if again > 0 && !w.isLast(buf[:n]) {
			return p, errDamaged
		}
		more = w.frames(&t, buf[again:n]) && n == len(buf)
	}
	return t.pages, nil
}

// transactions are what one read of the log found so far.
type transactions struct {
	offset  int64 // of the next frame
	sum     [2]uint32
	pending []page // of a transaction whose last frame was not seen yet
	pages
}

type page struct {
	n    uint32
	data []byte
}

// frames takes the frames in b, and tells whether all of them count. A frame that
// does not belong to the chain ends it: it is left from a transaction that was
// rolled back, or of an older generation of the log.
func (w *wal) frames(t *transactions, b []byte) bool {
	for ; len(b) >= frameSize; b = b[frameSize:] {
		next, ok := w.check(b[:frameSize], t.sum)
		if !ok {
			return false
		}
		t.sum, t.offset = next, t.offset+frameSize
		t.pending = append(t.pending, page{binary.BigEndian.Uint32(b), slices.Clone(b[frameHeader:frameSize])})
		if size := binary.BigEndian.Uint32(b[4:]); size != 0 {
			t.commit(size)
			w.offset, w.sum = t.offset, t.sum
		}
	}
	return true
}

// commit makes the pending pages part of the result.
func (t *transactions) commit(size uint32) {
	for _, p := range t.pending {
		t.data[p.n] = p.data
	}
	t.pending = t.pending[:0]
	cut(t.data, t.pages.commit, size)
	t.pages.commit = size
}

// cut drops the pages behind the end of a database that shrank. Should it grow
// again, what was there is not what is there.
func cut(data map[uint32][]byte, before, now uint32) {
	if now >= before {
		return
	}
	for n := range data {
		if n > now {
			delete(data, n)
		}
	}
}

// readHeader begins with a log; ok is false while nothing was written to it.
func (w *wal) readHeader(f *os.File) (ok bool, err error) {
	var h [walHeader]byte
	n, err := f.ReadAt(h[:], 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return false, err
	case n == 0:
		return false, nil
	}
	order, sum, ok := parseHeader(h[:n])
	if !ok {
		return false, fmt.Errorf("%s does not begin like a log of a cell: %w", f.Name(), errDamaged)
	}
	copy(w.salt[:], h[16:24])
	w.order, w.offset, w.sum = order, walHeader, sum
	return true, nil
}

// parseHeader checks the header of a log, and gives what its frames go on from.
func parseHeader(h []byte) (order binary.ByteOrder, sum [2]uint32, ok bool) {
	if len(h) < walHeader || binary.BigEndian.Uint32(h[8:]) != sqlite.PageSize {
		return nil, sum, false
	}
	switch binary.BigEndian.Uint32(h) {
	case walMagicBE:
		order = binary.BigEndian
	case walMagicLE:
		order = binary.LittleEndian
	default:
		return nil, sum, false
	}
	sum = checksum(order, sum, h[:24])
	return order, sum, sum == [2]uint32{binary.BigEndian.Uint32(h[24:]), binary.BigEndian.Uint32(h[28:])}
}

// sameLog looks whether the log is still the one that was read.
func (w *wal) sameLog(f *os.File) error {
	var h [walHeader]byte
	n, err := f.ReadAt(h[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, _, ok := parseHeader(h[:n])
	switch {
	case !ok:
		return errDamaged
	case string(h[16:24]) != string(w.salt[:]):
		return errRestarted
	}
	return nil
}

// isLast tells whether b begins with the frame that was read last: whoever cuts
// the log destroys it, also where SQLite has written behind the hole since.
func (w *wal) isLast(b []byte) bool {
	return len(b) >= frameSize && string(b[8:16]) == string(w.salt[:]) &&
		w.sum == [2]uint32{binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:])}
}

// reset makes the next read begin at the start of a new log.
func (w *wal) reset() { w.offset = 0 }

// check verifies one frame against the salts and the running checksum.
func (w *wal) check(frame []byte, sum [2]uint32) ([2]uint32, bool) {
	if string(frame[8:16]) != string(w.salt[:]) || binary.BigEndian.Uint32(frame) == 0 {
		return sum, false
	}
	sum = checksum(w.order, sum, frame[:8])
	sum = checksum(w.order, sum, frame[frameHeader:])
	return sum, sum == [2]uint32{binary.BigEndian.Uint32(frame[16:]), binary.BigEndian.Uint32(frame[20:])}
}

// checksum is SQLite's own, over pairs of words.
func checksum(order binary.ByteOrder, s [2]uint32, b []byte) [2]uint32 {
	s0, s1 := s[0], s[1]
	if order == binary.LittleEndian {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.LittleEndian.Uint32(b) + s1
			s1 += binary.LittleEndian.Uint32(b[4:]) + s0
		}
	} else {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.BigEndian.Uint32(b) + s1
			s1 += binary.BigEndian.Uint32(b[4:]) + s0
		}
	}
	return [2]uint32{s0, s1}
}
