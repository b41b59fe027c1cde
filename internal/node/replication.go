package node

import (
	"context"

	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/replica"
	"celld/internal/storage"
)

// replication joins package replica to package cell, which know nothing of each other.
type replication struct{ r *replica.Replicator }

func (r replication) Open(ctx context.Context, c id.Cell, epoch id.Epoch, dir string, st *storage.Storage) (cell.Stream, id.TXID, error) {
	s, start, err := r.r.Open(ctx, c, epoch, dir, st)
	if err != nil {
		return nil, 0, err
	}
	return stream{s}, start, nil
}

type stream struct{ *replica.Stream }

func (s stream) Take() []cell.Segment {
	var out []cell.Segment
	for _, g := range s.Stream.Take() {
		out = append(out, cell.Segment{Min: g.Min, Max: g.Max, Data: g.Data})
	}
	return out
}

func (s stream) Upload(ctx context.Context, segs []cell.Segment) error {
	out := make([]replica.Segment, len(segs))
	for i, g := range segs {
		out[i] = replica.Segment{Range: replica.Range{Min: g.Min, Max: g.Max}, Data: g.Data}
	}
	return s.Stream.Upload(ctx, out)
}
