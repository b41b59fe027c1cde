package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/superfly/ltx"

	"celld/internal/bucket"
	"celld/internal/id"
)

// minKeep is the shortest retention that Prune takes. A restore that began from
// an older listing has long ended by then, and clocks that disagree do not matter.
const minKeep = time.Hour

var (
	// ErrKeep: the retention that was asked for is not safe.
	ErrKeep = fmt.Errorf("history younger than %v is never deleted", minKeep)
	// ErrSuperseded: a later activation has written, so this one deletes nothing.
	ErrSuperseded = errors.New("a later epoch has data in the bucket; this activation deletes nothing")
)

// Prune deletes what a snapshot of this epoch has replaced for longer than keep,
// and tells how many objects that were. Every moment within keep can still be
// restored: from the snapshot and what follows it. Nothing calls Prune on its own.
//
// owns reads the ownership record and fails unless it still names this session at
// this epoch. It runs after the snapshot was seen in the bucket: whoever acquires
// the cell later than that lists the snapshot too, and goes on at or behind its
// end. So what is deleted stays useless even if the cell is lost meanwhile.
func (s *Stream) Prune(ctx context.Context, keep time.Duration, owns func(context.Context) error) (int, error) {
	if keep < minKeep {
		return 0, fmt.Errorf("prune cell %s, keep %v: %w", s.cell, keep, ErrKeep)
	}
	free, err := s.occupy(ctx) // no compaction reads what is deleted
	if err != nil {
		return 0, err
	}
	defer free()
	snapshot, useless, err := s.replaced(ctx, time.Now().Add(-keep))
	if err != nil || len(useless) == 0 {
		return 0, err
	}
	if err := s.verify(ctx, snapshot); err != nil {
		return 0, err
	}
	if err := owns(ctx); err != nil {
		return 0, fmt.Errorf("prune cell %s: %w", s.cell, err)
	}
	s.forget(snapshot.Max)
	for i, k := range useless {
		if err := s.r.store.Delete(ctx, k.String()); err != nil {
			return i, fmt.Errorf("delete %s: %w", k, err)
		}
	}
	return len(useless), nil
}

// occupy waits until no compaction of this stream runs, and lets none begin
// before free was called.
func (s *Stream) occupy(ctx context.Context) (free func(), err error) {
	for {
		s.mu.Lock()
		running := s.done
		if running == nil {
			mine := make(chan struct{})
			s.done = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				s.done = nil
				s.mu.Unlock()
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// replaced finds the newest snapshot of this epoch from before the horizon, and
// the objects from before the horizon that a restore no longer needs with it.
func (s *Stream) replaced(ctx context.Context, horizon time.Time) (snapshot Key, useless []Key, err error) {
	var old []Key
	for o, err := range s.r.store.List(ctx, Prefix(s.cell), "") {
		if err != nil {
			return Key{}, nil, fmt.Errorf("list the objects of cell %s: %w", s.cell, err)
		}
		k, err := ParseKey(s.cell, o.Key)
		switch {
		case err != nil: // not ours to delete
		case k.Epoch > s.epoch:
			return Key{}, nil, fmt.Errorf("prune cell %s: %s: %w", s.cell, k, ErrSuperseded)
		case aged(o, horizon):
			old = append(old, k)
			if k.Epoch == s.epoch && k.Level == LevelSnapshot && k.Min == 1 && k.Max > snapshot.Max {
				snapshot = k
			}
		}
	}
	if snapshot.Max == 0 {
		return Key{}, nil, nil
	}
	for _, k := range old {
		// A restore ends its way back at the snapshot, so nothing of an older epoch counts.
		if k != snapshot && (k.Epoch < s.epoch || k.Max <= snapshot.Max) {
			useless = append(useless, k)
		}
	}
	return snapshot, useless, nil
}

// aged: the object was there before the horizon. One of unknown age is young.
func aged(o bucket.Object, horizon time.Time) bool {
	return !o.Modified.IsZero() && o.Modified.Before(horizon)
}

// verify reads a snapshot back: it alone will hold what is deleted.
func (s *Stream) verify(ctx context.Context, k Key) error {
	body, _, err := s.r.store.Open(ctx, k.String(), 0, -1)
	if err != nil {
		return fmt.Errorf("verify %s: %w", k, err)
	}
	defer body.Close()
	src := newSource(body)
	// The library checks the pages of a snapshot against its checksum.
	_, err = decode(src, func(h ltx.Header) error {
		if id.TXID(h.MinTXID) != k.Min || id.TXID(h.MaxTXID) != k.Max {
			return fmt.Errorf("it holds transactions %s-%s", h.MinTXID, h.MaxTXID)
		}
		return nil
	}, func(uint32, []byte) error { return nil })
	switch {
	case src.failed != nil:
		return fmt.Errorf("verify %s: %w", k, src.failed)
	case err != nil:
		return &CorruptError{s.cell, []string{k.String()}, err.Error()}
	}
	return nil
}

// forget takes what is about to be deleted out of what compaction would read.
func (s *Stream) forget(upTo id.TXID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.covered(upTo)
}
