package cell

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"celld/internal/call"
	"celld/internal/id"
	"celld/internal/owner"
)

// releasesAtOnce bounds how many cells a drain takes apart at the same time.
const releasesAtOnce = 64

// startReset takes a failed cell out of service. The lock is held.
func (m *Manager) startReset(s *slot, a *activation) {
	if s.state != resident || s.body != a {
		return // whoever wakes it or takes it down will see the cause
	}
	t := m.startLeaving(s)
	m.wg.Go(func() {
		a.tearDown()
		m.noteReset(s)
		m.left(s, a, t)
	})
}

// startLeaving closes a resident cell for calls. The lock is held.
func (m *Manager) startLeaving(s *slot) *transition {
	t := s.closing
	if t == nil {
		t = &transition{done: make(chan struct{})}
	}
	s.state, s.transition, s.closing = leaving, t, nil
	m.residents.remove(s)
	m.leaving++
	return t
}

// left ends the leaving of a cell, a if it was in memory; those who waited may
// wake it again.
func (m *Manager) left(s *slot, a *activation, t *transition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a != nil && a.cause() != nil {
		m.leftFailed(s, a)
	}
	s.state, s.transition, s.body = inactive, nil, nil
	m.count--
	m.leaving--
	m.forget(s)
	close(t.done)
	m.changed.Broadcast()
}

// leftFailed draws the consequences of a reset for ownership and alarm. The
// lock is held.
func (m *Manager) leftFailed(s *slot, a *activation) {
	var gone *owner.Superseded
	if errors.As(a.cause(), &gone) {
		s.owned, s.likely = false, gone.Now.Session
		s.entries = nil
	}
	m.lookAgain(s, a)
}

// startEvict begins to take an idle cell out of memory; done, if not nil, hears
// the result. The lock is held.
func (m *Manager) startEvict(s *slot, release bool, done func(error)) {
	a, t := s.body, m.startLeaving(s)
	m.wg.Go(func() {
		err := a.vacate()
		if err == nil && release {
			err = m.release(s)
		}
		if err != nil && a.cause() != nil {
			m.noteReset(s)
		}
		m.left(s, a, t)
		if err != nil {
			m.log.Warn("cell_evict_failed", "cell", s.id, "err", err)
		}
		if done != nil {
			done(err)
		}
	})
}

// release hands the ownership record back. What the cell acknowledged is in
// the bucket already.
func (m *Manager) release(s *slot) error {
	m.mu.Lock()
	epoch, owned := s.epoch, s.owned
	m.mu.Unlock()
	if !owned {
		return nil
	}
	if err := m.cfg.Authority(); err != nil {
		return err
	}
	// Not ours any more as soon as we try: a lost reply may hide a success.
	m.mu.Lock()
	s.owned = false
	m.disarm(s)
	m.mu.Unlock()
	return m.cfg.Records.Release(m.ctx, s.id, epoch)
}

// evictable tells whether a cell may leave memory. Under pressure an alarm
// that is due soon does not keep it. The lock is held.
func (m *Manager) evictable(s *slot, pressed bool) bool {
	if s.state != resident || s.calls+s.waiting > 0 || s.firing || s.body.object.Busy() || !s.body.settled() {
		return false
	}
	return pressed || s.alarmAt.IsZero() || time.Until(s.alarmAt) > m.cfg.AlarmResident
}

// makeRoom waits until the cell that is counted already fits below the cap,
// evicting the least recently used idle ones.
func (m *Manager) makeRoom(ctx context.Context) error {
	if m.cfg.MaxResident <= 0 {
		return nil
	}
	stop := context.AfterFunc(ctx, m.wakeWaiters)
	defer stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.count > m.cfg.MaxResident {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if m.evictOldest(m.count-m.cfg.MaxResident, true, false, nil) == 0 && m.leaving == 0 {
			return fmt.Errorf("%d cells are resident and none is idle: %w", m.count-1, call.ErrOverloaded)
		}
		m.changed.Wait()
	}
	return nil
}

// evictOldest starts to evict up to n idle cells. The lock is held.
func (m *Manager) evictOldest(n int, pressed, release bool, wg *sync.WaitGroup) (started int) {
	for s := m.residents.oldest(); s != nil && started < n; {
		next := m.residents.newer(s)
		if m.evictable(s, pressed) {
			started++
			if wg != nil {
				wg.Add(1)
			}
			m.startEvict(s, release, func(error) {
				if wg != nil {
					wg.Done()
				}
			})
		}
		s = next
	}
	return started
}

// Shed takes up to n idle cells out of memory because memory is short, and
// gives their records back so that others may serve them. It returns how many left.
func (m *Manager) Shed(n int) int {
	var wg sync.WaitGroup
	m.mu.Lock()
	started := 0
	if m.stopped == nil {
		started = m.evictOldest(n, true, true, &wg)
	}
	m.mu.Unlock()
	wg.Wait()
	return started
}

