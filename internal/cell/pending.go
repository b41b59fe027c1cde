package cell

import (
	"context"

	"celld/internal/id"
)

// openDisk is replaced in tests.
var openDisk func(ctx context.Context, m *Manager, cell id.Cell, epoch id.Epoch) (disk, id.TXID, error)
