package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/superfly/ltx"

	"celld/internal/bucket"
	"celld/internal/bucket/mem"
	"celld/internal/id"
	"celld/internal/sqlite"
	"celld/internal/storage"
)

const cell = id.Cell("Room:ab")

// desk is one activation of the cell.
type desk struct {
	t  testing.TB
	st *storage.Storage
	s  *Stream
}

func open(t testing.TB, r *Replicator, epoch id.Epoch, dir string) *desk {
	t.Helper()
	st := storage.Open(dir)
	s, _, err := r.Open(context.Background(), cell, epoch, dir, st)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t, st, s}
}

func (d *desk) exec(sql string, binds ...any) {
	d.t.Helper()
	c, err := d.st.Exec(sql, binds...)
	if err == nil {
		_, err = c.All()
	}
	if err == nil {
		_, err = d.st.Commit()
	}
	if err == nil {
		_, err = d.s.Capture()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) upload() {
	d.t.Helper()
	if err := d.s.Upload(context.Background(), d.s.Take()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) close() {
	d.t.Helper()
	if err := errors.Join(d.s.Rest(), d.st.Close(), d.s.Close()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) read(sql string) string {
	d.t.Helper()
	c, err := d.st.Exec(sql)
	if err != nil {
		return err.Error()
	}
	rows, err := c.All()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(rows)
}

func replicator(t testing.TB, store bucket.Store) *Replicator {
	r := New(store, nil)
	t.Cleanup(r.Close)
	return r
}

func TestWhatIsUploadedIsRestored(t *testing.T) {
	store := mem.New()
	r := replicator(t, store)
	for epoch := id.Epoch(1); epoch <= 4; epoch++ {
		d := open(t, r, epoch, t.TempDir()) // a fresh disk each time
		if epoch == 1 {
			d.exec("CREATE TABLE t (n)")
		}
		if want := fmt.Sprintf("[[%d]]", 2*(epoch-1)); d.read("SELECT count(*) FROM t") != want {
			t.Errorf("epoch %d: %s, want %s", epoch, d.read("SELECT count(*) FROM t"), want)
		}
		before := d.s.Position()
		d.exec("INSERT INTO t VALUES (?)", float64(epoch))
		d.upload()
		d.exec("INSERT INTO t VALUES (?)", float64(epoch))
		if d.s.Position() != before+2 {
			t.Errorf("epoch %d: position %d after %d", epoch, d.s.Position(), before)
		}
		d.upload()
		d.close()
	}
}

func TestUnuploadedWritesAreNotRestored(t *testing.T) {
	r := replicator(t, mem.New())
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	d.upload()
	d.exec("INSERT INTO t VALUES (1)")
	d.close()
	if got := open(t, r, 2, t.TempDir()).read("SELECT count(*) FROM t"); got != "[[0]]" {
		t.Error(got)
	}
}

func TestASupersededWriterIsClipped(t *testing.T) {
	store := mem.New()
	r := replicator(t, store)
	a := open(t, r, 1, t.TempDir())
	a.exec("CREATE TABLE t (n)")
	a.upload()
	b := open(t, r, 2, t.TempDir())
	b.exec("INSERT INTO t VALUES ('new owner')")
	b.upload()
	a.exec("INSERT INTO t VALUES ('stale owner')") // same TXID, old epoch
	a.exec("INSERT INTO t VALUES ('stale owner')")
	a.upload()
	if got := open(t, r, 3, t.TempDir()).read("SELECT n FROM t"); got != "[[new owner]]" {
		t.Error(got)
	}
}

func TestRestAndGoOn(t *testing.T) {
	r := replicator(t, mem.New())
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	for i := range 5 {
		if err := errors.Join(d.s.Rest(), d.st.Rest()); err != nil {
			t.Fatal(err)
		}
		d.exec("INSERT INTO t VALUES (?)", float64(i))
	}
	d.upload()
	if got := open(t, r, 2, t.TempDir()).read("SELECT sum(n) FROM t"); got != "[[10]]" {
		t.Error(got)
	}
}

func TestSomebodyElseAtTheFile(t *testing.T) {
	r := replicator(t, mem.New())
	dir := t.TempDir()
	d := open(t, r, 1, dir)
	d.exec("CREATE TABLE t (n)")
	d.upload()
	if err := errors.Join(d.s.Rest(), d.st.Rest()); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(filepath.Join(dir, storage.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Run("INSERT INTO t VALUES ('behind our back')"), db.Close()); err != nil {
		t.Fatal(err)
	}
	d.exec("INSERT INTO t VALUES ('ours')")
	d.upload()
	if got := open(t, r, 2, t.TempDir()).read("SELECT n FROM t"); got != "[[behind our back] [ours]]" {
		t.Error(got)
	}
}

func TestResumeOnTheSameDisk(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string)
		epoch  id.Epoch
		resume bool
	}{
		{"as it was left", nil, 2, true},
		{"an epoch was in between", nil, 3, false},
		{"a changed file", func(t *testing.T, path string) {
			b, _ := os.ReadFile(path)
			b[5000] ^= 1
			os.WriteFile(path, b, 0o600)
		}, 2, false},
		{"a shorter file", func(t *testing.T, path string) { os.Truncate(path, 4096) }, 2, false},
		{"no file", func(t *testing.T, path string) { os.Remove(path) }, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &counting{Store: mem.New()}
			r := replicator(t, store)
			dir := t.TempDir()
			d := open(t, r, 1, dir)
			d.exec("CREATE TABLE t (n)")
			d.exec("INSERT INTO t VALUES (7)")
			d.upload()
			d.close()
			if c.change != nil {
				c.change(t, filepath.Join(dir, storage.FileName))
			}
			store.opens.Store(0)
			d = open(t, r, c.epoch, dir)
			if got := d.read("SELECT n FROM t"); got != "[[7]]" {
				t.Error(got)
			}
			if resumed := store.opens.Load() == 0; resumed != c.resume {
				t.Errorf("resumed: %v", resumed)
			}
			d.exec("INSERT INTO t VALUES (8)")
			d.upload()
			if got := open(t, r, c.epoch+1, t.TempDir()).read("SELECT sum(n) FROM t"); got != "[[15]]" {
				t.Error(got)
			}
		})
	}
}

type counting struct {
	bucket.Store
	opens atomic.Int64
}

func (c *counting) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, bucket.Object, error) {
	c.opens.Add(1)
	return c.Store.Open(ctx, key, off, n)
}