// runSweep closes databases that nobody used for a while and evicts idle cells.
func (m *Manager) runSweep() {
	period := m.cfg.IdleClose / 2
	if m.cfg.IdleEvict > 0 {
		period = min(period, m.cfg.IdleEvict/2)
	}
	period = max(period, 50*time.Millisecond)
	for sleep(m.ctx, period) == nil {
		m.sweep()
	}
}

func (m *Manager) sweep() {
	now := time.Now()
	var idle []*activation
	m.mu.Lock()
	for s := m.residents.oldest(); s != nil; {
		next := m.residents.newer(s)
		quiet := now.Sub(s.used)
		switch {
		case m.stopped != nil:
		case m.cfg.IdleEvict > 0 && quiet >= m.cfg.IdleEvict && m.evictable(s, false):
			m.startEvict(s, false, nil)
		case s.body.restable(now, m.cfg.IdleClose):
			idle = append(idle, s.body)
		}
		s = next
	}
	m.mu.Unlock()
	for _, a := range idle {
		a.rest()
	}
}

// Release hands one cell over: when its calls have ended and everything is
// proven in the bucket, its record is released. Calls that come meanwhile wait,
// and acquire the cell again.
func (m *Manager) Release(ctx context.Context, cell id.Cell) error {
	m.mu.Lock()
	s := m.cells[cell]
	m.mu.Unlock()
	if s == nil {
		return nil
	}
	return m.handOver(ctx, s)
}

func (m *Manager) handOver(ctx context.Context, s *slot) error {
	stop := context.AfterFunc(ctx, m.wakeWaiters)
	defer stop()
	m.mu.Lock()
	for {
		switch {
		case ctx.Err() != nil || m.stopped != nil:
			m.reopen(s)
			m.mu.Unlock()
			return fmt.Errorf("release %s: %w", s.id, errors.Join(context.Cause(ctx), m.stopped))
		case s.state == resident && s.calls == 0:
			done := make(chan error, 1)
			m.startEvict(s, true, func(err error) { done <- err })
			m.mu.Unlock()
			return <-done
		case s.state == resident && s.closing == nil:
			s.closing = &transition{done: make(chan struct{})}
		case s.state == inactive && !s.owned:
			m.mu.Unlock()
			return nil
		case s.state == inactive:
			t := m.startLeaving(s) // nobody wakes it meanwhile
			m.count++
			m.mu.Unlock()
			err := m.release(s)
			m.left(s, nil, t)
			return err
		}
		m.changed.Wait()
	}
}

// reopen lets calls in again after a hand-over that did not come to its end.
// The lock is held.
func (m *Manager) reopen(s *slot) {
	if s.closing != nil {
		close(s.closing.done)
		s.closing = nil
	}
}

// Drain hands every cell over: calls in progress end, what they wrote is
// proven, the records are released. No cell is woken any more. What is not done
// when ctx ends stays takeable: the next owner seals this session first.
func (m *Manager) Drain(ctx context.Context) error {
	m.mu.Lock()
	m.draining = true // also those who wait for a cell look again and are refused
	all := make([]*slot, 0, len(m.cells))
	for _, s := range m.cells {
		all = append(all, s)
	}
	m.mu.Unlock()

	permits := make(chan struct{}, releasesAtOnce)
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		if err := acquirePermit(ctx, permits); err != nil {
			errs[i] = fmt.Errorf("drain: %d cells are left: %w", len(all)-i, err)
			break
		}
		wg.Go(func() {
			defer func() { <-permits }()
			errs[i] = m.handOver(ctx, s)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Fence stops everything at once: no turn begins, no output leaves, nothing is
// written to the bucket, every caller fails with call.ErrFenced. Terminal. It
// does not wait for code that still runs; Close does.
func (m *Manager) Fence() { m.stop(call.ErrFenced) }

// Close ends the manager and waits for everything it started. Cells that were
// not drained are dropped as they are.
func (m *Manager) Close() {
	m.stop(fmt.Errorf("this node has stopped: %w", call.ErrNotStarted))
	m.wg.Wait()
}

func (m *Manager) stop(cause error) {
	m.mu.Lock()
	if m.stopped != nil {
		m.mu.Unlock()
		return
	}
	m.stopped = cause
	var bodies []*activation
	for _, s := range m.cells {
		if s.body != nil {
			bodies = append(bodies, s.body)
		}
	}
	m.mu.Unlock()
	m.cancel(cause)
	for _, a := range bodies {
		a.fail(cause)
	}
	m.mu.Lock()
	m.changed.Broadcast()
	m.mu.Unlock()
}

// wakeWaiters lets those look again who wait for a cell to become idle.
func (m *Manager) wakeWaiters() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed.Broadcast()
}

func (m *Manager) isDraining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}
