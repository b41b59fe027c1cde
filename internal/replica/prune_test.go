package replica

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/superfly/ltx"

	"celld/internal/bucket"
	"celld/internal/bucket/faulty"
	"celld/internal/bucket/mem"
	"celld/internal/id"
	"celld/internal/sqlite"
	"celld/internal/storage"
)

func owned(context.Context) error { return nil }

// aHistory is a cell at epoch 2 that has a snapshot, as old as age, and raw
// objects from before and after it.
func aHistory(t *testing.T, r *Replicator, age time.Duration) *desk {
	t.Helper()
	d := open(t, r, 1, t.TempDir())
	d.exec("CREATE TABLE t (n)")
	for range 5 {
		d.exec("INSERT INTO t VALUES (1)")
		d.upload()
	}
	d.close()
	d = open(t, r, 2, t.TempDir())
	d.exec("INSERT INTO t VALUES (2)")
	d.upload()
	if _, err := d.s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(age)
	for range 3 {
		d.exec("INSERT INTO t VALUES (3)")
		d.upload()
	}
	return d
}

func objectKeys(t *testing.T, s bucket.Store) (keys []string) {
	t.Helper()
	for o, err := range s.List(t.Context(), Prefix(cell), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// restored is the database that a fresh disk gets.
func restored(t *testing.T, r *Replicator, epoch id.Epoch) []byte {
	t.Helper()
	dir := t.TempDir()
	st := storage.Open(dir)
	if _, _, err := r.Open(t.Context(), cell, epoch, dir, st); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, storage.FileName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Deleting changes nothing of what is restored, and leaves the young objects.
func TestPruneChangesNoRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		r := replicator(t, store)
		d := aHistory(t, r, 2*time.Hour)
		want := restored(t, r, 3)
		n, err := d.s.Prune(t.Context(), time.Hour, owned)
		if err != nil || n != 6 {
			t.Fatalf("%d deleted, %v", n, err)
		}
		left := objectKeys(t, store)
		if len(left) != 4 || !strings.Contains(left[3], "/e2/0009/") {
			t.Errorf("left: %q", left)
		}
		if !bytes.Equal(restored(t, r, 3), want) {
			t.Error("another database is restored")
		}
		if n, err := d.s.Prune(t.Context(), time.Hour, owned); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
	})
}

// Whatever stands against it, nothing is deleted.
func TestPruneRefuses(t *testing.T) {
	errLost := errors.New("the record names another session")
	for _, c := range []struct {
		name   string
		age    time.Duration
		keep   time.Duration
		change func(t *testing.T, store *mem.Store)
		owns   func(context.Context) error
		want   func(error) bool
	}{
		{"a retention that is too short", 2 * time.Hour, time.Minute, nil, owned, func(err error) bool { return errors.Is(err, ErrKeep) }},
		{"a negative retention", 2 * time.Hour, -time.Hour, nil, owned, func(err error) bool { return errors.Is(err, ErrKeep) }},
		{"a snapshot that is too young", time.Hour, 2 * time.Hour, nil, owned, func(err error) bool { return err == nil }},
		{"an owner no longer", 2 * time.Hour, time.Hour, nil, func(context.Context) error { return errLost }, func(err error) bool { return errors.Is(err, errLost) }},
		{"data of a later epoch", 2 * time.Hour, time.Hour, func(t *testing.T, store *mem.Store) {
			store.Put(t.Context(), Key{cell, 3, LevelRaw, Range{8, 8}}.String(), []byte("x"))
		}, owned, func(err error) bool { return errors.Is(err, ErrSuperseded) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := mem.New()
				d := aHistory(t, replicator(t, store), c.age)
				if c.change != nil {
					c.change(t, store)
				}
				before := objectKeys(t, store)
				n, err := d.s.Prune(t.Context(), c.keep, c.owns)
				if n != 0 || !c.want(err) {
					t.Errorf("%d deleted, %v", n, err)
				}
				if after := objectKeys(t, store); len(after) != len(before) {
					t.Errorf("%d objects of %d are left", len(after), len(before))
				}
			})
		})
	}
}

