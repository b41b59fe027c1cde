package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"celld/internal/bucket"
	"celld/internal/id"
	"celld/internal/storage"
)

func init() {
	openDisk = func(ctx context.Context, m *Manager, cell id.Cell, epoch id.Epoch) (disk, id.TXID, error) {
		d := &FakeDisk{store: m.cfg.Store, cell: cell, epoch: epoch}
		err := d.restore(ctx)
		return d, d.pos, err
	}
}

// FakeOf is the fake database of a cell.
func FakeOf(s Seat) *FakeDisk { return s.(*activation).disk.(*FakeDisk) }

type Segment = segment

type FakeDisk struct {
	store bucket.Store
	cell  id.Cell
	epoch id.Epoch

	state, committed fakeState
	running          bool
	pos              id.TXID
	Tx, Unfinished   bool
	Opens            int

	mu      sync.Mutex
	pending []segment
	bodies  map[id.TXID][]byte
}

type fakeState struct {
	Pos   id.TXID
	KV    map[string]int
	Alarm alarmRow
}

func (d *FakeDisk) key(e id.Epoch, pos id.TXID) string {
	return fmt.Sprintf("cells/%s/ltx/%s/0/%s-%s.ltx", d.cell.Segment(), e.Dir(), pos, pos)
}

func (d *FakeDisk) restore(ctx context.Context) error {
	d.bodies = map[id.TXID][]byte{}
	d.state.KV = map[string]int{}
	for e := d.epoch - 1; e > 0; e-- {
		last := ""
		for o, err := range d.store.List(ctx, fmt.Sprintf("cells/%s/ltx/%s/", d.cell.Segment(), e.Dir()), "") {
			if err != nil {
				return err
			}
			last = o.Key
		}
		if last == "" {
			continue
		}
		body, _, err := d.store.Get(ctx, last)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &d.state); err != nil {
			return err
		}
		break
	}
	d.pos = d.state.Pos
	d.committed = d.state
	d.committed.KV = maps.Clone(d.state.KV)
	return nil
}

func (d *FakeDisk) Get(k string) int    { return d.state.KV[k] }
func (d *FakeDisk) Put(k string, n int) { d.state.KV[k] = n }
func (d *FakeDisk) GetAlarm() time.Time {
	if d.running {
		return time.Time{}
	}
	return d.state.Alarm.At
}
func (d *FakeDisk) SetUserAlarm(at time.Time) {
	d.running = false
	d.state.Alarm = alarmRow{At: at}
}

func (d *FakeDisk) Storage() *storage.Storage { return nil }
func (d *FakeDisk) InTransaction() bool       { return d.Tx }
func (d *FakeDisk) UnfinishedWrite() bool     { return d.Unfinished }
func (d *FakeDisk) Commit() (bool, error) {
	if maps.Equal(d.state.KV, d.committed.KV) && d.state.Alarm == d.committed.Alarm {
		return false, nil
	}
	d.committed = d.state
	d.committed.KV = maps.Clone(d.state.KV)
	return true, nil
}

func (d *FakeDisk) Capture() (id.TXID, error) {
	d.pos++
	d.state.Pos = d.pos
	body, err := json.Marshal(d.state)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bodies[d.pos] = body
	d.pending = append(d.pending, segment{d.pos, d.pos})
	return d.pos, err
}

func (d *FakeDisk) Alarm() (alarmRow, error) {
	row := d.state.Alarm
	row.Running = d.running
	return row, nil
}

func (d *FakeDisk) SetAlarm(row alarmRow) error {
	d.running = row.Running
	row.Running = false
	d.state.Alarm = row
	return nil
}

func (d *FakeDisk) Take() []segment {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pending
	d.pending = nil
	return p
}

func (d *FakeDisk) Upload(ctx context.Context, segs []segment) error {
	for _, s := range segs {
		d.mu.Lock()
		body := d.bodies[s.Max]
		d.mu.Unlock()
		if _, err := d.store.Put(ctx, d.key(d.epoch, s.Max), body); err != nil {
			return err
		}
	}
	return nil
}

func (d *FakeDisk) Rest() error  { return nil }
func (d *FakeDisk) Open() error  { d.Opens++; return nil }
func (d *FakeDisk) Close() error { return nil }

var _ = errors.New
