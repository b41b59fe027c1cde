package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/superfly/ltx"

	"celld/internal/id"
	"celld/internal/sqlite"
	"celld/internal/storage"
)

const (
	// checkpointAt is how long the log may grow before it is moved into the database.
	checkpointAt = 1 << 20
	// maxWaiting bounds the bytes of segments that wait for upload; at the limit
	// the cell's commits fail until the bucket answers again.
	maxWaiting = 64 << 20
)

// ErrBacklog: too much waits for the bucket.
var ErrBacklog = fmt.Errorf("more than %d MiB of committed writes wait for the bucket", maxWaiting>>20)

// errEmpty: a segment without bytes cannot be uploaded.
var errEmpty = errors.New("the segment is empty")

// Segment is some captured transactions as one LTX file.
type Segment struct {
	Range
	Data []byte
	err  error // why there is no Data
}

// Stream is the replication of one activation's database.
type Stream struct {
	r     *Replicator
	cell  id.Cell
	epoch id.Epoch
	st    *storage.Storage

	// Touched with the turn held.
	log  wal
	f    *os.File // the log, open while the database is
	pos  id.TXID
	size uint32
	sums sums
	rest fileMark // how the file stood when the database was closed
	// broken is why nothing can be captured any more: the database is ahead of
	// what was shipped, so this activation must end and restore.
	broken error

	mu      sync.Mutex
	waiting *file         // what was captured since the last Take, merged
	levels  [][]Range     // objects of this epoch that no higher level holds yet
	landed  id.TXID       // everything up to it is in the bucket
	before  int           // objects of older epochs that a restore would walk
	wants   bool          // a snapshot would shorten the next restore
	pause   int           // uploads until compaction that failed is tried again
	done    chan struct{} // closed when the compaction that runs has ended; nil: none runs
}

// Position is the newest captured transaction.
func (s *Stream) Position() id.TXID { return s.pos }

// Capture makes what was committed since the last one a segment, and tells the
// new position. The turn is held. After an error the stream captures no more.
func (s *Stream) Capture() (id.TXID, error) {
	if s.broken == nil {
		if err := s.capture(); err != nil {
			s.broken = fmt.Errorf("capture %s: %w", s.cell, err)
		}
	}
	if s.broken != nil {
		return 0, s.broken
	}
	return s.pos, nil
}

func (s *Stream) capture() error {
	p, err := s.changed()
	if err != nil {
		return err
	}
	if p.commit == 0 {
		return nil
	}
	f := file{Range: Range{s.pos + 1, s.pos + 1}, commit: p.commit, pre: s.sums.checksum(), at: time.Now(), pages: p.data}
	if s.pos == 0 {
		f.pre = 0 // the first file of a cell is a snapshot
	}
	for n, d := range p.data {
		if n <= p.commit && n != ltx.LockPgno(sqlite.PageSize) {
			s.sums.set(n, pageSum(n, d))
		}
	}
	s.sums.resize(p.commit)
	f.post = s.sums.checksum()
	if err := s.put(f); err != nil {
		return err
	}
	s.pos, s.size = f.Max, p.commit
	return s.checkpoint()
}

// changed reads the log; a break in it makes a snapshot of the whole database.
func (s *Stream) changed() (pages, error) {
	if s.f == nil {
		f, err := os.Open(s.st.Path() + "-wal")
		if errors.Is(err, fs.ErrNotExist) {
			return pages{}, nil // a transaction that changed nothing makes no log
		}
		if err != nil {
			return pages{}, err
		}
		s.f = f
		if s.rest.differs(s.st.Path()) {
			return s.whole()
		}
	}
	p, err := s.log.read(s.f)
	if !errors.Is(err, errRestarted) {
		return p, err
	}
	// Only checkpoint restarts the log, and it resets the reader. Somebody else was
	// at the files: what they did is in the database, so all of it is shipped.
	s.log.reset()
	return s.whole()
}

