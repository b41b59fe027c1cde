package replica

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"celld/internal/bucket"
	"celld/internal/bucket/mem"
	"celld/internal/id"
	"celld/internal/sqlite"
	"celld/internal/storage"
)

// broken is a store that fails as told.
type broken struct {
	bucket.Store
	put    func(key string) error // before a write
	stream func(key string) error
	open   func(key string, body io.ReadCloser) (io.ReadCloser, error)
}

var errStore = errors.New("the store does not answer")

func (b *broken) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	if b.put != nil {
		if err := b.put(key); err != nil {
			return "", err
		}
	}
	return b.Store.Put(ctx, key, body)
}

func (b *broken) PutStream(ctx context.Context, key string, r io.Reader, size int64, o bucket.PutOptions) (bucket.Version, error) {
	if b.stream != nil {
		if err := b.stream(key); err != nil {
			return "", err
		}
	}
	return b.Store.PutStream(ctx, key, r, size, o)
}

func (b *broken) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, bucket.Object, error) {
	body, o, err := b.Store.Open(ctx, key, off, n)
	if err == nil && b.open != nil {
		body, err = b.open(key, body)
	}
	return body, o, err
}

// What an upload did not bring to the bucket must not come back from the disk:
// the next segment would not link to anything.
func TestAFailedUploadIsNotResumed(t *testing.T) {
	store := &broken{Store: mem.New()}
	r := replicator(t, store)
	dir := t.TempDir()
	d := open(t, r, 1, dir)
	d.exec("CREATE TABLE t (n)")
	d.upload()
	d.exec("INSERT INTO t VALUES ('lost')")
	store.put = func(string) error { return errStore }
	if err := d.s.Upload(t.Context(), d.s.Take()); !errors.Is(err, errStore) {
		t.Fatal(err)
	}
	store.put = nil
	d.close()

	d = open(t, r, 2, dir)
	d.exec("INSERT INTO t VALUES ('kept')")
	d.upload()
	if got := open(t, r, 3, t.TempDir()).read("SELECT n FROM t"); got != "[[kept]]" {
		t.Error(got)
	}
}

// After a capture that failed nothing more is captured: the page table is ahead
// of the position.
func TestACaptureThatFailedEndsTheStream(t *testing.T) {
	r := replicator(t, mem.New())
	dir := t.TempDir()
	d := open(t, r, 1, dir)
	d.exec("CREATE TABLE t (n)")
	d.upload()
	d.commit("INSERT INTO t VALUES (1)")
	if err := os.Truncate(d.st.Path()+"-wal", 0); err != nil {
		t.Fatal(err)
	}
	d.commit("INSERT INTO t VALUES (2)")
	for range 2 {
		if _, err := d.s.Capture(); !errors.Is(err, errDamaged) {
			t.Fatalf("%v", err)
		}
	}
	d.st.Close()
	d.s.Close()
	if _, err := os.Stat(filepath.Join(dir, storage.FileName+noteSuffix)); err == nil {
		t.Error("it would be resumed")
	}
	if got := open(t, r, 2, dir).read("SELECT count(*) FROM t"); got != "[[0]]" {
		t.Error(got)
	}
}

