package dir_test

import (
	"os"
	"path/filepath"
	"testing"

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