// A snapshot that does not read back replaces nothing, wherever it is damaged.
func TestPruneReadsTheSnapshotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		f := faulty.New(store)
		d := aHistory(t, replicator(t, f), 0)
		keys := objectKeys(t, store)
		key := keys[len(keys)-1]
		whole, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		damaged := [][]byte{whole[:len(whole)/2], nil}
		for at := 0; at < len(whole); at += 41 {
			b := bytes.Clone(whole)
			b[at] ^= 4
			damaged = append(damaged, b)
		}
		put := func(b []byte) { // and let it grow old
			if _, err := store.Put(t.Context(), key, b); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
		}
		for i, b := range damaged {
			put(b)
			var corrupt *CorruptError
			if n, err := d.s.Prune(t.Context(), time.Hour, owned); n != 0 || !errors.As(err, &corrupt) {
				t.Errorf("damage %d: %d deleted, %v", i, n, err)
			}
		}
		put(whole)
		f.Add(faulty.Rule{Op: faulty.Open, Times: 1, Before: faulty.ErrLost})
		var corrupt *CorruptError
		if n, err := d.s.Prune(t.Context(), time.Hour, owned); n != 0 || !errors.Is(err, faulty.ErrLost) || errors.As(err, &corrupt) {
			t.Errorf("no answer: %d deleted, %v", n, err)
		}
		if after := objectKeys(t, store); len(after) != len(keys) {
			t.Errorf("%d objects of %d are left", len(after), len(keys))
		}
	})
}

// Wherever deleting stops, what is left restores, and the next time ends it.
func TestPruneThatStopsHalfway(t *testing.T) {
	for done := range 6 {
		synctest.Test(t, func(t *testing.T) {
			store := faulty.New(mem.New())
			r := replicator(t, store)
			d := aHistory(t, r, 2*time.Hour)
			want := restored(t, r, 3)
			store.Add(faulty.Rule{Op: faulty.Delete, Skip: done, Times: 1, Before: faulty.ErrLost})
			if n, err := d.s.Prune(t.Context(), time.Hour, owned); n != done || !errors.Is(err, faulty.ErrLost) {
				t.Fatalf("%d deleted, %v", n, err)
			}
			if !bytes.Equal(restored(t, r, 3), want) {
				t.Error("another database is restored")
			}
			if n, err := d.s.Prune(t.Context(), time.Hour, owned); n != 6-done || err != nil {
				t.Errorf("then %d deleted, %v", n, err)
			}
		})
	}
}

// Compaction does not look for what was deleted.
func TestCompactionGoesOnAfterPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: mem.New()}
		r := replicator(t, store)
		d := aHistory(t, r, 2*time.Hour)
		if _, err := d.s.Prune(t.Context(), time.Hour, owned); err != nil {
			t.Fatal(err)
		}
		for range 5 * fanout {
			d.exec("INSERT INTO t VALUES (4)")
			d.upload()
			r.jobs.Wait()
		}
		store.opens.Store(0)
		got := open(t, r, 3, t.TempDir()).read("SELECT count(*) FROM t")
		if got != "[[59]]" || store.opens.Load() > 2*fanout {
			t.Errorf("%s through %d objects", got, store.opens.Load())
		}
	})
}

// Old objects behind the snapshot are the history since then: they stay.
func TestPruneKeepsWhatFollowsTheSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		r := replicator(t, store)
		d := aHistory(t, r, 2*time.Hour)
		time.Sleep(2 * time.Hour)
		want := restored(t, r, 3)
		if n, err := d.s.Prune(t.Context(), time.Hour, owned); err != nil || n != 6 {
			t.Errorf("%d deleted, %v", n, err)
		}
		if !bytes.Equal(restored(t, r, 3), want) {
			t.Error("another database is restored")
		}
	})
}

