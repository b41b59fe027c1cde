package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"celld/internal/id"
)

// Wake entries say "look at the alarm of this cell at this minute" to whoever
// runs then (protocol §3). They are hints; the row in the cell's database is
// the truth. What makes them safe to trust is their order: an entry is in the
// bucket before the commit that arms the alarm is acknowledged, and leaves it
// after the commit that consumed the alarm is proven. One too many costs a
// look; one too few cannot be.

const (
	wakePrefix = "wake/"
	wakeMinute = "2006-01-02T15:04" // UTC; sorts by time
	// wakesAtOnce is how many cells one scan wakes at the same time.
	wakesAtOnce = 8
	// entriesPerScan bounds one scan; the rest is found by the next.
	entriesPerScan = 10_000
	// deleteTries bounds the deletion of an entry. One that stays is found,
	// and deleted, by a scan when its minute has come.
	deleteTries = 3
)

// wakeEntry is one entry of a cell in the bucket.
type wakeEntry struct {
	minute string
	key    string
}

// wakeBody is what an entry says to people; scans read only its key.
type wakeBody struct {
	V       int        `json:"v"`
	Cell    id.Cell    `json:"cell"`
	Session id.Session `json:"session"`
	Epoch   id.Epoch   `json:"epoch"`
	AtMs    int64      `json:"at_ms"`
}

func minuteOf(at time.Time) string { return at.UTC().Format(wakeMinute) }

func wakeKey(minute string, cell id.Cell, epoch id.Epoch, seq uint64) string {
	return fmt.Sprintf("%s%s/%s/%d-%d.json", wakePrefix, minute, cell.Segment(), epoch, seq)
}

// parseWakeKey reads minute and cell from an entry's key.
func parseWakeKey(key string) (minute string, cell id.Cell, err error) {
	parts := strings.Split(strings.TrimPrefix(key, wakePrefix), "/")
	if len(parts) != 3 || !strings.HasPrefix(key, wakePrefix) {
		return "", "", fmt.Errorf("wake entry %q is not of the form wake/<minute>/<cell>/<epoch>-<seq>.json", key)
	}
	if _, err := time.Parse(wakeMinute, parts[0]); err != nil {
		return "", "", fmt.Errorf("wake entry %q: %w", key, err)
	}
	name, err := id.Unescape(parts[1])
	if err != nil {
		return "", "", fmt.Errorf("wake entry %q: %w", key, err)
	}
	cell, err = id.ParseCell(name)
	if err != nil {
		return "", "", fmt.Errorf("wake entry %q: %w", key, err)
	}
	epoch, seq, _ := strings.Cut(strings.TrimSuffix(parts[2], ".json"), "-")
	_, err1 := strconv.ParseUint(epoch, 10, 64)
	_, err2 := strconv.ParseUint(seq, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return "", "", fmt.Errorf("wake entry %q: %w", key, err)
	}
	return parts[0], cell, nil
}

// publish makes sure that an entry for the minute of at is in the bucket, and
// calls done when it is. It returns at once.
func (a *activation) publish(at time.Time, done func(error)) {
	m, s := a.m, a.slot
	minute := minuteOf(at)
	m.mu.Lock()
	for _, e := range s.entries {
		if e.minute == minute {
			m.mu.Unlock()
			done(nil)
			return
		}
	}
	s.entrySeq++
	key := wakeKey(minute, s.id, a.epoch, s.entrySeq)
	m.mu.Unlock()
	body, err := json.Marshal(wakeBody{V: 1, Cell: s.id, Session: m.cfg.Records.Self().Session, Epoch: a.epoch, AtMs: at.UnixMilli()})
	if err != nil {
		panic(err) // strings and numbers only
	}
	m.wg.Go(func() {
		err := m.putEntry(key, body)
		if err == nil {
			m.mu.Lock()
			s.entries = append(s.entries, wakeEntry{minute, key})
			m.mu.Unlock()
		}
		done(err)
	})
}

// putEntry writes an entry, with retries inside the durability budget.
func (m *Manager) putEntry(key string, body []byte) error {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.Durability)
	defer cancel()
	return retry(ctx, func() error {
		_, err := m.cfg.Store.Put(ctx, key, body)
		return err
	})
}

// retire deletes, when everything up to now is proven, the entries of the cell
// for other minutes than that of at.
func (a *activation) retire(at time.Time) {
	m, s := a.m, a.slot
	keep := ""
	if !at.IsZero() {
		keep = minuteOf(at)
	}
	m.mu.Lock()
	var stale []wakeEntry
	kept := s.entries[:0]
	for _, e := range s.entries {
		if e.minute == keep {
			kept = append(kept, e)
		} else {
			stale = append(stale, e)
		}
	}
	s.entries = kept
	m.mu.Unlock()
	if len(stale) > 0 {
		a.deleteProven(stale)
	}
}

