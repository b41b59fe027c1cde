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
	if ok, err := s.resume(path); err != nil || ok {
		return s, s.pos, err
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
	s.wants = len(chain) > manyObjects
	return s, s.pos, nil
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
	defer cancel()
	bodies := s.r.fetch(ctx, chain)
	for _, k := range chain {
		got := <-bodies
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
		return err
	}
	return os.Rename(tmp.Name(), path)
}

type fetched struct {
	body io.ReadCloser
	err  error
}

// fetch opens the objects of a chain in order, a few ahead of who reads them.
func (r *Replicator) fetch(ctx context.Context, chain []Key) <-chan fetched {
	slots := make(chan chan fetched, ahead)
	out := make(chan fetched)
	go func() {
		defer close(slots)
		for _, k := range chain {
			slot := make(chan fetched, 1)
			select {
			case slots <- slot:
			case <-ctx.Done():
				return
			}
			go func() {
				body, _, err := r.store.Open(ctx, k.String(), 0, -1)
				slot <- fetched{body, err}
			}()
		}
	}()
	go func() {
		defer close(out)
		for slot := range slots {
			f := <-slot
			select {
			case out <- f:
			case <-ctx.Done():
				if f.body != nil {
					f.body.Close()
				}
			}
		}
	}()
	return out
}

// apply writes one object's pages, and checks that it follows the one before.
func (s *Stream) apply(dst *os.File, k Key, body io.Reader) error {
	corrupt := func(format string, args ...any) error {
		return &CorruptError{s.cell, []string{k.String()}, fmt.Sprintf(format, args...)}
	}
	dec := ltx.NewDecoder(body)
	if err := dec.DecodeHeader(); err != nil {
		return corrupt("its header does not decode: %v", err)
	}
	h := dec.Header()
	switch {
	case h.PageSize != sqlite.PageSize:
		return corrupt("it has pages of %d bytes", h.PageSize)
	case id.TXID(h.MinTXID) != k.Min || id.TXID(h.MaxTXID) != k.Max:
		return corrupt("it holds transactions %s-%s", h.MinTXID, h.MaxTXID)
	case k.Min != s.pos+1 && k.Min != 1:
		return corrupt("it does not follow transaction %d", s.pos)
	case k.Min != 1 && h.PreApplyChecksum != s.sums.checksum():
		return corrupt("it was made on a database with the checksum %s, but the one before it gives %s", h.PreApplyChecksum, s.sums.checksum())
	}
	if k.Min == 1 {
		s.sums = sums{}
	}
	page := make([]byte, sqlite.PageSize)
	for {
		var ph ltx.PageHeader
		err := dec.DecodePage(&ph, page)
		if errors.Is(err, io.EOF) && err == io.EOF {
			break
		}
		if err != nil {
			return corrupt("a page does not decode: %v", err)
		}
		if ph.Pgno == 0 || ph.Pgno > h.Commit {
			return corrupt("it holds page %d of a database of %d", ph.Pgno, h.Commit)
		}
		if _, err := dst.WriteAt(page, int64(ph.Pgno-1)*sqlite.PageSize); err != nil {
			return fmt.Errorf("restore cell %s: %w", s.cell, err)
		}
		s.sums.set(ph.Pgno, pageSum(ph.Pgno, page))
	}
	if err := dec.Close(); err != nil {
		return corrupt("it is damaged: %v", err)
	}
	s.sums.resize(h.Commit)
	if post := dec.Trailer().PostApplyChecksum; post != s.sums.checksum() {
		return corrupt("applied, the database has the checksum %s, not %s", s.sums.checksum(), post)
	}
	if err := dst.Truncate(int64(h.Commit) * sqlite.PageSize); err != nil {
		return fmt.Errorf("restore cell %s: %w", s.cell, err)
	}
	s.pos, s.size = k.Max, h.Commit
	return nil
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
}

func writeNote(path string, epoch id.Epoch, pos id.TXID, sum ltx.Checksum) error {
	b, err := json.Marshal(note{epoch, pos, sum})
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
	f, err := os.Open(path)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	page := make([]byte, sqlite.PageSize)
	for n := uint32(1); ; n++ {
		if _, err := io.ReadFull(f, page); err != nil {
			if !errors.Is(err, io.EOF) {
				s.sums = sums{}
				return false, nil
			}
			break
		}
		s.sums.set(n, pageSum(n, page))
	}
	if s.sums.checksum() != n.Checksum {
		s.sums = sums{}
		return false, nil
	}
	s.pos, s.size = n.TXID, uint32(len(s.sums.of))
	return true, nil
}
