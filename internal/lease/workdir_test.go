package lease

import (
	"os"
	"path/filepath"
	"testing"
)

// The lock of a copied directory says nothing of a process that holds the
// original's: its session may be alive.
func TestACopyOfAWorkDirKnowsNoPredecessor(t *testing.T) {
	w, err := LockWorkDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Unlock()
	if err := w.Remember("a.1"); err != nil {
		t.Fatal(err)
	}
	if p, err := w.Predecessor(); p != "a.1" || err != nil {
		t.Errorf("%q, %v", p, err)
	}
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(w.Dir)); err != nil {
		t.Fatal(err)
	}
	c, err := LockWorkDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Unlock()
	if p, err := c.Predecessor(); p != "" || err != nil {
		t.Errorf("%q, %v", p, err)
	}
}
