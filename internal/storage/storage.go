// Package storage is ctx.storage on one SQLite database: SQL with its rules
// and limits, the key-value API, transactions, the alarm row. V8 and Go handlers
// use the same one.
//
// A Storage opens its database when it is first needed and may be closed
// between turns (Rest); a cell in memory without an open database is normal.
//
// Transactions. The first write of a turn begins the implicit transaction, and
// Commit, which the cell calls when the turn ends, commits it: what was written
// without an await in between lands together. transactionSync is a savepoint
// within it. An asynchronous transaction (Begin … End) is a savepoint that stays
// open over turns; meanwhile Commit does nothing.
//
// User statements pass an authorizer (authorize.go): tables of ours begin with
// _cf_ and do not exist for them, and what would break the rules above is refused
// with a sentence that says what to use.
package storage

import (
	"fmt"
	"os"
	"path/filepath"

	"celld/internal/sqlite"
)

// FileName of the database in the directory of its cell.
const FileName = "db.sqlite"

// Storage is the storage of one resident cell. One goroutine at a time uses it:
// the one whose turn it is.
type Storage struct {
	dir string
	db  *sqlite.DB // nil while it rests

	auth    authorizer
	stmts   statements
	cursors map[uint32]*Cursor
	next    uint32
	binds   []any

	begun  bool // the implicit transaction is open
	wrote  bool // and something was written in it
	depth  int  // open transactionSync savepoints
	txns   int  // open asynchronous transactions
	hasKV  tableState
	hasOwn tableState
	mark   int // makes names of savepoints

	alarmSet bool // the alarm was written since AlarmTouched
}

// tableState remembers whether a table of ours exists, so that asking costs nothing.
type tableState uint8

const (
	unknown tableState = iota
	absent
	present
)

// Open returns the storage in dir. The database is opened when it is needed.
func Open(dir string) *Storage { return &Storage{dir: dir} }

// Path of the database file.
func (s *Storage) Path() string { return filepath.Join(s.dir, FileName) }