func TestARestoreIsWholeOrAnError(t *testing.T) {
	build := func(t *testing.T) *mem.Store {
		store := mem.New()
		r := New(store, nil)
		d := open(t, r, 1, t.TempDir())
		d.exec("CREATE TABLE t (n)")
		d.upload()
		for i := range 4 {
			d.exec("INSERT INTO t VALUES (?)", float64(i))
			d.upload()
		}
		d.close()
		r.Close()
		return store
	}
	keys := func(t *testing.T, s bucket.Store) (out []string) {
		for o, err := range s.List(t.Context(), Prefix(cell), "") {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, o.Key)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, s bucket.Store, keys []string)
	}{
		{"a missing object in the middle", func(t *testing.T, s bucket.Store, k []string) { s.Delete(t.Context(), k[2]) }},
		{"a missing first object", func(t *testing.T, s bucket.Store, k []string) { s.Delete(t.Context(), k[0]) }},
		{"a truncated object", func(t *testing.T, s bucket.Store, k []string) {
			b, _, _ := s.Get(t.Context(), k[1])
			s.Put(t.Context(), k[1], b[:len(b)/2])
		}},
		{"a flipped bit", func(t *testing.T, s bucket.Store, k []string) {
			b, _, _ := s.Get(t.Context(), k[1])
			b = bytes.Clone(b)
			b[len(b)/2] ^= 4
			s.Put(t.Context(), k[1], b)
		}},
		{"an object under another's name", func(t *testing.T, s bucket.Store, k []string) {
			b, _, _ := s.Get(t.Context(), k[1])
			s.Put(t.Context(), k[2], b)
		}},
		{"data of a later epoch", func(t *testing.T, s bucket.Store, k []string) {
			s.Put(t.Context(), Key{cell, 9, 0, Range{9, 9}}.String(), []byte("x"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := build(t)
			k := keys(t, store)
			c.damage(t, store, k)
			dir := t.TempDir()
			_, _, err := New(store, nil).Open(t.Context(), cell, 2, dir, storage.Open(dir))
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || len(corrupt.Keys) == 0 || !strings.Contains(err.Error(), "ltx/e") {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, storage.FileName)); err == nil {
				t.Error("a half restored database was left behind")
			}
		})
	}
}

// Random workloads, restored on a fresh disk, are the same page by page.
func TestRandomWorkloads(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := replicator(t, mem.New())
		var epoch id.Epoch
		dir := t.TempDir()
		var d *desk
		next := func(fresh bool) {
			epoch++
			if fresh {
				dir = t.TempDir()
			}
			d = open(t, r, epoch, dir)
		}
		next(true)
		d.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
		for range 60 {
			switch rnd.IntN(12) {
			case 0:
				d.upload()
				d.close()
				next(rnd.IntN(2) == 0)
			case 1:
				if err := errors.Join(d.s.Rest(), d.st.Rest()); err != nil {
					t.Fatal(err)
				}
			case 2:
				d.exec("DELETE FROM t WHERE id % 3 = ?", float64(rnd.IntN(3)))
			case 3:
				d.exec("CREATE TABLE IF NOT EXISTS u" + fmt.Sprint(rnd.IntN(3)) + " (a)")
			case 4:
				d.upload()
			default:
				d.exec("INSERT OR REPLACE INTO t VALUES (?, randomblob(?))", float64(rnd.IntN(200)), float64(rnd.IntN(20000)))
			}
		}
		d.upload()
		d.close()
		want, err := os.ReadFile(filepath.Join(dir, storage.FileName))
		if err != nil {
			t.Fatal(err)
		}
		next(true)
		got, err := os.ReadFile(filepath.Join(dir, storage.FileName))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %d bytes restored, %d were there, equal: false", seed, len(got), len(want))
		}
		if s := d.read("PRAGMA integrity_check"); s != "[[ok]]" {
			t.Fatalf("seed %d: %s", seed, s)
		}
	}
}

