package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func fresh(t testing.TB) *Storage {
	s := Open(t.TempDir())
	t.Cleanup(func() { s.Close() })
	return s
}

func exec(t testing.TB, s *Storage, sql string, binds ...any) string {
	t.Helper()
	c, err := s.Exec(sql, binds...)
	if err != nil {
		return "error: " + err.Error()
	}
	rows, err := c.All()
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprint(rows)
}

func commit(t testing.TB, s *Storage) bool {
	t.Helper()
	wrote, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return wrote
}

// The expectations are workerd's answers.
func TestSQL(t *testing.T) {
	for _, c := range []struct{ sql, want string }{
		{"SELECT 1 AS a UNION SELECT 2", "[[1] [2]]"},
		{"CREATE TABLE u (a UNIQUE); INSERT INTO u VALUES (1); INSERT INTO u VALUES (1)", "error: UNIQUE constraint failed: u.a: SQLITE_CONSTRAINT (extended: SQLITE_CONSTRAINT_UNIQUE)"},
		{"SELEC 1", `error: near "SELEC": syntax error at offset 0: SQLITE_ERROR`},
		{"SELECT * FROM nope", "error: no such table: nope: SQLITE_ERROR"},
		{"", "error: SQL code did not contain a statement."},
		{" -- c", "error: SQL code did not contain a statement."},
		{"BEGIN", "error: " + useTransaction},
		{"SAVEPOINT x", "error: " + useTransaction},
		{"ATTACH ':memory:' AS x", "error: not authorized: SQLITE_AUTH"},
		{"VACUUM", "error: cannot VACUUM from within a transaction: SQLITE_ERROR"},
		{"PRAGMA journal_mode = DELETE", "error: not authorized: SQLITE_AUTH"},
		{"CREATE TEMP TABLE t (a)", "error: not authorized: SQLITE_AUTH"},
		{"CREATE TABLE _cf_x (a)", "error: not authorized: SQLITE_AUTH"},
		{"SELECT * FROM _cf_KV", "error: no such table: _cf_KV: SQLITE_ERROR"},
		{"SELECT sqlite_version()", "error: not authorized to use function: sqlite_version at offset 7: SQLITE_ERROR"},
		{"SELECT load_extension('x')", "error: not authorized: SQLITE_ERROR"},
		{"SELECT 1 AS a, 2 AS a", "[[1 2]]"},
		{"CREATE VIRTUAL TABLE x USING dbstat", "error: not authorized: SQLITE_AUTH"},
		{"CREATE VIRTUAL TABLE f USING fts5(t); INSERT INTO f VALUES ('quick fox'), ('dog'); SELECT t FROM f WHERE f MATCH 'quick'", "[[quick fox]]"},
		{"SELECT json_extract('{\"a\":[1,2]}', '$.a[1]'), pow(2, 10)", "[[2 1024]]"},
		{"CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p(id)); INSERT INTO c VALUES (5)", "error: FOREIGN KEY constraint failed: SQLITE_CONSTRAINT (extended: SQLITE_CONSTRAINT_FOREIGNKEY)"},
		{"PRAGMA foreign_keys = OFF", "[]"},
	} {
		t.Run(c.sql, func(t *testing.T) {
			s := fresh(t)
			if got := exec(t, s, c.sql); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := exec(t, s, "SELECT 7"); got != "[[7]]" {
				t.Errorf("the database is not usable afterwards: %s", got)
			}
		})
	}
}

func TestForeignKeysStayOn(t *testing.T) {
	s := fresh(t)
	exec(t, s, "PRAGMA foreign_keys = OFF")
	commit(t, s)
	if got := exec(t, s, "CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p(id)); INSERT INTO c VALUES (5)"); !strings.Contains(got, "FOREIGN KEY") {
		t.Error(got)
	}
}

func TestBinds(t *testing.T) {
	s := fresh(t)
	if got := exec(t, s, "SELECT ?, ?, ?, ?", nil, 1.5, "x", []byte{1}); got != "[[<nil> 1.5 x [1]]]" {
		t.Error(got)
	}
	for _, binds := range [][]any{{}, {1, 2}} {
		if got := exec(t, s, "SELECT ?", binds...); got != "error: Wrong number of parameter bindings for SQL query." {
			t.Error(got)
		}
	}
	if got := exec(t, s, "SELECT ?; SELECT 1", 1); !strings.Contains(got, "only the last statement can have parameters") {
		t.Error(got)
	}
}

func TestCursorSeesWhatIsInsertedBehindIt(t *testing.T) {
	s := fresh(t)
	exec(t, s, "CREATE TABLE t (a); INSERT INTO t VALUES (1), (2)")
	c, err := s.Exec("SELECT a FROM t")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, s, "INSERT INTO t VALUES (3)")
	rows, err := c.All()
	if fmt.Sprint(rows) != "[[1] [2] [3]]" || err != nil {
		t.Error(rows, err)
	}
	if !c.Done() || s.Cursor(c.ID()) != nil {
		t.Error("a cursor that was read to its end is still open")
	}
}

