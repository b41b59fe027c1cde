package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/superfly/ltx"

	"celld/internal/bucket"
	"celld/internal/id"
	"celld/internal/sqlite"
	"celld/internal/storage"
)

const (
	// ahead is how many objects a restore has under way at once.
	ahead = 8
	// manyObjects: a restore that walked more asks for a snapshot.
	manyObjects = 24
	// compactions of a process at once; others wait for the next upload to ask again.
	compactions = 2
)

// Replicator replicates the cells of a node.
type Replicator struct {
	store   bucket.Store
	log     *slog.Logger
	compact chan struct{} // one token for each compaction that may run
	ctx     context.Context
	stop    context.CancelFunc
	jobs    sync.WaitGroup
}

// New makes a replicator on a bucket.
func New(store bucket.Store, log *slog.Logger) *Replicator {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Replicator{store: store, log: log, compact: make(chan struct{}, compactions)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close ends compactions that run and waits for them.
func (r *Replicator) Close() {
	r.stop()
	r.jobs.Wait()
}

// Open brings the database of st to what every epoch before this one holds,
// and starts to replicate it below epoch.
func (r *Replicator) Open(ctx context.Context, cell id.Cell, epoch id.Epoch, dir string, st *storage.Storage) (*Stream, id.TXID, error) {
	s := &Stream{r: r, cell: cell, epoch: epoch, st: st}
	path := filepath.Join(dir, storage.FileName)
	if ok, err := s.resume(path); err != nil {
		return nil, 0, err
	} else if ok {
		return s, s.pos, nil
	}
	keys, err := r.list(ctx, cell)
	if err != nil {
		return nil, 0, err
	}
	chain, err := plan(cell, keys, epoch)
	if err != nil {
		return nil, 0, err
	}
	if err := s.restore(ctx, path, chain); err != nil {
		return nil, 0, err
	}
	s.begin(len(chain))
	return s, s.pos, nil
}

// begin starts the stream behind a position that objects of the bucket hold.
func (s *Stream) begin(objects int) {
	s.landed, s.before = s.pos, objects
	s.wants = objects > manyObjects
}

func (r *Replicator) list(ctx context.Context, cell id.Cell) ([]Key, error) {
	var keys []Key
	for o, err := range r.store.List(ctx, Prefix(cell), "") {
		if err != nil {
			return nil, fmt.Errorf("list the objects of cell %s: %w", cell, err)
		}
		k, err := ParseKey(cell, o.Key)
		if err != nil {
			r.log.Warn("an object that is not ours lies among those of a cell", "event", "foreign_object", "key", o.Key)
			continue
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// restore builds the database file from a chain of objects, beside the old one.
func (s *Stream) restore(ctx context.Context, path string, chain []Key) error {
	if err := removeDatabase(path); err != nil {
		return err
	}
	if len(chain) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.OpenFile(path+".restore", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	ctx, cancel := context.WithCancel(ctx)
	var opening sync.WaitGroup
	defer opening.Wait()
	defer cancel()
	bodies := s.r.fetch(ctx, &opening, chain)
	for _, k := range chain {
		got, ok := <-bodies
		if !ok {
			return fmt.Errorf("restore cell %s: %w", s.cell, context.Cause(ctx))
		}
		if got.err != nil {
			return fmt.Errorf("restore cell %s: %s: %w", s.cell, k, got.err)
		}
		err := s.apply(tmp, k, got.body)
		got.body.Close()
		if err != nil {
			return err
		}
	}
	if err := tmp.Close(); err != nil {
		return s.diskError(err)
	}
	return os.Rename(tmp.Name(), path)
}

type fetched struct {
	body io.ReadCloser
	err  error
}

// fetch opens the objects of a chain in order, a few ahead of who reads them.
// When ctx ends it closes those that nobody took; wg counts what it started.
func (r *Replicator) fetch(ctx context.Context, wg *sync.WaitGroup, chain []Key) <-chan fetched {
	slots := make(chan chan fetched, ahead)
	out := make(chan fetched)
	wg.Go(func() {
		defer close(slots)
		for _, k := range chain {
			slot := make(chan fetched, 1)
			select {
			case slots <- slot:
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				body, _, err := r.store.Open(ctx, k.String(), 0, -1)
				slot <- fetched{body, err}
			})
		}
	})
	wg.Go(func() {
		defer close(out)
		gap := false // after one that nobody took, the next would pass for it
		for slot := range slots {
			f := <-slot
			if !gap {
				select {
				case out <- f:
					continue
				case <-ctx.Done():
					gap = true
				}
			}
			if f.err == nil {
				f.body.Close()
			}
		}
	})
	return out
}

// apply writes one object's pages, and checks that it follows the one before.
func (s *Stream) apply(dst *os.File, k Key, body io.Reader) error {
	src := newSource(body)
	var size uint32
	var disk error
	trailer, err := decode(src, func(h ltx.Header) error {
		size = h.Commit
		return s.follows(k, h)
	}, func(n uint32, data []byte) error {
		if _, disk = dst.WriteAt(data, int64(n-1)*sqlite.PageSize); disk != nil {
			return disk
		}
		s.sums.set(n, pageSum(n, data))
		return nil
	})
	switch {
	case disk != nil:
		return s.diskError(disk)
	case src.failed != nil: // the object may be whole: another try may read it
		return fmt.Errorf("restore cell %s: read %s: %w", s.cell, k, src.failed)
	case err != nil:
		return &CorruptError{s.cell, []string{k.String()}, err.Error()}
	}
	s.sums.resize(size)
	if post := trailer.PostApplyChecksum; post != s.sums.checksum() {
		return &CorruptError{s.cell, []string{k.String()}, fmt.Sprintf("applied, the database has the checksum %s, not %s", s.sums.checksum(), post)}
	}
	if err := dst.Truncate(int64(size) * sqlite.PageSize); err != nil {
		return s.diskError(err)
	}
	s.pos, s.size = k.Max, size
	return nil
}

// follows checks that an object is what its key says, and continues the one before.
func (s *Stream) follows(k Key, h ltx.Header) error {
	switch {
	case id.TXID(h.MinTXID) != k.Min || id.TXID(h.MaxTXID) != k.Max:
		return fmt.Errorf("it holds transactions %s-%s", h.MinTXID, h.MaxTXID)
	case k.Min == 1:
		s.sums = sums{}
	case k.Min != s.pos+1:
		return fmt.Errorf("it does not follow transaction %d", s.pos)
	case h.PreApplyChecksum != s.sums.checksum():
		return fmt.Errorf("it was made on a database with the checksum %s, but the one before it gives %s", h.PreApplyChecksum, s.sums.checksum())
	}
	return nil
}

// ErrDiskFull: this node has no room for the cell. Nothing in the bucket is concerned.
var ErrDiskFull = errors.New("the disk of this node is full: free space below its work directory, or start it on a larger one; the bucket is untouched")

// diskError says what a failure of the local disk means.
func (s *Stream) diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("restore cell %s: %w (%w)", s.cell, ErrDiskFull, err)
	}
	return fmt.Errorf("restore cell %s: %w", s.cell, err)
}

func removeDatabase(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", noteSuffix} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ---- going on with the files of an earlier activation

const noteSuffix = ".note"

// note says what the database beside it is.
type note struct {
	Epoch    id.Epoch     `json:"epoch"`
	TXID     id.TXID      `json:"txid"`
	Checksum ltx.Checksum `json:"checksum"`
	Objects  int          `json:"objects"` // that a restore to here walks
}

func writeNote(path string, n note) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return os.WriteFile(path+noteSuffix, b, 0o600)
}

func dropNote(path string) error {
	if err := os.Remove(path + noteSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// resume goes on with a database that the epoch just before this one left here
// with everything of it in the bucket. Nobody can have written in between, and
// the checksum of the file says that it is what it was.
func (s *Stream) resume(path string) (bool, error) {
	b, err := os.ReadFile(path + noteSuffix)
	if err != nil {
		return false, nil
	}
	if err := dropNote(path); err != nil { // it holds only until somebody writes
		return false, err
	}
	var n note
	if json.Unmarshal(b, &n) != nil || n.Epoch+1 != s.epoch || n.TXID == 0 {
		return false, nil
	}
	if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > 0 {
		return false, nil // it was not closed cleanly
	}
	if sums, err := sumFile(path); err != nil || sums.checksum() != n.Checksum {
		return false, nil
	} else {
		s.sums = sums
	}
	s.pos, s.size = n.TXID, uint32(len(s.sums.of))
	s.begin(n.Objects)
	return true, nil
}

// sumFile makes the table of page checksums of a database file.
func sumFile(path string) (sums, error) {
	f, err := os.Open(path)
	if err != nil {
		return sums{}, err
	}
	defer f.Close()
	var s sums
	page := make([]byte, sqlite.PageSize)
	for n := uint32(1); ; n++ {
		_, err := io.ReadFull(f, page)
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return sums{}, err
		}
		if n != ltx.LockPgno(sqlite.PageSize) {
			s.set(n, pageSum(n, page))
		}
	}
}