func TestManyWritesRestoreThroughFewObjects(t *testing.T) {
	store := &counting{Store: mem.New()}
	r := replicator(t, store)
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, n)")
	d.exec("INSERT INTO t VALUES (1, 0)")
	const writes = 40_000
	for range writes {
		d.exec("UPDATE t SET n = n + 1")
		d.upload()
	}
	d.close()
	r.Close()
	r = replicator(t, store)
	store.opens.Store(0)
	got := open(t, r, 2, t.TempDir()).read("SELECT n FROM t")
	if got != fmt.Sprintf("[[%d]]", writes) || store.opens.Load() > 60 {
		t.Errorf("%s through %d objects", got, store.opens.Load())
	}
	t.Log(store.opens.Load(), "objects")
}

func TestManyEpochsGetASnapshot(t *testing.T) {
	store := &counting{Store: mem.New()}
	for epoch := id.Epoch(1); epoch <= 80; epoch++ {
		r := New(store, nil)
		store.opens.Store(0)
		d := open(t, r, epoch, t.TempDir())
		if store.opens.Load() > manyObjects+fanout {
			t.Fatalf("epoch %d restored through %d objects", epoch, store.opens.Load())
		}
		d.exec("CREATE TABLE IF NOT EXISTS t (n)")
		d.exec("INSERT INTO t VALUES (1)")
		d.upload()
		r.jobs.Wait()
		d.close()
		r.Close()
	}
}

// Whatever objects lie there, a plan is a chain from 1 without gaps, or an error.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{1, 0, 1, 3, 1, 0, 4, 2, 2, 0, 5, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var keys []Key
		for ; len(b) >= 4; b = b[4:] {
			min := id.TXID(b[2])%32 + 1
			keys = append(keys, Key{cell, id.Epoch(b[0] % 6), int(b[1] % 3), Range{min, min + id.TXID(b[3]%8)}})
		}
		chain, err := plan(cell, keys, 5)
		if err != nil {
			return
		}
		at := id.TXID(0)
		epoch := id.Epoch(0)
		for _, k := range chain {
			if k.Min != at+1 || k.Epoch < epoch {
				t.Fatalf("%v does not follow %d", k, at)
			}
			at, epoch = k.Max, k.Epoch
		}
		if len(keys) > 0 && len(chain) == 0 {
			t.Fatal("objects, but no chain and no error")
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(Key{cell, 3, 0, Range{1, 16}}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := ParseKey(cell, s); err == nil && k.String() != s {
			t.Errorf("%q became %q", s, k)
		}
	})
}

// The library's decoder accepts what our encoder writes.
func TestEncoderAgainstTheLibrary(t *testing.T) {
	page := func(b byte) []byte { return bytes.Repeat([]byte{b}, sqlite.PageSize) }
	var s sums
	f := file{Range: Range{1, 1}, commit: 3, at: time.UnixMilli(5), pages: map[uint32][]byte{1: page(1), 2: page(2), 3: page(3), 9: page(9)}}
	for n := uint32(1); n <= 3; n++ {
		s.set(n, pageSum(n, f.pages[n]))
	}
	f.post = s.checksum()
	b, err := encode(f)
	if err != nil {
		t.Fatal(err)
	}
	dec := ltx.NewDecoder(bytes.NewReader(b))
	if err := dec.Verify(); err != nil {
		t.Fatal(err)
	}
	if dec.PageN() != 3 || dec.Header().Timestamp != 5 {
		t.Errorf("%d pages, %+v", dec.PageN(), dec.Header())
	}
}

func BenchmarkCaptureAndEncode(b *testing.B) {
	r := replicator(b, mem.New())
	d := open(b, r, 1, b.TempDir())
	d.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, n)")
	d.exec("INSERT INTO t VALUES (1, 0)")
	d.s.Take()
	// Stopping the benchmark's timer for the commit would cost more than a capture.
	var spent time.Duration
	n := 0
	for ; b.Loop(); n++ {
		d.commit("UPDATE t SET n = n + 1")
		start := time.Now()
		if _, err := d.s.Capture(); err != nil {
			b.Fatal(err)
		}
		d.s.Take()
		spent += time.Since(start)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/capture")
}

func BenchmarkRestoreObjects(b *testing.B) {
	store := mem.New()
	r := New(store, nil)
	d := open(b, r, 1, b.TempDir())
	d.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
	for range 2000 {
		d.exec("INSERT INTO t VALUES (NULL, randomblob(500))")
		if err := d.s.Upload(context.Background(), d.s.Take()); err != nil {
			b.Fatal(err)
		}
	}
	r.Close()
	r = replicator(b, store)
	for b.Loop() {
		dir := b.TempDir()
		if _, _, err := r.Open(context.Background(), cell, 2, dir, storage.Open(dir)); err != nil {
			b.Fatal(err)
		}
	}
}