func (d *desk) commit(sql string) {
	d.t.Helper()
	c, err := d.st.Exec(sql)
	if err == nil {
		_, err = c.All()
	}
	if err == nil {
		_, err = d.st.Commit()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// Compaction that always fails costs space and time of a restore, no write.
func TestCompactionThatFailsHoldsNothingUp(t *testing.T) {
	tries := make(chan struct{}, 1000)
	store := &broken{Store: mem.New(), stream: func(string) error { tries <- struct{}{}; return errStore }}
	r := New(store, nil)
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	const writes = 3 * backlog
	for range writes {
		d.exec("INSERT INTO t VALUES (1)")
		d.upload()
	}
	r.Close()
	if n := len(tries); n == 0 || n > writes/fanout+1 {
		t.Errorf("%d tries for %d uploads", n, writes)
	}
	r = replicator(t, store)
	if got := open(t, r, 2, t.TempDir()).read("SELECT count(*) FROM t"); got != "[[90]]" {
		t.Error(got)
	}
}

// An upload may be repeated, also after compaction took its object.
func TestUploadsMayBeRepeated(t *testing.T) {
	store := &counting{Store: mem.New()}
	r := New(store, nil)
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	for range 5 * fanout {
		d.exec("INSERT INTO t VALUES (1)")
		segs := d.s.Take()
		for range 3 {
			if err := d.s.Upload(t.Context(), segs); err != nil {
				t.Fatal(err)
			}
			r.jobs.Wait()
		}
	}
	r.Close()
	store.opens.Store(0)
	if got := open(t, replicator(t, store), 2, t.TempDir()).read("SELECT count(*) FROM t"); got != "[[50]]" || store.opens.Load() > fanout {
		t.Errorf("%s through %d objects", got, store.opens.Load())
	}
}

// A cell that goes on from its own disk again and again never lists the bucket,
// and still leaves a short history.
func TestACellThatAlwaysResumesGetsASnapshot(t *testing.T) {
	store := &counting{Store: mem.New()}
	dir := t.TempDir()
	const epochs = 200
	for epoch := id.Epoch(1); epoch <= epochs; epoch++ {
		r := New(store, nil)
		d := open(t, r, epoch, dir)
		d.exec("CREATE TABLE IF NOT EXISTS t (n)")
		d.exec("INSERT INTO t VALUES (1)")
		d.upload()
		r.jobs.Wait()
		d.close()
		r.Close()
	}
	store.opens.Store(0)
	got := open(t, replicator(t, store), epochs+1, t.TempDir()).read("SELECT count(*) FROM t")
	if got != "[[200]]" || store.opens.Load() > manyObjects+fanout {
		t.Errorf("%s through %d objects", got, store.opens.Load())
	}
}

// A connection that breaks says nothing of the object.
func TestABrokenConnectionIsNotCorruption(t *testing.T) {
	store := &broken{Store: mem.New()}
	r := replicator(t, store)
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	d.upload()
	d.close()
	for _, limit := range []int64{0, 50, 150, 300} {
		store.open = func(_ string, body io.ReadCloser) (io.ReadCloser, error) {
			return cutBody{io.LimitReader(body, limit), body}, nil
		}
		dir := t.TempDir()
		_, _, err := r.Open(t.Context(), cell, 2, dir, storage.Open(dir))
		var corrupt *CorruptError
		if !errors.Is(err, errStore) || errors.As(err, &corrupt) || !strings.Contains(err.Error(), ".ltx") {
			t.Errorf("after %d bytes: %v", limit, err)
		}
	}
}

type cutBody struct {
	r io.Reader
	io.Closer
}

func (c cutBody) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF {
		err = errStore
	}
	return n, err
}

func TestAFullDiskIsNamed(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	store := mem.New()
	r := replicator(t, store)
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	g := d.s.Take()[0]
	s := &Stream{r: r, cell: cell, epoch: 2}
	err = s.apply(full, Key{cell, 1, LevelRaw, g.Range}, strings.NewReader(string(g.Data)))
	var corrupt *CorruptError
	if !errors.Is(err, ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) || errors.As(err, &corrupt) {
		t.Error(err)
	}
}

// Merged transactions hold no page that the database lost on the way.
func TestShrinkAndGrowInOneUpload(t *testing.T) {
	page := make([]byte, sqlite.PageSize)
	s := &Stream{}
	for i, f := range []file{
		{commit: 10, pages: map[uint32][]byte{1: page, 9: page, 10: page}},
		{commit: 8, pages: map[uint32][]byte{1: page}},
		{commit: 10, pages: map[uint32][]byte{10: page}},
	} {
		f.Range = Range{id.TXID(i + 2), id.TXID(i + 2)}
		if err := s.put(f); err != nil {
			t.Fatal(err)
		}
	}
	if w := s.waiting; w.Range != (Range{2, 4}) || w.commit != 10 || len(w.pages) != 2 || w.pages[9] != nil {
		t.Errorf("%v of %d pages: %d", w.Range, w.commit, len(w.pages))
	}
}

// A note of another make is no reason to go on, nor to fail.
func TestStrangeNotes(t *testing.T) {
	r := replicator(t, mem.New())
	dir := t.TempDir()
	path := filepath.Join(dir, storage.FileName)
	d := open(t, r, 1, dir)
	d.exec("CREATE TABLE t (n)")
	d.upload()
	d.close()
	whole, err := os.ReadFile(path + noteSuffix)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := os.ReadFile(path)
	for epoch, text := range []string{"", "{", "null", `{"epoch":1}`, string(whole[:len(whole)/2]), `{"txid":-1}`} {
		os.WriteFile(path, body, 0o600)
		os.WriteFile(path+noteSuffix, []byte(text), 0o600)
		st := storage.Open(dir)
		s, pos, err := r.Open(t.Context(), cell, id.Epoch(epoch+2), dir, st)
		if err != nil || pos != 1 {
			t.Errorf("%q: %d, %v", text, pos, err)
		}
		_ = s
		st.Close()
	}
	var n note
	if json.Unmarshal(whole, &n) != nil || n.TXID != 1 || n.Objects != 1 {
		t.Errorf("%s", whole)
	}
}

// The log was emptied behind the stream, with a commit in it that was not read:
// the next segment is the whole database.
func TestALogThatWasRestartedIsFollowedByTheWholeDatabase(t *testing.T) {
	r := replicator(t, mem.New())
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	d.exec("CREATE TABLE u (n)")
	d.upload()
	d.commit("INSERT INTO t VALUES ('not read')")
	db, err := d.st.DB()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Checkpoint(true); err != nil {
		t.Fatal(err)
	}
	before := d.s.Position()
	d.exec("INSERT INTO u VALUES ('read')")
	if d.s.Position() != before+1 {
		t.Errorf("position %d after %d", d.s.Position(), before)
	}
	d.exec("INSERT INTO u VALUES ('and on')")
	d.upload()
	if got := open(t, r, 2, t.TempDir()).read("SELECT n FROM t UNION ALL SELECT n FROM u"); got != "[[not read] [read] [and on]]" {
		t.Error(got)
	}
}

// Frames that the open database relies on are gone, wherever the log was cut.
func TestALogThatWasCutUnderTheDatabase(t *testing.T) {
	for _, left := range []int64{0, 10, walHeader, walHeader + frameSize, walHeader + frameSize + 9} {
		d := open(t, replicator(t, mem.New()), 1, t.TempDir())
		d.exec("CREATE TABLE t (n)")
		d.exec("INSERT INTO t VALUES (1)")
		d.exec("INSERT INTO t VALUES (2)")
		if err := os.Truncate(d.st.Path()+"-wal", left); err != nil {
			t.Fatal(err)
		}
		d.st.Exec("INSERT INTO t VALUES (3)")
		d.st.Commit()
		if pos, err := d.s.Capture(); !errors.Is(err, errDamaged) {
			t.Errorf("cut to %d bytes: position %d, %v", left, pos, err)
		}
		d.st.Close()
		d.s.Close()
	}
}

// A transaction larger than the page cache writes frames before it commits. What
// is rolled back after that lies behind the end of the log, and is overwritten.
func TestTransactionsThatSpill(t *testing.T) {
	const big = "INSERT INTO t SELECT NULL, randomblob(3000) FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 300) SELECT n FROM c)"
	r := replicator(t, mem.New())
	dir := t.TempDir()
	d := open(t, r, 1, dir)
	d.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
	for i := range 4 {
		size := func() int64 {
			info, err := os.Stat(d.st.Path() + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		before := size()
		for _, sql := range []string{big, "UPDATE t SET v = randomblob(10)", big} {
			c, err := d.st.Exec(sql)
			if err == nil {
				_, err = c.All()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if size() == before {
			t.Fatal("it does not spill: this test shows nothing")
		}
		if i%2 == 0 {
			if err := d.st.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		d.exec("INSERT INTO t VALUES (NULL, 'small')") // commits also what was not rolled back
		d.exec("INSERT INTO t VALUES (NULL, 'smaller')")
	}
	if d.s.Position() != 9 {
		t.Errorf("position %d", d.s.Position())
	}
	d.upload()
	d.close()
	want, _ := os.ReadFile(filepath.Join(dir, storage.FileName))
	dir = t.TempDir()
	open(t, r, 2, dir)
	if got, err := os.ReadFile(filepath.Join(dir, storage.FileName)); err != nil || string(got) != string(want) {
		t.Errorf("%d bytes restored of %d, %v", len(got), len(want), err)
	}
}
