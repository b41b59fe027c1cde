package cell

import (
	"context"
	"path/filepath"

	"celld/internal/id"
	"celld/internal/storage"
)

// stream is the replication of one activation's database (internal/replica).
type stream interface {
	// Capture makes what was committed a segment and tells the new position.
	// It is called with the turn held, while the database is open.
	Capture() (id.TXID, error)
	// Take takes the captured segments that nobody took yet, in order.
	Take() []segment
	// Upload puts segments into the bucket. It may be repeated.
	Upload(ctx context.Context, s []segment) error
	// Close ends it; the files stay.
	Close() error
}

// segment is the positions of one captured segment.
type segment = struct{ Min, Max id.TXID }

// openStream brings the database in dir to what every epoch before this one
// acknowledged, and starts to replicate it at the position it tells.
var openStream func(ctx context.Context, m *Manager, cell id.Cell, epoch id.Epoch, dir string, st *storage.Storage) (stream, id.TXID, error)

// dir is where the files of a cell lie on this node.
func (m *Manager) dir(cell id.Cell) string { return filepath.Join(m.cfg.Dir, cell.Segment()) }
