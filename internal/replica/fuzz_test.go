package replica

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/superfly/ltx"

	"celld/internal/bucket/mem"
	"celld/internal/id"
	"celld/internal/sqlite"
)

// madeLog is a log as SQLite writes it.
func madeLog(t testing.TB) []byte {
	d := open(t, replicator(t, mem.New()), 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	d.exec("INSERT INTO t VALUES (1)")
	d.exec("INSERT INTO t VALUES (zeroblob(9000))")
	b, err := os.ReadFile(d.st.Path() + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	return b
}

func readAll(t testing.TB, b []byte) (pages, wal, error) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var w wal
	p, err := w.read(f)
	return p, w, err
}

// Wherever a log is cut, what is read is a prefix of its transactions.
func TestALogThatIsCut(t *testing.T) {
	b := madeLog(t)
	whole, end, err := readAll(t, b)
	if err != nil || whole.commit == 0 || end.offset != int64(len(b)) {
		t.Fatal(whole.commit, end.offset, err)
	}
	for n := len(b); n >= walHeader; n -= 1000 {
		p, w, err := readAll(t, b[:n])
		if err != nil || w.offset > int64(n) || len(p.data) > len(whole.data) {
			t.Fatalf("%d bytes: read to %d, %v", n, w.offset, err)
		}
	}
}

// A flipped bit ends the chain before the frame that it is in.
func TestALogWithAFlippedBit(t *testing.T) {
	b := madeLog(t)
	for at := walHeader; at < len(b); at += 977 {
		if in := (at - walHeader) % frameSize; in >= 16 && in < frameHeader {
			continue // in the checksum itself: ends it as well, by the next test
		}
		c := bytes.Clone(b)
		c[at] ^= 0x10
		_, w, err := readAll(t, c)
		frame := int64(walHeader + (at-walHeader)/frameSize*frameSize)
		if err != nil || w.offset > frame {
			t.Fatalf("bit at %d: read to %d, %v", at, w.offset, err)
		}
	}
}

// Whatever lies there, the reader stops inside of it and gives whole pages.
func FuzzLog(f *testing.F) {
	b := madeLog(f)
	f.Add(b)
	f.Add(b[:walHeader+frameSize+7])
	f.Add(b[:walHeader])
	f.Fuzz(func(t *testing.T, b []byte) {
		p, w, err := readAll(t, b)
		if err != nil {
			return
		}
		if w.offset > int64(len(b)) {
			t.Fatalf("read to %d of %d", w.offset, len(b))
		}
		for n, d := range p.data {
			if n == 0 || n > p.commit && len(p.data) == 1 || len(d) != sqlite.PageSize {
				t.Fatalf("page %d of %d has %d bytes", n, p.commit, len(d))
			}
		}
	})
}

func madeSegment(t testing.TB) []byte {
	var s sums
	f := file{Range: Range{1, 3}, commit: 3, at: time.UnixMilli(9), pages: map[uint32][]byte{}}
	for n := uint32(1); n <= 3; n++ {
		f.pages[n] = bytes.Repeat([]byte{byte(n), 0, 0, 7}, sqlite.PageSize/4)
		s.set(n, pageSum(n, f.pages[n]))
	}
	f.post = s.checksum()
	b, err := encode(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzSegment: an object is applied whole or refused, and never takes the node down.
func FuzzSegment(f *testing.F) {
	b := madeSegment(f)
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		dst, err := os.Create(filepath.Join(t.TempDir(), "db"))
		if err != nil {
			t.Fatal(err)
		}
		defer dst.Close()
		s := &Stream{cell: cell, epoch: 2}
		if err := s.apply(dst, Key{cell, 1, LevelRaw, Range{1, 3}}, bytes.NewReader(b)); err != nil {
			return
		}
		if sums, err := sumFile(dst.Name()); err != nil || sums.checksum() != s.sums.checksum() || s.pos != 3 {
			t.Fatalf("position %d, %v", s.pos, err)
		}
	})
}

// A length that no page has is refused before anything is allocated for it.
func TestAnAbsurdLength(t *testing.T) {
	b := madeSegment(t)
	for _, size := range []uint32{0, 5000, 1 << 31, 1<<32 - 1} {
		c := bytes.Clone(b)
		binary.BigEndian.PutUint32(c[ltx.HeaderSize+ltx.PageHeaderSize:], size)
		_, err := decode(newSource(bytes.NewReader(c)), func(ltx.Header) error { return nil }, func(uint32, []byte) error { return nil })
		if err == nil {
			t.Errorf("%d bytes were taken", size)
		}
		if err := compactTo(t.Context(), io.Discard, []io.Reader{newSource(bytes.NewReader(c))}); err == nil {
			t.Errorf("%d bytes were compacted", size)
		}
	}
}

// What was compacted restores to what its parts restore to.
func FuzzPlanWithCompaction(f *testing.F) {
	f.Add([]byte{3, 5, 2, 8, 1}, uint8(2), uint8(3))
	f.Fuzz(func(t *testing.T, lengths []byte, from, many uint8) {
		if len(lengths) == 0 || len(lengths) > 60 {
			return
		}
		// Epochs follow each other, each with raw objects of some length.
		var raw []Key
		next := id.TXID(1)
		for i, l := range lengths {
			n := id.TXID(l%7) + 1
			raw = append(raw, Key{cell, id.Epoch(1 + i/5), LevelRaw, Range{next, next + n - 1}})
			next += n
		}
		before := id.Epoch(100)
		want, err := plan(cell, raw, before)
		if err != nil || want[len(want)-1].Max != next-1 {
			t.Fatal(err)
		}
		a := int(from) % len(raw)
		b := min(len(raw)-1, a+int(many)%fanout)
		for raw[b].Epoch != raw[a].Epoch {
			b-- // compaction stays in its own epoch
		}
		more := append(raw, Key{cell, raw[a].Epoch, 1, Range{raw[a].Min, raw[b].Max}})
		got, err := plan(cell, more, before)
		if err != nil || got[len(got)-1].Max != next-1 || len(got) > len(want) {
			t.Fatalf("%v: %v", got, err)
		}
		// The same from a superseded owner, reaching beyond what its successor took over.
		if next > raw[b].Max+1 && raw[b].Epoch < raw[len(raw)-1].Epoch {
			stale := Key{cell, raw[a].Epoch, 1, Range{raw[a].Min, next + 3}}
			got, err := plan(cell, append(more, stale), before)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range got {
				if k == stale {
					t.Fatalf("%v is used", stale)
				}
			}
		}
	})
}
