package replica

import (
	"encoding/binary"
	"hash/crc64"
	"slices"
	"sync"
	"time"

	"github.com/pierrec/lz4/v4"
	"github.com/superfly/ltx"

	"celld/internal/sqlite"
)

// encoder makes LTX files. The library's own encoder gives up 158 KB of garbage
// for each file; most of ours hold a page or two, thousands of times a second.
// Its decoder reads what this writes, and a test holds the two together.
type encoder struct {
	lz    lz4.Compressor
	block []byte
	out   []byte
	index []byte
	hash  uint64
}

var (
	table    = crc64.MakeTable(crc64.ISO)
	encoders = sync.Pool{New: func() any { return &encoder{block: make([]byte, lz4.CompressBlockBound(sqlite.PageSize))} }}
)

// file is one LTX file to be made.
type file struct {
	Range
	commit    uint32
	pre, post ltx.Checksum
	at        time.Time
	pages     map[uint32][]byte
}

// encode makes the bytes of an LTX file.
func encode(f file) ([]byte, error) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	return e.encode(f)
}

func (e *encoder) encode(f file) ([]byte, error) {
	h := ltx.Header{Version: ltx.Version, PageSize: sqlite.PageSize, Commit: f.commit, MinTXID: ltx.TXID(f.Min), MaxTXID: ltx.TXID(f.Max),
		Timestamp: f.at.UnixMilli(), PreApplyChecksum: f.pre}
	if err := h.Validate(); err != nil {
		return nil, err
	}
	head, err := h.MarshalBinary()
	if err != nil {
		return nil, err
	}
	e.out, e.index, e.hash = e.out[:0], e.index[:0], 0
	e.write(head)
	for _, n := range sortedPages(f.pages, f.commit) {
		if err := e.page(n, f.pages[n]); err != nil {
			return nil, err
		}
	}
	e.write(make([]byte, ltx.PageHeaderSize)) // the end of the pages
	e.index = binary.AppendUvarint(e.index, 0)
	e.write(e.index)
	e.write(binary.BigEndian.AppendUint64(nil, uint64(len(e.index))))
	e.write(binary.BigEndian.AppendUint64(nil, uint64(f.post)))
	sum := uint64(ltx.ChecksumFlag) | e.hash
	e.out = binary.BigEndian.AppendUint64(e.out, sum)
	return slices.Clone(e.out), nil
}

// write appends bytes that the file's checksum covers.
func (e *encoder) write(b []byte) {
	e.hash = crc64.Update(e.hash, table, b)
	e.out = append(e.out, b...)
}

func (e *encoder) page(n uint32, data []byte) error {
	at := len(e.out)
	size, err := e.lz.CompressBlock(data, e.block)
	if err != nil {
		return err
	}
	var head [ltx.PageHeaderSize + 4]byte
	binary.BigEndian.PutUint32(head[:], n)
	binary.BigEndian.PutUint16(head[4:], ltx.PageHeaderFlagSize)
	binary.BigEndian.PutUint32(head[6:], uint32(size))
	e.write(head[:])
	e.hash = crc64.Update(e.hash, table, data) // the file's checksum is over pages as they are
	e.out = append(e.out, e.block[:size]...)
	e.index = binary.AppendUvarint(e.index, uint64(n))
	e.index = binary.AppendUvarint(e.index, uint64(at))
	e.index = binary.AppendUvarint(e.index, uint64(len(e.out)-at))
	return nil
}

func sortedPages(p map[uint32][]byte, commit uint32) []uint32 {
	out := make([]uint32, 0, len(p))
	for n := range p {
		if n <= commit && n != ltx.LockPgno(sqlite.PageSize) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// pageSum is the checksum of one page at its place.
func pageSum(n uint32, data []byte) ltx.Checksum {
	var place [4]byte
	binary.BigEndian.PutUint32(place[:], n)
	return ltx.ChecksumFlag | ltx.Checksum(crc64.Update(crc64.Update(0, table, place[:]), table, data))
}

// sums are the checksums of all pages of a database, and of all of it.
type sums struct {
	of    []ltx.Checksum // of page n at n-1; 0: no such page
	total ltx.Checksum
}

func (s *sums) set(n uint32, sum ltx.Checksum) {
	for int(n) > len(s.of) {
		s.of = append(s.of, 0)
	}
	s.total ^= s.of[n-1] ^ sum
	s.of[n-1] = sum
}

// resize drops the pages behind the end of a database that shrank.
func (s *sums) resize(pages uint32) {
	for len(s.of) > int(pages) {
		s.total ^= s.of[len(s.of)-1]
		s.of = s.of[:len(s.of)-1]
	}
}

// checksum is the rolling checksum as LTX has it.
func (s *sums) checksum() ltx.Checksum { return ltx.ChecksumFlag | s.total }
