package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/internal/call"
	"celld/internal/storage"
)

const (
	// acquireLimit bounds the acquisition of a cell, the sealing of its dead
	// owner included. The restore that follows has no limit: progress decides.
	acquireLimit = time.Minute
	// calm is how long a cell must live for its earlier resets to be forgotten.
	calm = time.Minute
	// firstBackoff doubles for each reset in a row after the first, up to lastBackoff.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// startWaking begins to wake an inactive cell. The lock is held.
func (m *Manager) startWaking(s *slot) {
	t := &transition{done: make(chan struct{})}
	s.state, s.transition = waking, t
	m.count++
	m.wg.Go(func() { m.wake(s, t) })
}

// wake takes a cell from inactive to resident, or tells its waiters why not.
func (m *Manager) wake(s *slot, t *transition) {
	a, err := m.activate(s)

	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(t.done)
	defer m.changed.Broadcast()
	s.transition = nil
	if err != nil {
		t.err = m.wakeError(s, err)
		s.state, s.body = inactive, nil
		m.count--
		m.forget(s)
		return
	}
	s.state, s.body, s.used = resident, a, time.Now()
	m.residents.push(s)
	if cause := a.cause(); cause != nil { // reset between construction and here
		m.startReset(s, a)
	}
}

// wakeError is what those who waited for a waking that failed are told.
func (m *Manager) wakeError(s *slot, err error) error {
	var remote *Remote
	if errors.As(err, &remote) {
		s.owned, s.likely = false, remote.Session
		s.entries = nil
		m.disarm(s)
		return remote
	}
	if m.stopped != nil {
		return m.stopped
	}
	return err
}

// activate is the main path from a name to an object that runs.
func (m *Manager) activate(s *slot) (*activation, error) {
	ctx := m.ctx
	if err := m.backOff(ctx, s); err != nil {
		return nil, notStarted(err)
	}
	// A node that wakes a thousand cells at once restores them a few at a time.
	if err := acquirePermit(ctx, m.permits); err != nil {
		return nil, notStarted(err)
	}
	defer func() { <-m.permits }()
	if err := m.makeRoom(ctx); err != nil {
		return nil, notStarted(err)
	}
	// Become the owner, at an epoch of this activation's own.
	if err := m.acquire(ctx, s); err != nil {
		return nil, notStarted(err)
	}
	// Bring the database to what every earlier epoch acknowledged.
	a, err := m.restore(ctx, s)
	if err != nil {
		return nil, notStarted(err)
	}
	// From here code of the cell runs.
	if err := a.construct(ctx); err != nil {
		a.fail(err)
		a.tearDown()
		m.noteReset(s)
		return nil, err
	}
	return a, nil
}

// notStarted marks a failure from before any code of the cell ran.
func notStarted(err error) error {
	if errors.Is(err, call.ErrNotStarted) {
		return err
	}
	return fmt.Errorf("%w: %w", err, call.ErrNotStarted)
}

func acquirePermit(ctx context.Context, permits chan struct{}) error {
	select {
	case permits <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// backOff delays a cell that resets again and again.
func (m *Manager) backOff(ctx context.Context, s *slot) error {
	m.mu.Lock()
	resets, at := s.resets, s.resetAt
	m.mu.Unlock()
	if resets < 2 {
		return nil
	}
	return sleep(ctx, time.Until(at.Add(min(firstBackoff<<min(resets-2, 10), lastBackoff))))
}

// noteReset remembers that the cell failed; the next waking may have to wait.
func (m *Manager) noteReset(s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(s.resetAt) > calm {
		s.resets = 0
	}
	s.resets++
	s.resetAt = time.Now()
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *Manager) acquire(ctx context.Context, s *slot) error {
	if err := m.cfg.Authority(); err != nil {
		return err
	}
	m.mu.Lock()
	likely := s.likely
	m.mu.Unlock()
	limited, cancel := context.WithTimeoutCause(ctx, acquireLimit, fmt.Errorf("acquire %s: not decided within %v", s.id, acquireLimit))
	defer cancel()
	held, err := m.cfg.Records.Acquire(limited, s.id, likely)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if held.Before.Session != m.cfg.Records.Self().Session {
		s.entries = nil // others may have changed them since
	}
	s.owned, s.epoch, s.likely = true, held.Epoch, ""
	return nil
}

// construct runs the constructor and learns when the cell wants to be woken.
func (a *activation) construct(ctx context.Context) error {
	obj, err := a.m.cfg.Engine.Create(ctx, a)
	if err != nil {
		return err
	}
	a.object = obj
	if cause := a.cause(); cause != nil {
		return cause
	}
	return a.adoptAlarm()
}

// restore opens the cell's database as every earlier epoch left it.
func (m *Manager) restore(ctx context.Context, s *slot) (*activation, error) {
	m.mu.Lock()
	epoch := s.epoch
	m.mu.Unlock()
	dir := m.dir(s.id)
	st := storage.Open(dir)
	stream, start, err := m.cfg.Replication.Open(ctx, s.id, epoch, dir, st)
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", s.id, err)
	}
	a := &activation{m: m, slot: s, epoch: epoch, storage: st, stream: stream}
	if m.cfg.Fleet != nil {
		a.hurry = make(chan struct{})
	}
	a.gate.Init(start, m.cfg.Authority)
	a.touched.Store(time.Now().UnixNano())
	m.mu.Lock()
	stopped := m.stopped
	s.body = a // from here the fence finds it
	m.mu.Unlock()
	if stopped != nil { // it came before
		a.fail(stopped)
		a.tearDown()
		return nil, stopped
	}
	return a, nil
}
