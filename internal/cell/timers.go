package cell

import (
	"container/heap"
	"time"
)

// alarmHeap holds the slots with an armed alarm, the earliest first: one heap
// and one timer for all cells of the node.
type alarmHeap []*slot

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].lookAt.Before(h[j].lookAt) }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].alarmIndex, h[j].alarmIndex = i, j
}

func (h *alarmHeap) Push(x any) {
	s := x.(*slot)
	s.alarmIndex = len(*h)
	*h = append(*h, s)
}

func (h *alarmHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.alarmIndex = -1
	return s
}

// arm notes when the alarm of a cell is, zero for never, and looks at it then.
// While a firing is on its way the time is only noted. The lock is held.
func (m *Manager) arm(s *slot, at time.Time) {
	if at.IsZero() {
		m.disarm(s)
		return
	}
	s.alarmAt = at
	if !s.firing {
		m.lookAt(s, at)
	}
}

// lookAt sets the time at which the node looks at the cell's alarm row, which
// may be later than the alarm. The lock is held.
func (m *Manager) lookAt(s *slot, at time.Time) {
	s.lookAt = at
	if s.alarmIndex >= 0 {
		heap.Fix(&m.alarms, s.alarmIndex)
	} else {
		heap.Push(&m.alarms, s)
	}
	if s.alarmIndex == 0 {
		select {
		case m.poke <- struct{}{}:
		default:
		}
	}
}

// disarm forgets the alarm of a cell. The lock is held.
func (m *Manager) disarm(s *slot) {
	if s.alarmIndex >= 0 {
		heap.Remove(&m.alarms, s.alarmIndex)
	}
	s.alarmAt = time.Time{}
}

// runAlarms starts the alarms of this node as they fall due.
func (m *Manager) runAlarms() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(m.startDue())
		select {
		case <-timer.C:
		case <-m.poke:
		case <-m.ctx.Done():
			return
		}
	}
}

// startDue starts every alarm that is due and tells how long until the next.
func (m *Manager) startDue() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped != nil {
		return time.Hour
	}
	for len(m.alarms) > 0 {
		s := m.alarms[0]
		if wait := time.Until(s.lookAt); wait > 0 {
			return min(wait, time.Hour) // looked at again each hour: the clock may be set
		}
		heap.Pop(&m.alarms)
		s.firing = true
		m.wg.Go(func() { m.fire(s) })
	}
	return time.Hour
}
