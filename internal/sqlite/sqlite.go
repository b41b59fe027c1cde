// Package sqlite opens the private database of a cell the way celld needs it:
// in WAL mode with nobody else at the file, without fsync (the proof in the
// bucket is the durability; the local file is a cache), without checkpoints of
// its own (package replica reads the log first), and with the platform's limits.
package sqlite

import (
	"errors"
	"fmt"
	"strings"

	driver "zombiezen.com/go/sqlite"
)

// PageSize of every database.
const PageSize = 4096

// cacheKB is the page cache of one open database. Small: a node has thousands open.
const cacheKB = 256

// The platform's limits.
const (
	MaxValue   = 2_200_000 // bytes of one value or row
	MaxSQL     = 100_000   // bytes of one statement's text
	MaxParams  = 100
	MaxColumns = 100
)

var limits = map[driver.Limit]int32{
	driver.LimitLength: MaxValue, driver.LimitSQLLength: MaxSQL, driver.LimitColumn: MaxColumns, driver.LimitExprDepth: 100,
	driver.LimitCompoundSelect: 5, driver.LimitVDBEOp: 25_000, driver.LimitFunctionArg: 32, driver.LimitAttached: 0,
	driver.LimitLikePatternLength: 50, driver.LimitVariableNumber: MaxParams, driver.LimitTriggerDepth: 10, driver.LimitWorkerThreads: 0,
}

// DB is one open database. One goroutine at a time uses it.
type DB struct {
	*driver.Conn
	path string
}

// setup runs once for each open: the order matters, exclusive locking must come
// before the log is opened, else it makes a shared-memory file.
var setup = []string{
	fmt.Sprintf("PRAGMA page_size = %d", PageSize),
	"PRAGMA locking_mode = EXCLUSIVE",
	"PRAGMA journal_mode = WAL",
	"PRAGMA synchronous = OFF",
	"PRAGMA wal_autocheckpoint = 0",
	"PRAGMA foreign_keys = ON",
	"PRAGMA temp_store = MEMORY",
	fmt.Sprintf("PRAGMA cache_size = -%d", cacheKB),
}

// Open opens or creates the database at path.
func Open(path string) (*DB, error) {
	conn, err := driver.OpenConn(path, driver.OpenReadWrite|driver.OpenCreate)
	if err != nil {
		return nil, err
	}
	db := &DB{conn, path}
	for _, q := range setup {
		if err := db.Run(q); err != nil {
			conn.Close()
			return nil, fmt.Errorf("open %s: %s: %w", path, q, err)
		}
	}
	for l, v := range limits {
		conn.Limit(l, v)
	}
	if err := conn.SetDefensive(true); err != nil {
		conn.Close()
		return nil, err
	}
	return db, nil
}

// Path of the database file; the log stands beside it with "-wal" behind the name.
func (db *DB) Path() string { return db.path }

// Run executes a statement of ours, to its end.
func (db *DB) Run(query string) error {
	stmt, _, err := db.PrepareTransient(query)
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	for {
		row, err := stmt.Step()
		if err != nil || !row {
			return err
		}
	}
}

// Checkpoint moves the log into the database; truncate also empties the log's
// file. It is an error if a reader holds it back.
func (db *DB) Checkpoint(truncate bool) error {
	mode := "PASSIVE"
	if truncate {
		mode = "TRUNCATE"
	}
	stmt, _, err := db.PrepareTransient("PRAGMA wal_checkpoint(" + mode + ")")
	if err != nil {
		return err
	}
	defer stmt.Finalize()
	if _, err := stmt.Step(); err != nil {
		return err
	}
	if stmt.ColumnInt(0) != 0 {
		return errors.New("the log is in use by an open cursor")
	}
	return nil
}

// Message is an SQLite error as the platform words it: SQLite's own sentence
// and the name of its code.
func Message(err error) string {
	code := driver.ErrCode(err)
	primary := code.ToPrimary()
	text := sentence(err, code)
	if n, ok := driver.ErrorOffset(err); ok && n >= 0 {
		text = fmt.Sprintf("%s at offset %d", text, n)
	}
	if code == primary {
		return text + ": " + code.String()
	}
	return fmt.Sprintf("%s: %s (extended: %s)", text, primary, code)
}

// sentence is what SQLite itself said: the innermost error, without what its code means in general.
func sentence(err error, code driver.ResultCode) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	general := code.Message()
	return strings.TrimPrefix(err.Error(), general+": ")
}

// Full tells whether err says that the disk is full.
func Full(err error) bool { return driver.ErrCode(err).ToPrimary() == driver.ResultFull }
