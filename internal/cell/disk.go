package cell

import (
	"context"
	"path/filepath"

	"celld/internal/id"
	"celld/internal/storage"
)

// Replication brings a cell's database to this node and everything that it
// commits to the bucket. internal/replica is the product's.
type Replication interface {
	// Open brings the database of st, in dir, to what every epoch before this
	// one acknowledged, and starts to replicate it below epoch. start is its
	// position. Files that an earlier activation left in dir may be used if they are
	// exactly that, and are dropped otherwise. It runs before any turn.
	Open(ctx context.Context, cell id.Cell, epoch id.Epoch, dir string, st *storage.Storage) (s Stream, start id.TXID, err error)
}

// Stream is the replication of one activation's database.
type Stream interface {
	// Capture makes what was committed a segment and tells the new position.
	// It is called with the turn held, after each commit.
	Capture() (id.TXID, error)
	// Take takes the captured segments that nobody took yet, in order.
	Take() []Segment
	// Upload puts segments into the bucket. It may be repeated. It is called
	// while turns run.
	Upload(ctx context.Context, s []Segment) error
	// Rest readies the database for being closed, or reopened, between turns.
	// An error leaves it open.
	Rest() error
	// Close ends it; the files stay. The database is closed already.
	Close() error
}

// Segment is some captured transactions as one LTX file.
type Segment struct {
	Min, Max id.TXID
	Data     []byte
}

// dir is where the files of a cell lie on this node.
func (m *Manager) dir(cell id.Cell) string { return filepath.Join(m.cfg.Dir, cell.Segment()) }
