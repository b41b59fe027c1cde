package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/internal/bucket"
)

const (
	// retention is how long the record of a sealed session is kept (protocol §4).
	retention = 7 * 24 * time.Hour
	// sweepPeriod is the time between two looks for records that are too old.
	sweepPeriod = 6 * time.Hour
)

// Info is one session as an operator sees it.
type Info struct {
	Record
	Live bool
	Left time.Duration
}

// List reads every session record. Records that cannot be read are left out and
// make the error; what could be read is returned with it.
func (s *Sessions) List(ctx context.Context) ([]Info, error) {
	var out []Info
	var bad []error
	for o, err := range s.store.List(ctx, "nodes/", "") {
		if err != nil {
			return out, errors.Join(append(bad, err)...)
		}
		rec, err := s.readKey(ctx, o.Key)
		switch {
		case errors.Is(err, bucket.ErrNotFound): // deleted since it was listed
		case err != nil:
			bad = append(bad, err)
		default:
			j := s.judge(rec)
			out = append(out, Info{rec.Value, j.Live, time.Until(j.Deadline)})
		}
	}
	return out, errors.Join(bad...)
}

func (s *Sessions) readKey(ctx context.Context, key string) (*stored, error) {
	rec, err := bucket.ReadRecord[Record](ctx, s.store, key)
	if err == nil && Key(rec.Value.Session) != key {
		err = fmt.Errorf("%w: %s is about session %q", bucket.ErrCorruptRecord, key, rec.Value.Session)
	}
	return rec, err
}

// Sweep deletes the records of sessions that were sealed long ago. A sealed
// record never changes again, so its last change is when it was sealed. It
// returns how many were deleted.
func (s *Sessions) Sweep(ctx context.Context) (deleted int, err error) {
	for o, err := range s.store.List(ctx, "nodes/", "") {
		if err != nil {
			return deleted, err
		}
		if s.clock.Wall().Sub(o.Modified) < retention {
			continue
		}
		rec, err := s.readKey(ctx, o.Key)
		if err != nil || rec.Value.State != Sealed {
			continue // not this session's to judge
		}
		if err := s.store.Delete(ctx, o.Key); err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}

// RunSweep sweeps now and then until ctx ends.
func (s *Sessions) RunSweep(ctx context.Context) {
	for {
		n, err := s.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.wire.Warn("old session records could not be deleted; trying again later", "event", "session_sweep", "deleted", n, "err", err)
		}
		if sleep(ctx, sweepPeriod) != nil {
			return
		}
	}
}