func TestImplicitTransaction(t *testing.T) {
	s := fresh(t)
	if commit(t, s) {
		t.Error("nothing was written")
	}
	exec(t, s, "CREATE TABLE t (a)")
	s.Put("k", []byte("v"))
	if !commit(t, s) {
		t.Error("something was written")
	}
	exec(t, s, "INSERT INTO t VALUES (1)")
	s.Put("k", []byte("w"))
	s.Rollback()
	if got := exec(t, s, "SELECT count(*) FROM t"); got != "[[0]]" {
		t.Error(got)
	}
	if v, _ := s.Get("k"); string(v) != "v" {
		t.Errorf("%q", v)
	}
	if commit(t, s) {
		t.Error("reading is not writing")
	}
}

func TestSavepointsNest(t *testing.T) {
	s := fresh(t)
	exec(t, s, "CREATE TABLE t (a)")
	a, _ := s.Savepoint()
	exec(t, s, "INSERT INTO t VALUES (1)")
	b, _ := s.Savepoint()
	exec(t, s, "INSERT INTO t VALUES (2)")
	s.Release(b, false)
	exec(t, s, "INSERT INTO t VALUES (3)")
	s.Release(a, true)
	commit(t, s)
	if got := exec(t, s, "SELECT a FROM t"); got != "[[1] [3]]" {
		t.Error(got)
	}
}

func TestAsynchronousTransactionSpansTurns(t *testing.T) {
	for _, keep := range []bool{true, false} {
		s := fresh(t)
		s.Put("k", []byte("before"))
		commit(t, s)
		name, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		s.Put("k", []byte("inside"))
		if commit(t, s) || !s.InTransaction() {
			t.Fatal("a turn's end committed an open transaction")
		}
		if err := s.End(name, keep); err != nil {
			t.Fatal(err)
		}
		commit(t, s)
		want := map[bool]string{true: "inside", false: "before"}[keep]
		if v, _ := s.Get("k"); string(v) != want {
			t.Errorf("keep %v: %q", keep, v)
		}
	}
}

func TestUnfinishedWrite(t *testing.T) {
	s := fresh(t)
	exec(t, s, "CREATE TABLE t (a)")
	c, err := s.Exec("INSERT INTO t VALUES (1), (2) RETURNING a")
	if err != nil || !s.UnfinishedWrite() {
		t.Fatal(err, s.UnfinishedWrite())
	}
	c.All()
	if s.UnfinishedWrite() {
		t.Error("it was read to its end")
	}
	if c, err = s.Exec("SELECT a FROM t"); err != nil || s.UnfinishedWrite() {
		t.Error("a read cursor is no unfinished write", err)
	}
}

func TestKVOrderAndRanges(t *testing.T) {
	s := fresh(t)
	for _, k := range []string{"b", "a", "é", "Z", "a/", "a\xff"} {
		s.Put(k, []byte(k))
	}
	for _, c := range []struct {
		o    ListOptions
		want string
	}{
		{ListOptions{}, "Z a a/ a\xff b é"},
		{ListOptions{Reverse: true, Limit: 2}, "é b"},
		{ListOptions{Start: "a/", End: "b"}, "a/ a\xff"},
		{ListOptions{After: "a"}, "a/ a\xff b é"},
		{ListOptions{Prefix: "a"}, "a a/ a\xff"},
		{ListOptions{Prefix: "a\xff"}, "a\xff"},
		{ListOptions{Prefix: "nope"}, ""},
	} {
		var got []string
		if err := s.List(c.o, func(k string, v []byte) bool { got = append(got, k); return true }); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q, want %q", c.o, strings.Join(got, " "), c.want)
		}
	}
	if there, _ := s.Delete("a"); !there {
		t.Error("delete of a key that is there")
	}
	if there, _ := s.Delete("a"); there {
		t.Error("delete of a key that is not")
	}
}

func TestDeleteAll(t *testing.T) {
	s := fresh(t)
	s.Put("k", []byte("v"))
	exec(t, s, `CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p(id)); INSERT INTO p VALUES (1); INSERT INTO c VALUES (1);
		CREATE VIRTUAL TABLE f USING fts5(t); CREATE VIEW v AS SELECT * FROM p; CREATE TRIGGER tr AFTER INSERT ON p BEGIN SELECT 1; END; CREATE TABLE "odd ""name" (a)`)
	s.SetAlarm(AlarmRow{At: time.UnixMilli(1000)})
	commit(t, s)
	if err := s.DeleteAll(false); err != nil {
		t.Fatal(err)
	}
	commit(t, s)
	if got := exec(t, s, "SELECT name FROM sqlite_master WHERE name NOT LIKE '\\_cf\\_%' ESCAPE '\\'"); got != "[]" {
		t.Error(got)
	}
	if v, _ := s.Get("k"); v != nil {
		t.Error("the key survived")
	}
	if a, _ := s.Alarm(); a.At.IsZero() {
		t.Error("the alarm was to stay")
	}
	s.DeleteAll(true)
	if a, _ := s.Alarm(); !a.At.IsZero() {
		t.Error("the alarm was to go")
	}
}