// A snapshot that is a whole file, and not what it claims to be.
func TestPruneDoubtsAWholeSnapshot(t *testing.T) {
	page := bytes.Repeat([]byte{7}, sqlite.PageSize)
	for name, f := range map[string]file{
		"another checksum":   {Range: Range{1, 6}, post: ltx.ChecksumFlag | 1},
		"other transactions": {Range: Range{1, 5}, post: pageSum(1, page)},
		"nothing is wrong":   {Range: Range{1, 6}, post: pageSum(1, page)},
	} {
		t.Run(name, func(t *testing.T) {
			f.commit, f.at, f.pages = 1, time.UnixMilli(1), map[uint32][]byte{1: page}
			b, err := encode(f)
			if err != nil {
				t.Fatal(err)
			}
			store := mem.New()
			k := Key{cell, 2, LevelSnapshot, Range{1, 6}}
			if _, err := store.Put(t.Context(), k.String(), b); err != nil {
				t.Fatal(err)
			}
			s := &Stream{r: replicator(t, store), cell: cell, epoch: 2}
			var corrupt *CorruptError
			if err := s.verify(t.Context(), k); errors.As(err, &corrupt) == (name == "nothing is wrong") {
				t.Error(err)
			}
		})
	}
}

// A connection that breaks while the snapshot is read says nothing of it.
func TestPruneOnABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &broken{Store: mem.New()}
		d := aHistory(t, replicator(t, store), 2*time.Hour)
		store.open = func(_ string, body io.ReadCloser) (io.ReadCloser, error) {
			return cutBody{io.LimitReader(body, 150), body}, nil
		}
		var corrupt *CorruptError
		if n, err := d.s.Prune(t.Context(), time.Hour, owned); n != 0 || !errors.Is(err, errStore) || errors.As(err, &corrupt) {
			t.Errorf("%d deleted, %v", n, err)
		}
	})
}

// Whatever a cell went through, with superseded owners still at work, deleting
// never changes what is restored.
func TestPruneInRandomHistories(t *testing.T) {
	total := 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			r := replicator(t, mem.New())
			epoch := id.Epoch(1)
			d := open(t, r, epoch, t.TempDir())
			d.exec("CREATE TABLE t (n)")
			d.upload()
			var stale *desk
			for range 50 {
				switch rnd.IntN(10) {
				case 0: // another owner takes over; the one before does not know yet
					r.jobs.Wait()
					epoch++
					stale, d = d, open(t, r, epoch, t.TempDir())
				case 1:
					if stale != nil {
						stale.exec("INSERT INTO t VALUES ('stale')")
						stale.upload()
					}
				case 2:
					if stale != nil { // without data of its own epoch this fails, rightly
						stale.s.Snapshot(t.Context())
					}
				case 3:
					d.s.Snapshot(t.Context())
				case 4:
					time.Sleep(time.Duration(rnd.IntN(150)) * time.Minute)
				case 5:
					r.jobs.Wait()
					want := restored(t, r, epoch+1)
					n, err := d.s.Prune(t.Context(), time.Hour, owned)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					total += n
					if !bytes.Equal(restored(t, r, epoch+1), want) {
						t.Fatalf("seed %d: another database is restored after %d were deleted", seed, n)
					}
				default:
					d.exec("INSERT INTO t VALUES (randomblob(?))", float64(rnd.IntN(9000)))
					d.upload()
				}
			}
			r.jobs.Wait()
		})
	}
	if total == 0 {
		t.Error("nothing was ever deleted")
	}
	t.Log(total, "objects deleted")
}

// The cell is lost right after the ownership read: what is then deleted was
// useless to the new owner as well, and to all after it.
func TestPruneWhileTheCellIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New()
		r := replicator(t, store)
		d := aHistory(t, r, 2*time.Hour)
		var successor *desk
		n, err := d.s.Prune(t.Context(), time.Hour, func(context.Context) error {
			successor = open(t, r, 3, t.TempDir())
			successor.exec("INSERT INTO t VALUES ('successor')")
			successor.upload()
			return nil
		})
		if err != nil || n == 0 {
			t.Fatalf("%d deleted, %v", n, err)
		}
		d.exec("INSERT INTO t VALUES ('superseded')")
		d.upload()
		const rows = "SELECT count(*), max(n) FROM t"
		want := successor.read(rows)
		if got := open(t, r, 4, t.TempDir()).read(rows); got != want || !strings.Contains(got, "successor") {
			t.Errorf("%s, the successor has %s", got, want)
		}
	})
}
