package cell

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"celld/internal/call"
	"celld/internal/id"
)

// state of a cell on this node.
type state uint8

const (
	inactive state = iota // not in memory; perhaps still this session's
	waking                // being acquired, restored and constructed
	resident              // takes calls
	leaving               // being evicted, released or reset
)

func (s state) String() string {
	return [...]string{"inactive", "waking", "resident", "leaving"}[s]
}

// slot is the place of one cell on this node, and the call.Service of that
// cell. It outlives activations: an evicted cell that is still owned, or waits
// for its alarm, is a slot and nothing else.
type slot struct {
	m    *Manager
	id   id.Cell
	name string

	// All below is guarded by m.mu.
	state      state
	gone       bool        // dropped from the map: look the cell up again
	transition *transition // while waking or leaving
	closing    *transition // while resident and about to be handed over: calls wait
	body       *activation // while resident, and until it has left
	calls      int         // running
	waiting    int         // for the cell to be resident
	used       time.Time   // end or start of the newest call
	prev, next *slot       // in m.residents

	owned  bool
	epoch  id.Epoch   // of the newest activation
	likely id.Session // who owned the cell when it was last seen elsewhere

	resets  int // in a row
	resetAt time.Time

	alarmAt    time.Time // of the alarm row; zero: none
	lookAt     time.Time // when it is looked at next
	alarmIndex int       // in m.alarms, -1: not there
	firing     bool
	entries    []wakeEntry // in the bucket, as far as this session knows
	entrySeq   uint64
}

// transition is one waking or leaving on its way. Whoever needs the cell waits
// for its end.
type transition struct {
	done chan struct{}
	err  error // why a waking failed
}

// slot finds or makes the slot of a cell.
func (m *Manager) slot(cell id.Cell, name string) *slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slotLocked(cell, name)
}

func (m *Manager) slotLocked(cell id.Cell, name string) *slot {
	s := m.cells[cell]
	if s == nil {
		s = &slot{m: m, id: cell, alarmIndex: -1}
		m.cells[cell] = s
	}
	if s.name == "" {
		s.name = name
	}
	return s
}

// forget drops a slot that knows nothing worth keeping.
func (m *Manager) forget(s *slot) {
	if s.state == inactive && !s.owned && s.calls+s.waiting == 0 && !s.gone {
		m.disarm(s)
		s.gone = true
		delete(m.cells, s.id)
	}
}

// enter takes a place in the resident cell, waking it if need be. Every enter
// that succeeds is followed by one exit of the activation's slot. limit bounds the
// calls in progress, this one included.
func (m *Manager) enter(ctx context.Context, s *slot, limit int) (*activation, error) {
	if err := m.cfg.Authority(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.gone {
		s = m.slotLocked(s.id, s.name)
	}
	if n := s.calls + s.waiting; n >= limit {
		return nil, fmt.Errorf("cell %s has %d calls in progress: %w", s.id, n, call.ErrOverloaded)
	}
	s.waiting++
	a, err := m.await(ctx, s)
	s.waiting--
	if err != nil {
		m.forget(s)
		return nil, err
	}
	s.calls++
	return a, nil
}

// await returns when the cell is resident. The lock is held on both ends.
func (m *Manager) await(ctx context.Context, s *slot) (*activation, error) {
	for {
		if m.stopped != nil {
			return nil, m.stopped
		}
		if m.draining {
			return nil, ErrDraining
		}
		t := s.closing
		switch {
		case s.state == resident && t == nil:
			s.used = time.Now()
			m.residents.touch(s)
			return s.body, nil
		case s.state == inactive:
			m.startWaking(s)
		}
		if s.state != resident {
			t = s.transition
		}
		m.mu.Unlock()
		err := t.wait(ctx)
		m.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

func (t *transition) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the cell: %w: %w", context.Cause(ctx), call.ErrNotStarted)
	}
}

// exit gives a place back.
func (m *Manager) exit(s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.used = time.Now()
	s.calls--
	if s.calls == 0 {
		m.forget(s)
		m.changed.Broadcast()
	}
}

// Fetch is a call of the cell.
func (s *slot) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) {
	a, err := s.m.enter(ctx, s, s.m.cfg.MaxCalls)
	if err != nil {
		return nil, err
	}
	resp, err := a.object.Fetch(ctx, r)
	if err != nil || resp.Body == nil || resp.Body.Stream == nil {
		s.m.exit(a.slot)
		return resp, err
	}
	// The call goes on until its body was read or given up.
	resp.Body.Stream = &pinned{ReadCloser: resp.Body.Stream, exit: func() { s.m.exit(a.slot) }}
	return resp, nil
}

// RPC opens a session of RPC messages with the cell.
func (s *slot) RPC(ctx context.Context) (call.Pipe, error) {
	a, err := s.m.enter(ctx, s, s.m.cfg.MaxCalls)
	if err != nil {
		return nil, err
	}
	p, err := a.object.RPC(ctx)
	if err != nil {
		s.m.exit(a.slot)
		return nil, err
	}
	return &pinnedPipe{Pipe: p, exit: func() { s.m.exit(a.slot) }}, nil
}

// pinned is a response body that holds its cell's place until it is closed.
type pinned struct {
	io.ReadCloser
	once sync.Once
	exit func()
}

func (p *pinned) Close() error {
	err := p.ReadCloser.Close()
	p.once.Do(p.exit)
	return err
}

// pinnedPipe is an RPC session that holds its cell's place until it is closed.
type pinnedPipe struct {
	call.Pipe
	once sync.Once
	exit func()
}

func (p *pinnedPipe) Close(cause error) {
	p.Pipe.Close(cause)
	p.once.Do(p.exit)
}

func (p *pinnedPipe) Receive(ctx context.Context) ([]byte, error) {
	msg, err := p.Pipe.Receive(ctx)
	if err != nil && ctx.Err() == nil {
		p.once.Do(p.exit) // the other end closed: nothing holds the cell any more
	}
	return msg, err
}
