package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/internal/call"
	"celld/internal/id"
	"celld/internal/owner"
)

// Fleet makes fleet proofs (protocol §8, internal/nodelog) of the same segments
// that the bucket's prover uploads. Whichever proof comes first counts.
type Fleet interface {
	// Offer hands over segments that were just captured, in order. It must not
	// block. proven is called when every member of the active term has fsynced
	// them, and never if that cannot be.
	Offer(cell id.Cell, epoch id.Epoch, segments []Segment, proven func())
	// Pace is how long an upload may wait for more to go with it, because fleet
	// proofs are quick; 0 while there is no active term.
	Pace() time.Duration
}

// prove offers what was just captured to every prover. The bucket's is a
// goroutine that runs while there is something to upload. Without a fleet nobody
// needs the commits one by one: they stay in the stream until the prover takes
// them, as one.
func (a *activation) prove(pos id.TXID) {
	var segments []Segment
	if fleet := a.m.cfg.Fleet; fleet != nil {
		segments = a.stream.Take()
		fleet.Offer(a.slot.id, a.epoch, segments, func() { a.gate.Proven(pos) })
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == 0 {
		a.first, a.waiting = pos, time.Now()
	}
	a.pending = append(a.pending, segments...)
	if a.proving == nil {
		a.proving = make(chan struct{})
		a.m.wg.Go(a.proveAll)
	}
}

// proveAll proves batch after batch until nothing is left or all is lost.
func (a *activation) proveAll() {
	for {
		a.pace()
		segments, since := a.take()
		if segments == nil {
			a.m.wakeWaiters()
			return
		}
		if err := a.proveBatch(segments, since); err != nil {
			a.fail(err)
		}
	}
}

// pace lets more commits join an upload that nobody waits for.
func (a *activation) pace() {
	fleet := a.m.cfg.Fleet
	if fleet == nil {
		return
	}
	t := time.NewTimer(fleet.Pace())
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.hurry:
	case <-a.m.ctx.Done():
	}
}

// take takes everything that waits. If there is nothing, or nothing that is
// worth proving, the prover is over.
func (a *activation) take() (segments []Segment, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	drop := a.hopeless()
	segments, since = a.pending, a.waiting
	if a.m.cfg.Fleet == nil && a.first != 0 {
		segments = a.stream.Take()
	}
	a.pending, a.first = nil, 0
	if len(segments) == 0 || drop {
		close(a.proving)
		a.proving = nil
		return nil, since
	}
	return segments, since
}

// hopeless tells that nothing that waits can be proven any more, or needs to
// be: what was not acknowledged before the cell failed never will be.
func (a *activation) hopeless() bool {
	var gone *owner.Superseded
	switch {
	case a.m.ctx.Err() != nil || errors.As(a.failed, &gone):
		return true
	case a.failed != nil && a.first != 0:
		return a.first > a.gate.ProvenPosition()
	}
	return false
}

// proveBatch makes the bucket proof (protocol §8) of one batch: upload, then
// read the ownership record once for everybody who waits.
func (a *activation) proveBatch(segments []Segment, since time.Time) error {
	last := segments[len(segments)-1].Max
	ctx, cancel := a.budget(since, last)
	defer cancel()
	if err := acquirePermit(ctx, a.m.uploads); err != nil {
		return unproven(err)
	}
	err := retry(ctx, func() error { return a.stream.Upload(ctx, segments) })
	<-a.m.uploads
	if err != nil {
		return unproven(err)
	}
	var gone *owner.Superseded
	err = retry(ctx, func() error {
		err := a.m.cfg.Records.Verify(ctx, a.slot.id, a.epoch)
		if errors.As(err, &gone) {
			return nil
		}
		return err
	})
	switch {
	case gone != nil:
		return unproven(gone)
	case err != nil:
		return unproven(err)
	}
	a.gate.Proven(last)
	return nil
}

// budget is how long a batch may take. What a fleet proof has acknowledged
// meanwhile has no limit: it must reach the bucket before the cell moves.
func (a *activation) budget(since time.Time, last id.TXID) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a.m.ctx)
	left := time.Until(since.Add(a.m.cfg.Durability))
	t := time.AfterFunc(left, func() {
		if a.gate.ProvenPosition() < last {
			cancel(fmt.Errorf("no proof within %v", a.m.cfg.Durability))
		}
	})
	return ctx, func() { t.Stop(); cancel(nil) }
}

// unproven says that a commit may or may not survive, and why nobody knows.
func unproven(err error) error {
	if errors.Is(err, call.ErrFenced) {
		return err
	}
	return fmt.Errorf("%w (%w)", call.ErrUnproven, err)
}

// settle waits until the prover is done: everything that was acknowledged is in
// the bucket, or is not this session's to put there.
func (a *activation) settle() {
	for {
		a.mu.Lock()
		done := a.proving
		a.stopPacing()
		a.mu.Unlock()
		if done == nil {
			return
		}
		<-done
	}
}

// stopPacing makes uploads follow at once from here on. The lock is held.
func (a *activation) stopPacing() {
	if a.hurry != nil && !a.hurried {
		close(a.hurry)
		a.hurried = true
	}
}

// settled tells that no prover runs.
func (a *activation) settled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proving == nil
}
