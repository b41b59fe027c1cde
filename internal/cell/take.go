package cell

import (
	"context"

	"celld/internal/id"
)

// Take makes this node the owner of a cell and has it ready, as if somebody had
// called it: how a node receives what another one hands over.
func (m *Manager) Take(ctx context.Context, cell id.Cell, name string) error {
	a, err := m.enter(ctx, m.slot(cell, name), m.cfg.MaxCalls)
	if err != nil {
		return err
	}
	m.exit(a.slot)
	return nil
}

// Idle are up to n owned cells that nobody uses now, the longest unused first,
// by name: what may be handed to another node without anybody noticing.
func (m *Manager) Idle(n int) map[id.Cell]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[id.Cell]string{}
	for s := m.residents.oldest(); s != nil && len(out) < n; s = m.residents.newer(s) {
		if m.evictable(s, false) {
			out[s.id] = s.name
		}
	}
	for _, s := range m.cells {
		if len(out) >= n {
			break
		}
		if s.owned && s.state == inactive && s.calls+s.waiting == 0 && s.alarmAt.IsZero() {
			out[s.id] = s.name
		}
	}
	return out
}
