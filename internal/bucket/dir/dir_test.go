package dir_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"celld/internal/bucket"
	"celld/internal/bucket/buckettest"
	"celld/internal/bucket/dir"
)

func open(t testing.TB, root string) *dir.Store {
	t.Helper()
	s, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestContract(t *testing.T) { buckettest.Run(t, open(t, t.TempDir())) }

func TestMain(m *testing.M) { os.Exit(buckettest.Main(m)) }

func TestRaceOfProcesses(t *testing.T) {
	buckettest.RaceProcesses(t, "file://"+t.TempDir(), nil)
}

func TestWritersKilledAnywhere(t *testing.T) {
	root := t.TempDir()
	buckettest.KillWriters(t, "file://"+root, nil)
	// One more process cleans up what the last killed one left.
	open(t, root)
	left, err := os.ReadDir(filepath.Join(root, ".celld", "temp"))
	if err != nil || len(left) != 2 {
		t.Errorf("temporary directories of two living stores: %v, %v", left, err)
	}
}

func TestEqualBytesHaveNewVersions(t *testing.T) {
	s := open(t, t.TempDir())
	first, _ := s.Put(t.Context(), "k", []byte("same"))
	second, err := s.Put(t.Context(), "k", []byte("same"))
	if err != nil || first == second {
		t.Errorf("versions %q and %q, %v", first, second, err)
	}
}

func TestTwoStoresOfOneProcessShareADirectory(t *testing.T) {
	root := t.TempDir()
	a, b := open(t, root), open(t, root)
	v, err := a.Create(t.Context(), "k/x", []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(t.Context(), "k/x", []byte("b")); !errors.Is(err, bucket.ErrPrecondition) {
		t.Errorf("second create: %v", err)
	}
	if err := b.Delete(t.Context(), "k/x"); err != nil { // takes the directory along
		t.Fatal(err)
	}
	if _, err := a.Swap(t.Context(), "k/x", nil, v); !errors.Is(err, bucket.ErrPrecondition) {
		t.Errorf("swap of a deleted object: %v", err)
	}
	if _, err := a.Create(t.Context(), "k/x", []byte("again")); err != nil { // through a stale handle
		t.Error(err)
	}
}

func TestDeleteLeavesNoEmptyDirectories(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for _, key := range []string{"wake/1/a/b.json", "wake/1/a/c.json"} {
		if _, err := s.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Delete(t.Context(), "wake/1/a/b.json")
	if _, err := os.Stat(filepath.Join(root, "wake", "1", "a")); err != nil {
		t.Error(err)
	}
	s.Delete(t.Context(), "wake/1/a/c.json")
	if _, err := os.Stat(filepath.Join(root, "wake")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

// Writers and deleters of one directory must not get in each other's way.
func TestPruningRacesWithWriting(t *testing.T) {
	root := t.TempDir()
	stores := []*dir.Store{open(t, root), open(t, root)}
	var group sync.WaitGroup
	for i := range 4 {
		s, key := stores[i%2], "a/b/c/"+strconv.Itoa(i)
		group.Go(func() {
			for range 100 {
				if _, err := s.Put(t.Context(), key, []byte(key)); err != nil {
					t.Error(err)
				}
				if body, _, err := s.Get(t.Context(), key); err != nil || string(body) != key {
					t.Errorf("%q, %v", body, err)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func TestDamagedFilesAreErrors(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	body := bytes.Repeat([]byte("x"), 20_000)
	if _, err := s.Put(t.Context(), "k", body); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "k@")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 10, 66, 5000, len(whole) - 1} {
		if err := os.WriteFile(file, whole[:size], 0o666); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Get(t.Context(), "k")
		if err == nil || errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("cut to %d bytes: get says %v", size, err)
		}
		if _, err = s.Head(t.Context(), "k"); err == nil {
			t.Errorf("cut to %d bytes: head says nothing", size)
		}
		if _, err = s.Create(t.Context(), "k", nil); err == nil {
			t.Errorf("cut to %d bytes: created over it", size)
		}
	}
}

func TestAnOpenObjectStaysAsItWas(t *testing.T) {
	s := open(t, t.TempDir())
	s.Put(t.Context(), "k", []byte("old bytes"))
	r, _, err := s.Open(t.Context(), "k", 4, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.Put(t.Context(), "k", []byte("new"))
	if got, err := io.ReadAll(r); err != nil || string(got) != "bytes" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "README.txt"), []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := open(t, root)
	for o, err := range s.List(t.Context(), "", "") {
		t.Errorf("listed %s, %v", o.Key, err)
	}
}