// deleteProven deletes entries once everything that was committed is proven.
func (a *activation) deleteProven(entries []wakeEntry) {
	a.gate.Emit(func(err error) {
		if err != nil {
			return // the next owner finds them
		}
		a.m.spawn(func() { a.m.deleteEntries(entries) })
	})
}

// spawn starts a goroutine unless the manager has stopped.
func (m *Manager) spawn(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped == nil {
		m.wg.Go(f)
	}
}

func (m *Manager) deleteEntries(entries []wakeEntry) {
	for _, e := range entries {
		var err error
		for range deleteTries {
			if err = m.cfg.Store.Delete(m.ctx, e.key); err == nil || sleep(m.ctx, firstRetry) != nil {
				break
			}
		}
		if err != nil && m.ctx.Err() == nil {
			m.log.Warn("wake_entry_delete_failed", "key", e.key, "err", err)
		}
	}
}

// runScan looks for due alarms of cells that nobody has in memory, once at the
// start and then with every tick.
func (m *Manager) runScan() {
	for {
		if m.isDraining() {
			return
		}
		if err := m.scan(m.ctx, time.Now()); err != nil && m.ctx.Err() == nil {
			m.log.Warn("wake_scan_failed", "err", err, "next", m.cfg.WakerTick)
		}
		if sleep(m.ctx, m.cfg.WakerTick) != nil {
			return
		}
	}
}

// scan wakes every cell with a due entry that another live session does not own.
func (m *Manager) scan(ctx context.Context, now time.Time) error {
	due, err := m.dueEntries(ctx, minuteOf(now))
	permits := make(chan struct{}, wakesAtOnce)
	var wg sync.WaitGroup
	for cell, entries := range due {
		if acquirePermit(ctx, permits) != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-permits }()
			m.wakeDue(ctx, cell, entries)
		})
	}
	wg.Wait()
	return err
}

// dueEntries lists the entries up to a minute, by cell.
func (m *Manager) dueEntries(ctx context.Context, upTo string) (map[id.Cell][]wakeEntry, error) {
	due := map[id.Cell][]wakeEntry{}
	n := 0
	for o, err := range m.cfg.Store.List(ctx, wakePrefix, "") {
		if err != nil {
			return due, fmt.Errorf("list wake entries: %w", err)
		}
		minute, cell, err := parseWakeKey(o.Key)
		if err != nil {
			m.log.Warn("wake_entry_malformed", "err", err)
			continue
		}
		if n++; minute > upTo || n > entriesPerScan {
			break
		}
		due[cell] = append(due[cell], wakeEntry{minute, o.Key})
	}
	return due, nil
}

// wakeDue looks at one cell with due entries.
func (m *Manager) wakeDue(ctx context.Context, cell id.Cell, due []wakeEntry) {
	m.mu.Lock()
	s := m.cells[cell]
	known := s != nil && s.owned && len(s.outdated(due)) == 0
	m.mu.Unlock()
	if known {
		return // its alarm is in the heap
	}
	a, err := m.enter(ctx, m.slot(cell, ""), m.cfg.MaxCalls+1)
	if err != nil {
		var remote *Remote
		if !errors.As(err, &remote) && ctx.Err() == nil {
			m.log.Warn("wake_failed", "cell", cell, "err", err)
		}
		return
	}
	defer m.exit(a.slot)
	a.dropOutdated(due)
}

// outdated picks the entries that do not stand for the alarm that is armed:
// those of earlier epochs, and leftovers of this one. The lock is held.
func (s *slot) outdated(due []wakeEntry) (old []wakeEntry) {
	for _, d := range due {
		if !s.knows(d) || !s.firing && d.minute != minuteOf(s.alarmAt) {
			old = append(old, d)
		}
	}
	return old
}

func (s *slot) knows(e wakeEntry) bool { return slices.Contains(s.entries, e) }

// dropOutdated deletes due entries that no alarm needs. The alarm row was read
// when the cell woke, and an alarm that is still armed has an entry of this
// epoch's before these are deleted.
func (a *activation) dropOutdated(due []wakeEntry) {
	m, s := a.m, a.slot
	m.mu.Lock()
	old := s.outdated(due)
	s.entries = slices.DeleteFunc(s.entries, func(e wakeEntry) bool { return slices.Contains(old, e) })
	at := s.alarmAt
	m.mu.Unlock()
	if len(old) == 0 {
		return
	}
	if at.IsZero() {
		a.deleteProven(old)
		return
	}
	a.publish(at, func(err error) {
		if err == nil {
			a.deleteProven(old)
		}
	})
}

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// retry repeats an operation of the bucket that may be repeated, until it
// succeeds or ctx ends; then the newest error comes with the cause.
func retry(ctx context.Context, op func() error) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := op()
		if err == nil {
			return nil
		}
		if stop := sleep(ctx, pause); stop != nil {
			return fmt.Errorf("%w: %w", stop, err)
		}
	}
}
