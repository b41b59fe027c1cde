package cell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"celld/internal/bucket"
	"celld/internal/call"
	"celld/internal/id"
	"celld/internal/owner"
)

// Remote is the error of everything that finds another live session to be the
// owner of the cell. It proves that no handler ran here.
type Remote = owner.Remote

// ErrDraining: this node hands its cells over and wakes none.
var ErrDraining = fmt.Errorf("this node is draining: %w", call.ErrNotStarted)

// errEvicted is what an object is closed with when it was idle. No caller sees it.
var errEvicted = errors.New("the cell was evicted")

// Config is what a Manager works with. The zero value of a limit means its default.
type Config struct {
	Store   bucket.Store
	Records *owner.Records
	Engine  Engine
	// Replication restores databases and makes segments of their commits.
	Replication Replication
	// Authority tells whether this session's lease still holds, at every turn,
	// alarm and output (protocol §6).
	Authority func() error
	// Dir holds the databases of the cells. It is a cache of the bucket.
	Dir string
	// Fleet makes fleet proofs beside the bucket's, or is nil.
	Fleet Fleet
	Log   *slog.Logger

	// Activations is how many cells are restored and constructed at once
	// (CELLD_ACTIVATIONS); others queue.
	Activations int
	// MaxResident is how many cells are in memory at once; the least recently
	// used idle one makes room. 0: no limit.
	MaxResident int
	// MaxCalls is how many calls of one cell may run or wait at once; one more
	// gets call.ErrOverloaded.
	MaxCalls int
	// Uploads is how many cells upload at once.
	Uploads int
	// IdleEvict is how long a cell stays resident without a call; 0: for ever.
	IdleEvict time.Duration
	// IdleClose is how long a resident cell's database stays open without a turn.
	IdleClose time.Duration
	// AlarmResident keeps cells resident whose alarm is due within it.
	AlarmResident time.Duration
	// Durability is how long a commit may stay unproven before its outputs fail.
	Durability time.Duration
	// WakerTick is the time between two scans for due alarms of cells that
	// nobody has in memory (CELLD_WAKER_TICK_MS).
	WakerTick time.Duration
}

const (
	defaultMaxCalls      = 64
	defaultUploads       = 64
	defaultIdleClose     = 10 * time.Second
	defaultAlarmResident = 5 * time.Second
	defaultDurability    = 10 * time.Second
	defaultWakerTick     = time.Minute
)

func (c Config) withDefaults() Config {
	byDefault(&c.Activations, min(max(8*runtime.GOMAXPROCS(0), 16), 128))
	byDefault(&c.MaxCalls, defaultMaxCalls)
	byDefault(&c.Uploads, defaultUploads)
	byDefault(&c.IdleClose, defaultIdleClose)
	byDefault(&c.AlarmResident, defaultAlarmResident)
	byDefault(&c.Durability, defaultDurability)
	byDefault(&c.WakerTick, defaultWakerTick)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func byDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Manager runs the cells of one session. See the package's story.
type Manager struct {
	cfg Config
	log *slog.Logger

	// ctx ends with the fence or the end of Close: nothing is written to the
	// bucket after that.
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // every goroutine that the manager started

	permits chan struct{} // one is held while a cell is activated
	uploads chan struct{} // one is held while a cell uploads
	poke    chan struct{} // the earliest alarm changed

	mu        sync.Mutex
	stopped   error // why no call is taken any more: fenced or closed
	draining  bool
	cells     map[id.Cell]*slot
	residents list // resident cells, least recently used first
	count     int  // cells that are resident, waking or leaving
	leaving   int  // cells that are leaving
	alarms    alarmHeap
	changed   sync.Cond // a call ended, a cell left
}

// New starts a manager. Close or Fence ends it.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cells' work directory: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	m := &Manager{
		cfg: cfg, log: cfg.Log, ctx: ctx, cancel: cancel,
		permits: make(chan struct{}, cfg.Activations),
		uploads: make(chan struct{}, cfg.Uploads),
		poke:    make(chan struct{}, 1),
		cells:   map[id.Cell]*slot{},
	}
	m.changed.L = &m.mu
	m.residents.init()
	m.wg.Go(m.runAlarms)
	m.wg.Go(m.runSweep)
	m.wg.Go(m.runScan)
	return m, nil
}

// Service is the cell, woken if need be, or a *Remote if another live session
// has it. The service stays valid for ever: a call on a cell that was evicted
// or reset meanwhile wakes it again.
func (m *Manager) Service(ctx context.Context, cell id.Cell, name string) (call.Service, error) {
	s := m.slot(cell, name)
	a, err := m.enter(ctx, s, m.cfg.MaxCalls)
	if err != nil {
		return nil, err
	}
	m.exit(a.slot)
	return a.slot, nil
}

// Owned tells the epoch at which this session owns the cell as far as it knows.
func (m *Manager) Owned(cell id.Cell) (id.Epoch, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.cells[cell]
	if s == nil || !s.owned {
		return 0, false
	}
	return s.epoch, true
}

// Stats is what operators see of the cells.
type Stats struct {
	Resident int // in memory, waking or leaving
	Owned    int // also those that were evicted and are still this session's
	Calls    int // running or waiting
	Alarms   int // armed here
}

// Stats counts the cells.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := Stats{Resident: m.count, Alarms: len(m.alarms)}
	for _, s := range m.cells {
		st.Calls += s.calls + s.waiting
		if s.owned {
			st.Owned++
		}
	}
	return st
}

// Info is what operators see of one cell.
type Info struct {
	Cell      id.Cell
	State     string
	Epoch     id.Epoch
	Position  id.TXID
	Proven    id.TXID
	Calls     int
	Used      time.Time
	Alarm     time.Time // zero: none
	ResetsRow int       // resets in a row
}

// Cells describes every cell that this session knows, in no order.
func (m *Manager) Cells() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Info, 0, len(m.cells))
	for _, s := range m.cells {
		i := Info{Cell: s.id, State: s.state.String(), Epoch: s.epoch, Calls: s.calls + s.waiting, Used: s.used, Alarm: s.alarmAt, ResetsRow: s.resets}
		if s.body != nil {
			i.Position, i.Proven = s.body.gate.Position(), s.body.gate.ProvenPosition()
		}
		all = append(all, i)
	}
	return all
}
