package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"celld/internal/sqlite"
)

const (
	walHeader   = 32
	frameHeader = 24
	frameSize   = frameHeader + sqlite.PageSize
	walMagicBE  = 0x377f0683
	walMagicLE  = 0x377f0682
)

// errRestarted: the log was emptied and begun again with other salts.
var errRestarted = errors.New("the log was restarted")

// wal reads the log of one database, from where it stopped last.
type wal struct {
	offset int64 // of the next frame; 0: the header was not read yet
	order  binary.ByteOrder
	salt   [8]byte
	sum    [2]uint32 // running checksum up to offset
	buf    []byte
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
	p.data = map[uint32][]byte{}
	pending := map[uint32][]byte{}
	offset, sum := w.offset, w.sum
	for {
		frame := make([]byte, frameSize)
		n, err := f.ReadAt(frame, offset)
		if n < frameSize {
			if err == nil || errors.Is(err, io.EOF) {
				break
			}
			return p, err
		}
		next, ok := w.check(frame, sum)
		if !ok {
			break // an older generation of the log, or a frame that is being written
		}
		sum, offset = next, offset+frameSize
		pending[binary.BigEndian.Uint32(frame)] = frame[frameHeader:]
		if size := binary.BigEndian.Uint32(frame[4:]); size != 0 {
			for n, d := range pending {
				p.data[n] = d
			}
			clear(pending)
			p.commit = size
			w.offset, w.sum = offset, sum
		}
	}
	return p, nil
}

func (w *wal) readHeader(f *os.File) (ok bool, err error) {
	h := make([]byte, walHeader)
	if n, err := f.ReadAt(h, 0); n < walHeader {
		if errors.Is(err, io.EOF) {
			return false, nil // nothing was written yet
		}
		return false, err
	}
	switch binary.BigEndian.Uint32(h) {
	case walMagicBE:
		w.order = binary.BigEndian
	case walMagicLE:
		w.order = binary.LittleEndian
	default:
		return false, fmt.Errorf("%s does not begin like a log of SQLite", f.Name())
	}
	if size := binary.BigEndian.Uint32(h[8:]); size != sqlite.PageSize {
		return false, fmt.Errorf("%s has pages of %d bytes, not %d", f.Name(), size, sqlite.PageSize)
	}
	sum := w.checksum([2]uint32{}, h[:24])
	if sum != [2]uint32{binary.BigEndian.Uint32(h[24:]), binary.BigEndian.Uint32(h[28:])} {
		return false, nil // half written
	}
	copy(w.salt[:], h[16:24])
	w.offset, w.sum = walHeader, sum
	return true, nil
}

// sameLog looks whether the log is still the one that was read.
func (w *wal) sameLog(f *os.File) error {
	var salt [8]byte
	if _, err := f.ReadAt(salt[:], 16); err != nil {
		if errors.Is(err, io.EOF) {
			return errRestarted // emptied
		}
		return err
	}
	if salt != w.salt {
		return errRestarted
	}
	return nil
}

// reset makes the next read begin at the start of a new log.
func (w *wal) reset() { w.offset = 0 }

// check verifies one frame against the salts and the running checksum.
func (w *wal) check(frame []byte, sum [2]uint32) ([2]uint32, bool) {
	if string(frame[8:16]) != string(w.salt[:]) || binary.BigEndian.Uint32(frame) == 0 {
		return sum, false
	}
	sum = w.checksum(sum, frame[:8])
	sum = w.checksum(sum, frame[frameHeader:])
	return sum, sum == [2]uint32{binary.BigEndian.Uint32(frame[16:]), binary.BigEndian.Uint32(frame[20:])}
}

// checksum is SQLite's own, over pairs of words.
func (w *wal) checksum(s [2]uint32, b []byte) [2]uint32 {
	s0, s1 := s[0], s[1]
	if w.order == binary.LittleEndian {
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
