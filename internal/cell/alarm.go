package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/internal/call"
	"celld/internal/owner"
	"celld/internal/storage"
)

const (
	// firstAlarmRetry doubles with each retry of a handler that failed.
	firstAlarmRetry = 2 * time.Second
	// maxAlarmRetries is how often a handler that fails is tried again; then
	// the alarm is dropped. Failures that are not the handler's do not count.
	maxAlarmRetries = 6
	// maxAlarmDoublings bounds the wait for a handler whose failures do not count.
	maxAlarmDoublings = 6
)

// fire runs the alarm of a cell that is due. s.firing is set, so that nobody
// else fires it here; that nobody fires it elsewhere is what ownership is for.
func (m *Manager) fire(s *slot) {
	err := m.fireOnce(m.ctx, s)
	var remote *Remote
	m.mu.Lock()
	defer m.mu.Unlock()
	s.firing = false
	m.changed.Broadcast()
	switch {
	case s.gone:
	case errors.As(err, &remote):
		m.disarm(s) // another session sees to it
		m.forget(s)
	case err != nil && s.owned:
		m.log.Debug("alarm_postponed", "cell", s.id, "err", err)
		if s.alarmAt.IsZero() {
			s.alarmAt = time.Now() // the durable row may still be armed
		}
		m.lookAt(s, time.Now().Add(firstAlarmRetry))
	case s.alarmAt.IsZero():
	default:
		m.lookAt(s, s.alarmAt)
	}
}

// fireOnce wakes the cell, runs the handler if the row says so, and records
// the result. After an error nothing is known, and the row stands.
func (m *Manager) fireOnce(ctx context.Context, s *slot) error {
	a, err := m.enter(ctx, s, m.cfg.MaxCalls+1)
	if err != nil {
		return err
	}
	defer m.exit(a.slot)
	row, due, err := a.beginAlarm()
	if err != nil || !due {
		return err
	}
	failure := a.object.Alarm(ctx, AlarmInfo{RetryCount: row.Retry, IsRetry: row.Retry > 0})
	err = a.endAlarm(row, failure)
	if err == nil || failure == nil || uncounted(failure) {
		return err
	}
	// The handler took its cell down with it. That counts, and the count must
	// outlive the activation: record it in the next one.
	again, err := m.enter(ctx, a.slot, m.cfg.MaxCalls+2)
	if err != nil {
		return err
	}
	defer m.exit(again.slot)
	return again.endAlarm(row, failure)
}

// uncounted tells failures of the platform from failures of the handler.
func uncounted(err error) bool {
	var gone *owner.Superseded
	return errors.Is(err, call.ErrFenced) || errors.Is(err, call.ErrUnproven) || errors.Is(err, call.ErrNotStarted) ||
		errors.As(err, &gone) || errors.Is(err, errEvicted) || errors.Is(err, context.Canceled)
}

// beginAlarm looks at the row. If it is due it gets the running mark, which
// hides it from getAlarm() but keeps it armed until the handler has succeeded.
func (a *activation) beginAlarm() (row storage.AlarmRow, due bool, err error) {
	err = a.turnOf(func(st *storage.Storage) error {
		row, err = st.Alarm()
		if err != nil || row.At.IsZero() || time.Now().Before(row.At) {
			return err
		}
		due = true
		marked := row
		marked.Running = true
		return st.SetAlarm(marked)
	})
	return row, due, err
}

// endAlarm records what became of a firing, unless the handler, or somebody
// since, has set or deleted the alarm: that stands.
func (a *activation) endAlarm(fired storage.AlarmRow, failure error) error {
	return a.turnOf(func(st *storage.Storage) error {
		now, err := st.Alarm()
		if err != nil || !now.At.Equal(fired.At) || failure == nil && !now.Running {
			return err
		}
		return st.SetAlarm(rowAfter(fired, failure, time.Now()))
	})
}

// rowAfter is the row that follows a firing.
func rowAfter(r storage.AlarmRow, failure error, now time.Time) storage.AlarmRow {
	if failure == nil {
		return storage.AlarmRow{}
	}
	next := storage.AlarmRow{Retry: r.Retry + 1, Counted: r.Counted}
	if !uncounted(failure) {
		next.Counted++
	}
	if next.Counted > maxAlarmRetries {
		return storage.AlarmRow{}
	}
	next.At = now.Add(firstAlarmRetry << min(r.Retry, maxAlarmDoublings))
	return next
}

// turnOf is a turn of this package's own.
func (a *activation) turnOf(f func(st *storage.Storage) error) error {
	if err := a.Begin(); err != nil {
		return err
	}
	if err := f(a.storage); err != nil {
		a.fail(err)
	}
	return a.End()
}

// adoptAlarm reads the row of a cell that was just restored. A row whose arming
// was never acknowledged may lack its wake entry; it gets one now.
func (a *activation) adoptAlarm() error {
	row, err := a.readAlarm()
	if err != nil {
		return fmt.Errorf("read the alarm of %s: %w", a.slot.id, err)
	}
	a.alarmAt, a.hadAlarm = row.At, !row.At.IsZero()
	a.m.mu.Lock()
	a.m.arm(a.slot, row.At)
	a.m.mu.Unlock()
	if !row.At.IsZero() {
		a.publish(row.At, func(error) {})
	}
	a.retire(row.At)
	return nil
}

func (a *activation) readAlarm() (storage.AlarmRow, error) {
	if a.gate.Position() == 0 {
		return storage.AlarmRow{}, nil // nothing was ever written: do not open a database to see that
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	return a.storage.Alarm()
}

// alarmMoved tells whether the turn that was just committed changed the time
// of the alarm, and if so tells the heap.
func (a *activation) alarmMoved() (moved bool, at time.Time, err error) {
	if !a.storage.AlarmTouched() {
		return false, a.alarmAt, nil
	}
	row, err := a.storage.Alarm()
	if err != nil || row.At.Equal(a.alarmAt) {
		return false, a.alarmAt, err
	}
	a.alarmAt, a.hadAlarm = row.At, true
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.arm(a.slot, row.At)
	return true, row.At, nil
}

// lookAgain makes sure that the alarm of a cell that was reset is not
// forgotten: its durable row may be an earlier one than that in memory. The lock
// is held.
func (m *Manager) lookAgain(s *slot, a *activation) {
	if !s.owned || s.firing || !a.hadAlarm {
		return
	}
	if s.alarmAt.IsZero() {
		s.alarmAt = time.Now()
	}
	m.lookAt(s, time.Now().Add(firstAlarmRetry))
}