// whole is every page of the database as SQLite sees it, for a snapshot at the
// next position.
func (s *Stream) whole() (pages, error) {
	db, err := s.st.DB()
	if err != nil {
		return pages{}, err
	}
	if err := db.Checkpoint(true); err != nil {
		return pages{}, err
	}
	s.log.reset()
	s.rest = fileMark{}
	body, err := os.ReadFile(s.st.Path())
	if err != nil {
		return pages{}, err
	}
	p := pages{data: map[uint32][]byte{}, commit: uint32(len(body) / sqlite.PageSize)}
	for n := uint32(1); n <= p.commit; n++ {
		p.data[n] = body[int(n-1)*sqlite.PageSize : int(n)*sqlite.PageSize]
	}
	return p, nil
}

// checkpoint moves a log that has grown into the database. Everything in it was captured.
func (s *Stream) checkpoint() error {
	if s.log.offset < checkpointAt {
		return nil
	}
	db, err := s.st.DB()
	if err != nil {
		return err
	}
	if err := db.Checkpoint(true); err != nil {
		return nil // an open cursor holds it back; the next commit tries again
	}
	s.log.reset()
	return nil
}

// put adds a transaction to what waits: the newest version of each page, so that
// commits which share an upload cost one encoding.
func (s *Stream) put(f file) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting
	if w == nil {
		s.waiting = &f
		return nil
	}
	if (len(w.pages)+len(f.pages))*sqlite.PageSize > maxWaiting {
		return ErrBacklog
	}
	for n, d := range f.pages {
		w.pages[n] = d
	}
	cut(w.pages, w.commit, f.commit)
	w.Max, w.commit, w.post, w.at = f.Max, f.commit, f.post, f.at
	return nil
}

// Take takes what waits, as one segment. Should it not encode, which would be a
// bug, Upload says so.
func (s *Stream) Take() []Segment {
	s.mu.Lock()
	w := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	data, err := encode(*w)
	return []Segment{{w.Range, data, err}}
}

// Upload puts segments into the bucket. Doing it twice is harmless.
func (s *Stream) Upload(ctx context.Context, segs []Segment) error {
	for _, g := range segs {
		if len(g.Data) == 0 {
			return fmt.Errorf("encode transactions %s of cell %s: %w", g.Range, s.cell, errors.Join(errEmpty, g.err))
		}
		k := Key{s.cell, s.epoch, LevelRaw, g.Range}
		if _, err := s.r.store.Put(ctx, k.String(), g.Data); err != nil {
			return fmt.Errorf("upload %s: %w", k, err)
		}
		s.uploaded(ctx, g.Range)
	}
	return nil
}

// Rest readies the database for being closed between turns: everything is
// captured, and how the file stands is remembered.
func (s *Stream) Rest() error {
	if s.st.Resting() {
		return nil
	}
	if _, err := s.Capture(); err != nil {
		return err
	}
	db, err := s.st.DB()
	if err != nil {
		return err
	}
	if err := db.Checkpoint(true); err != nil {
		return err
	}
	s.closeLog()
	return s.rest.take(s.st.Path())
}

// objects is how many a restore to here would walk; s.mu is held.
func (s *Stream) objects() int {
	n := s.before
	for _, l := range s.levels {
		n += len(l)
	}
	return n
}

func (s *Stream) closeLog() {
	if s.f != nil {
		s.f.Close()
		s.f = nil
	}
	s.log.reset()
}

// Close ends the stream; the files stay. Where all of it is in the bucket, a
// note beside the database says what it is, so that the next activation here can
// go on with it.
func (s *Stream) Close() error {
	s.closeLog()
	s.mu.Lock()
	clean := s.landed == s.pos && s.broken == nil
	n := note{s.epoch, s.pos, s.sums.checksum(), s.objects()}
	s.mu.Unlock()
	if !clean || s.pos == 0 {
		return dropNote(s.st.Path())
	}
	return writeNote(s.st.Path(), n)
}

// fileMark is how a file stood at some moment.
type fileMark struct {
	size     int64
	modified time.Time
}

func (m *fileMark) take(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		*m = fileMark{}
		return nil
	}
	if err != nil {
		return err
	}
	m.size, m.modified = info.Size(), info.ModTime()
	return nil
}

// differs tells whether somebody wrote to the file since the mark was taken.
func (m *fileMark) differs(path string) bool {
	if m.size == 0 {
		return false
	}
	now := fileMark{}
	return now.take(path) == nil && (now.size != m.size || !now.modified.Equal(m.modified))
}