// DB opens the database if it rests.
func (s *Storage) DB() (*sqlite.DB, error) {
	if s.db != nil {
		return s.db, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	db, err := sqlite.Open(s.Path())
	if err != nil {
		return nil, fmt.Errorf("open the database of the cell: %w", err)
	}
	s.auth = authorizer{}
	if err := db.SetAuthorizer(&s.auth); err != nil {
		db.Close()
		return nil, err
	}
	s.db = db
	s.hasKV, s.hasOwn = unknown, unknown
	return db, nil
}

// Resting: the database is not open.
func (s *Storage) Resting() bool { return s.db == nil }

// Rest closes the database until it is needed again. It is refused while a
// transaction or a cursor is open.
func (s *Storage) Rest() error {
	if s.db == nil {
		return nil
	}
	if s.begun || s.txns > 0 {
		return fmt.Errorf("a transaction is open")
	}
	for _, c := range s.cursors {
		if !c.done {
			return fmt.Errorf("a cursor is open")
		}
	}
	return s.Close()
}

// Close ends every cursor and closes the database, dropping what was not committed.
func (s *Storage) Close() error {
	if s.db == nil {
		return nil
	}
	for _, c := range s.cursors {
		c.finish()
	}
	s.cursors = nil
	s.stmts.close()
	s.begun, s.wrote, s.depth, s.txns = false, false, 0, 0
	db := s.db
	s.db = nil
	return db.Close()
}

// begin opens the implicit transaction.
func (s *Storage) begin() error {
	if s.begun {
		return nil
	}
	if err := s.own("BEGIN"); err != nil {
		return err
	}
	s.begun = true
	return nil
}

// own runs a statement of ours through the statement cache.
func (s *Storage) own(query string, args ...any) error {
	_, err := s.ownRow(query, nil, args...)
	return err
}

// Commit ends the implicit transaction; wrote tells whether it had written.
// While an asynchronous transaction is open it does nothing.
func (s *Storage) Commit() (wrote bool, err error) {
	if !s.begun || s.txns > 0 {
		return false, nil
	}
	if err := s.own("COMMIT"); err != nil {
		return false, fmt.Errorf("commit: %w", err)
	}
	wrote, s.begun, s.wrote = s.wrote, false, false
	return wrote, nil
}

// Rollback drops the implicit transaction and everything in it.
func (s *Storage) Rollback() error {
	if !s.begun {
		return nil
	}
	s.begun, s.wrote, s.depth, s.txns = false, false, 0, 0
	s.hasKV, s.hasOwn = unknown, unknown
	return s.own("ROLLBACK")
}

// InTransaction: an asynchronous transaction is open.
func (s *Storage) InTransaction() bool { return s.txns > 0 }

// UnfinishedWrite: a write statement was not read to its end, so what it does is not known.
func (s *Storage) UnfinishedWrite() bool {
	for _, c := range s.cursors {
		if c.write && !c.done {
			return true
		}
	}
	return false
}

// ---- savepoints

// Savepoint begins a synchronous transaction and names it.
func (s *Storage) Savepoint() (name string, err error) {
	if _, err := s.DB(); err != nil {
		return "", err
	}
	if err := s.begin(); err != nil {
		return "", err
	}
	s.mark++
	name = fmt.Sprintf("_cf_savepoint_%d", s.mark)
	if err := s.own("SAVEPOINT " + name); err != nil {
		return "", err
	}
	s.depth++
	return name, nil
}

// Release ends a savepoint, keeping its writes or dropping them.
func (s *Storage) Release(name string, keep bool) error {
	s.depth--
	if !keep {
		s.hasKV, s.hasOwn = unknown, unknown
		if err := s.own("ROLLBACK TO " + name); err != nil {
			return err
		}
	}
	return s.own("RELEASE " + name)
}

// Begin begins an asynchronous transaction, which may stay open over turns.
func (s *Storage) Begin() (name string, err error) {
	name, err = s.Savepoint()
	if err == nil {
		s.txns++
		s.depth--
	}
	return name, err
}

// End ends one.
func (s *Storage) End(name string, keep bool) error {
	s.txns--
	s.depth++
	return s.Release(name, keep)
}

// Size is the size of the database in bytes.
func (s *Storage) Size() (int64, error) {
	var pages int64
	_, err := s.ownRow("PRAGMA page_count", func(st stmt) { pages = st.ColumnInt64(0) })
	return pages * sqlite.PageSize, err
}

// DeleteAll drops everything that the user stored; the alarm too if asked.
func (s *Storage) DeleteAll(alarm bool) error {
	if _, err := s.DB(); err != nil {
		return err
	}
	for _, c := range s.cursors {
		c.finish()
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.wrote = true
	if err := s.own("PRAGMA defer_foreign_keys = ON"); err != nil {
		return err
	}
	for {
		kind, name, err := s.nextObject()
		if err != nil {
			return err
		}
		if name == "" {
			break
		}
		if err := s.own("DROP " + kind + " " + quote(name)); err != nil {
			return fmt.Errorf("drop %s %s: %w", kind, name, err)
		}
	}
	s.stmts.close()
	s.hasKV = absent
	if alarm {
		return s.SetAlarm(AlarmRow{})
	}
	return nil
}

// nextObject is something of the user's that still stands. Views and triggers go
// first, then virtual tables, which take their shadow tables with them.
func (s *Storage) nextObject() (kind, name string, err error) {
	_, err = s.ownRow(`SELECT type, name FROM sqlite_master
		WHERE name NOT IN ('_cf_ALARM', '_cf_METADATA') AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND type IN ('view', 'trigger', 'table')
		ORDER BY type = 'table', sql NOT LIKE 'CREATE VIRTUAL%' LIMIT 1`,
		func(st stmt) { kind, name = st.ColumnText(0), st.ColumnText(1) })
	return kind, name, err
}