func TestAlarmRow(t *testing.T) {
	s := fresh(t)
	if a, err := s.Alarm(); err != nil || !a.At.IsZero() {
		t.Error(a, err)
	}
	want := AlarmRow{At: time.UnixMilli(5000), Retry: 2, Counted: 1, Running: true}
	s.SetAlarm(want)
	if got, _ := s.Alarm(); got != want {
		t.Errorf("%+v", got)
	}
	s.SetAlarm(AlarmRow{})
	if a, _ := s.Alarm(); !a.At.IsZero() {
		t.Error("not removed")
	}
}

func TestRestAndReopen(t *testing.T) {
	s := fresh(t)
	s.Put("k", []byte("v"))
	if s.Rest() == nil {
		t.Error("rested within a transaction")
	}
	commit(t, s)
	if err := s.Rest(); err != nil || !s.Resting() {
		t.Fatal(err)
	}
	if v, err := s.Get("k"); string(v) != "v" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, FileName+"-shm")); !errors.Is(err, os.ErrNotExist) {
		t.Error("there is a shared-memory file: exclusive locking came too late")
	}
}

func TestLimits(t *testing.T) {
	s := fresh(t)
	exec(t, s, "CREATE TABLE t (a)")
	big := strings.Repeat("x", 3<<20)
	for _, c := range []struct {
		sql   string
		binds []any
		want  string
	}{
		{"INSERT INTO t VALUES (?)", []any{big}, "string or blob too big: SQLITE_TOOBIG"},
		{"SELECT 1 -- " + strings.Repeat("x", 100_001), nil, "SQLITE_TOOBIG"},
		{"SELECT 'x' LIKE ?", []any{strings.Repeat("%", 60)}, "LIKE or GLOB pattern too complex: SQLITE_ERROR"},
		{"CREATE TABLE m (" + strings.Repeat("c,", 0) + manyColumns(101) + ")", nil, "too many columns on m: SQLITE_ERROR"},
	} {
		if got := exec(t, s, c.sql, c.binds...); !strings.Contains(got, c.want) {
			t.Errorf("%.40s: %.200s, want %s", c.sql, got, c.want)
		}
	}
	if err := s.Put("k", []byte(big)); err == nil || !strings.Contains(err.Error(), "SQLITE_TOOBIG") {
		t.Error(err)
	}
}

func manyColumns(n int) string {
	cols := make([]string, n)
	for i := range cols {
		cols[i] = fmt.Sprintf("c%d", i)
	}
	return strings.Join(cols, ", ")
}

func TestCountersAsThePlatformCounts(t *testing.T) {
	s := fresh(t)
	exec(t, s, "CREATE TABLE t (a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t (b)")
	for _, c := range []struct {
		sql  string
		want [2]int64
	}{
		{"INSERT INTO t VALUES (1, 2), (2, 3)", [2]int64{2, 4}},
		{"SELECT * FROM t", [2]int64{2, 0}},
		{"SELECT * FROM t WHERE b = 3", [2]int64{1, 0}},
		{"UPDATE t SET b = 9 WHERE a = 1", [2]int64{1, 2}},
		{"DELETE FROM t", [2]int64{0, 2}},
	} {
		cur, err := s.Exec(c.sql)
		if err != nil {
			t.Fatal(err)
		}
		cur.All()
		if got := [2]int64{cur.RowsRead(), cur.RowsWritten()}; got != c.want {
			t.Errorf("%s: %v, want %v", c.sql, got, c.want)
		}
	}
}

func BenchmarkUpdateTurn(b *testing.B) {
	s := fresh(b)
	exec(b, s, "CREATE TABLE t (id INTEGER PRIMARY KEY, n)")
	exec(b, s, "INSERT INTO t VALUES (1, 0)")
	commit(b, s)
	for b.Loop() {
		if _, err := s.Exec("UPDATE t SET n = n + 1 WHERE id = ?", 1.0); err != nil {
			b.Fatal(err)
		}
		s.Commit()
		if b.N%1000 == 0 {
			s.db.Checkpoint(true)
		}
	}
}

func BenchmarkSelect(b *testing.B) {
	s := fresh(b)
	exec(b, s, "CREATE TABLE t (id INTEGER PRIMARY KEY, n); INSERT INTO t VALUES (1, 5)")
	commit(b, s)
	for b.Loop() {
		c, err := s.Exec("SELECT n FROM t WHERE id = ?", 1.0)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

func BenchmarkKVGet(b *testing.B) {
	s := fresh(b)
	s.Put("k", []byte("value"))
	commit(b, s)
	for b.Loop() {
		s.Get("k")
	}
}
