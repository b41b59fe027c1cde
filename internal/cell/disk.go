package cell

import (
	"context"
	"path/filepath"
	"time"

	"celld/internal/id"
	"celld/internal/storage"
)

// disk is the database of one activation together with its replication: what
// internal/storage and internal/replica are to this package. Its methods are
// called with the activation's turn held, except Take and Upload.
type disk interface {
	Storage() *storage.Storage

	// InTransaction: an explicit transaction is open over several turns.
	InTransaction() bool
	// UnfinishedWrite: a write statement was not read to its end.
	UnfinishedWrite() bool
	// Commit ends the implicit transaction; wrote tells whether there was one.
	Commit() (wrote bool, err error)
	// Capture turns what was committed into a segment and tells the new position.
	Capture() (id.TXID, error)

	// Alarm is the alarm row as it stands; zero: there is none.
	Alarm() (alarmRow, error)
	// SetAlarm writes the row, or deletes it if row.At is zero. While running, getAlarm()
	// gives null until the handler sets an alarm of its own, which clears the mark.
	SetAlarm(row alarmRow) error

	// Take takes the captured segments that nobody took yet.
	Take() []segment
	// Upload puts segments into the bucket.
	Upload(ctx context.Context, s []segment) error

	// Rest closes the database until the next Open; it may refuse.
	Rest() error
	Open() error
	// Close ends it; the files stay.
	Close() error
}

// segment is the positions of one captured segment.
type segment = struct{ Min, Max id.TXID }

// alarmRow is the alarm of a cell as its database holds it.
type alarmRow struct {
	At      time.Time
	Retry   int // failures so far
	Counted int // those that were the handler's
	Running bool
}

// dir is where the files of a cell lie on this node.
func (m *Manager) dir(cell id.Cell) string { return filepath.Join(m.cfg.Dir, cell.Segment()) }
