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

// prove makes sure that a prover works on what was committed. There is one
// while there is something unproven, and none otherwise.
func (a *activation) prove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting.IsZero() {
		a.waiting = time.Now()
	}
	if a.proving != nil {
		return
	}
	a.proving = make(chan struct{})
	a.m.wg.Go(a.proveAll)
}

// proveAll proves batch after batch until nothing is left or all is lost.
func (a *activation) proveAll() {
	for {
		segments, since, done := a.take()
		if done != nil {
			close(done)
			a.m.wakeWaiters()
			return
		}
		if err := a.proveBatch(segments, since); err != nil {
			a.fail(err)
		}
	}
}

// take takes everything that waits. If there is nothing, or nothing can be
// proven any more, the prover is over: done is to be closed.
func (a *activation) take() (segments []segment, since time.Time, done chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.hopeless() {
		segments = a.disk.Take()
	}
	if a.failed != nil && len(segments) > 0 && segments[0].Min > a.gate.ProvenPosition() {
		segments = nil // nobody was told of them, and nobody will be
	}
	since, a.waiting = a.waiting, time.Time{}
	if len(segments) == 0 {
		done, a.proving = a.proving, nil
	}
	return segments, since, done
}

// hopeless tells that nothing of this activation can be proven any more.
func (a *activation) hopeless() bool {
	var gone *owner.Superseded
	return a.m.ctx.Err() != nil || errors.As(a.failed, &gone)
}

// proveBatch makes the bucket proof (protocol §8) of one batch: upload, then
// read the ownership record once for everybody who waits.
func (a *activation) proveBatch(segments []segment, since time.Time) error {
	last := segments[len(segments)-1].Max
	ctx, cancel := a.budget(since, last)
	defer cancel()
	if err := acquirePermit(ctx, a.m.uploads); err != nil {
		return unproven(err)
	}
	err := retry(ctx, func() error { return a.disk.Upload(ctx, segments) })
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
		a.mu.Unlock()
		if done == nil {
			return
		}
		<-done
	}
}

// settled tells that no prover runs.
func (a *activation) settled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proving == nil
}
