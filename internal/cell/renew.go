package cell

import (
	"context"
	"time"
)

// renewLook is how often a cell with work that has no caller is looked at again
// for a safe point: nothing tells when such work ends.
const renewLook = 100 * time.Millisecond

// Renew takes the cells that are in memory out of it, one by one, each at a
// safe point: no call runs, no alarm fires, nothing is pending. Its next call
// builds it anew, at the next epoch, with the code that the engine has by then.
// Calls that come meanwhile wait. A cell that found no safe point when ctx ends is
// taken out all the same, with what it was doing.
func (m *Manager) Renew(ctx context.Context) {
	m.mu.Lock()
	var all []*slot
	for s := m.residents.oldest(); s != nil; s = m.residents.newer(s) {
		all = append(all, s)
	}
	m.mu.Unlock()
	permits := make(chan struct{}, releasesAtOnce)
	for _, s := range all {
		if acquirePermit(m.ctx, permits) != nil {
			return
		}
		m.spawn(func() {
			defer func() { <-permits }()
			m.renew(ctx, s, s.bodyNow())
		})
	}
}

// bodyNow is the activation of this moment.
func (s *slot) bodyNow() *activation {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.body
}

func (m *Manager) renew(ctx context.Context, s *slot, old *activation) {
	for {
		m.mu.Lock()
		if m.stopped != nil || s.body != old || s.state != resident {
			m.mu.Unlock()
			return // it left by itself
		}
		forced := ctx.Err() != nil
		if s.closing == nil && (forced || s.calls == 0 && !s.firing && !old.object.Busy()) {
			m.startEvict(s, false, nil)
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		select {
		case <-time.After(renewLook):
		case <-ctx.Done():
		case <-m.ctx.Done():
			return
		}
	}
}
