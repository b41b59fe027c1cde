package replica

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"celld/internal/bucket/mem"
	"celld/internal/storage"
)

// ltxTool builds the command-line tool of the LTX library that this module uses.
func ltxTool(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program")
	}
	bin := filepath.Join(t.TempDir(), "ltx")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/superfly/ltx/cmd/ltx").CombinedOutput(); err != nil {
		t.Skipf("the ltx tool does not build here: %v\n%s", err, out)
	}
	return bin
}

// What we write is LTX to others: their tool verifies every object, raw and
// compacted, and builds from the raw ones the database that we restore.
func TestTheLTXToolReadsOurObjects(t *testing.T) {
	tool := ltxTool(t)
	store := mem.New()
	r := replicator(t, store)
	dir := t.TempDir()
	d := open(t, r, 1, dir)
	d.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
	for i := range 2*fanout + 3 {
		d.exec("INSERT INTO t VALUES (NULL, randomblob(?))", float64(i*700))
		if i%7 == 6 {
			d.exec("DELETE FROM t WHERE id % 2 = 0")
		}
		d.upload()
		r.jobs.Wait()
	}
	if _, err := d.s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.close()

	keys, err := r.list(t.Context(), cell)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	verify, apply := []string{"verify"}, []string{"apply", "-db", filepath.Join(out, "db")}
	levels := map[int]bool{}
	for _, k := range keys { // in the order of their transactions within a level
		body, _, err := store.Get(t.Context(), k.String())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(out, filepath.Base(filepath.Dir(k.String()))+"-"+filepath.Base(k.String()))
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		verify = append(verify, path)
		levels[k.Level] = true
		if k.Level == LevelRaw {
			apply = append(apply, path)
		}
	}
	if !levels[LevelRaw] || !levels[1] || !levels[LevelSnapshot] {
		t.Fatalf("levels: %v", levels)
	}
	for _, args := range [][]string{verify, apply} {
		if text, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Fatalf("ltx %s: %v\n%s", args[0], err, text)
		}
	}
	theirs, err := os.ReadFile(filepath.Join(out, "db"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(dir, storage.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(theirs, ours) {
		t.Errorf("the tool makes another database: %d bytes, ours has %d", len(theirs), len(ours))
	}
}
