package cell

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"celld/internal/gate"
	"celld/internal/id"
	"celld/internal/storage"
)

// ErrUnfinishedWrite fails the outputs of a turn that left a write half done.
var ErrUnfinishedWrite = errors.New("a write statement (such as INSERT … RETURNING) was not read to its end: " +
	"read or close its cursor before letting anything out")

// activation is a cell in memory at one epoch, and the Seat of its object.
type activation struct {
	m      *Manager
	slot   *slot
	epoch  id.Epoch
	object Object
	gate   gate.Gate

	// turn is held from Begin to End, and by whoever else touches the database.
	turn     sync.Mutex
	storage  *storage.Storage
	stream   Stream
	resting  atomic.Bool  // the database is closed until somebody needs it
	alarmAt  time.Time    // of the alarm row as of the newest commit
	hadAlarm bool         // at any time of this activation
	touched  atomic.Int64 // time of the last turn's end, in Unix nanoseconds

	mu      sync.Mutex
	failed  error         // why it was reset
	proving chan struct{} // closed when the prover that runs now is done; nil: none runs
	waiting time.Time     // when the oldest commit that the prover did not take was made
	pending []Segment     // captured, not yet taken by the prover (with a fleet; else they wait in the stream)
	first   id.TXID       // the oldest position that waits for the prover; 0: none
	hurry   chan struct{} // closed to end the pacing of uploads; nil: there is none
	hurried bool
}

func (a *activation) ID() id.Cell               { return a.slot.id }
func (a *activation) Name() string              { return a.slot.name }
func (a *activation) Epoch() id.Epoch           { return a.epoch }
func (a *activation) Storage() *storage.Storage { return a.storage }

// Begin starts a turn.
func (a *activation) Begin() error {
	a.turn.Lock()
	if err := a.mayRun(); err != nil {
		a.turn.Unlock()
		return err
	}
	a.gate.Open()
	return nil
}

// mayRun checks authority (protocol §6).
func (a *activation) mayRun() error {
	if cause := a.cause(); cause != nil {
		return cause
	}
	a.resting.Store(false)
	err := a.m.cfg.Authority()
	if err != nil {
		a.fail(err)
	}
	return err
}

// restable tells whether nobody has used the database for a while. It is
// asked under the manager's lock and must not wait.
func (a *activation) restable(now time.Time, idle time.Duration) bool {
	return !a.resting.Load() && now.UnixNano()-a.touched.Load() >= int64(idle) && a.gate.Idle() && a.settled()
}

// rest closes the database of a resident cell. A turn that comes first wins.
func (a *activation) rest() {
	if !a.turn.TryLock() {
		return
	}
	defer a.turn.Unlock()
	if a.resting.Load() || a.cause() != nil || !a.settled() || a.storage.InTransaction() {
		return
	}
	if err := a.closeIdle(); err != nil {
		a.touched.Store(time.Now().UnixNano()) // a cursor is open, say: ask again later
		return
	}
	a.resting.Store(true)
}

func (a *activation) closeIdle() error {
	if err := a.stream.Rest(); err != nil {
		return err
	}
	return a.storage.Rest()
}

// End commits what the turn wrote, gives its outputs their position, and sees
// to it that the position gets proven.
func (a *activation) End() error {
	defer a.turn.Unlock()
	a.touched.Store(time.Now().UnixNano())
	if err := a.endTurn(); err != nil {
		a.fail(err)
		return a.cause()
	}
	return nil
}

func (a *activation) endTurn() error {
	st := a.storage
	switch {
	case a.cause() != nil:
		return a.cause() // reset meanwhile: what the turn wrote is rolled back with the database
	case st.InTransaction():
		return nil // an explicit transaction: its outputs are held until it ends
	case st.UnfinishedWrite():
		a.gate.Reject(ErrUnfinishedWrite)
		return nil
	}
	wrote, err := st.Commit()
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if !wrote {
		a.gate.Committed(0) // the old position
		return nil
	}
	return a.capture()
}

// capture turns the commit into a position.
func (a *activation) capture() error {
	pos, err := a.stream.Capture()
	if err != nil {
		return fmt.Errorf("capture the commit: %w", err)
	}
	moved, at, err := a.alarmMoved()
	if err != nil {
		return fmt.Errorf("read the alarm: %w", err)
	}
	if moved && !at.IsZero() {
		// The arming is acknowledged only when the wake entry is in the bucket.
		a.publish(at, a.gate.Arm(pos))
	}
	a.gate.Committed(pos)
	if moved {
		a.retire(at)
	}
	a.prove(pos)
	return nil
}

// Emit queues one output behind those before it.
func (a *activation) Emit(release func(error)) { a.gate.Emit(release) }

// Sync calls release when everything up to now is proven.
func (a *activation) Sync(release func(error)) {
	if a.storage.InTransaction() {
		release(errSyncInTransaction)
		return
	}
	a.gate.Emit(release)
}

var errSyncInTransaction = errors.New("sync() cannot wait inside of a transaction: what it would wait for is not committed")

// Reset gives the cell up; its next event builds it from durable state.
func (a *activation) Reset(cause error) { a.fail(cause) }

// fail ends the activation: nothing leaves and no turn begins from here on.
func (a *activation) fail(cause error) {
	a.mu.Lock()
	first := a.failed == nil
	if first {
		a.failed = cause
	}
	a.mu.Unlock()
	a.gate.Fail(cause)
	if !first {
		return
	}
	a.m.mu.Lock()
	a.m.startReset(a.slot, a)
	a.m.mu.Unlock()
}

// cause is why the activation failed, or nil.
func (a *activation) cause() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// vacate takes an idle cell out of memory once everything is in the bucket.
// Its files stay, for a quick wake on this node.
func (a *activation) vacate() error {
	a.object.Close(errEvicted)
	a.settle()
	if cause := a.cause(); cause != nil {
		a.dismantle()
		return cause
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	return a.closeFiles()
}

// tearDown takes a failed cell out of memory. What it acknowledged reaches the
// bucket first; its files are dropped, since they may hold what was never proven.
func (a *activation) tearDown() {
	if a.object != nil {
		a.object.Close(a.cause())
	}
	a.settle()
	a.dismantle()
}

func (a *activation) dismantle() {
	a.turn.Lock()
	defer a.turn.Unlock()
	if err := a.closeFiles(); err != nil {
		a.m.log.Warn("cell_close_failed", "cell", a.slot.id, "err", err)
	}
	if err := os.RemoveAll(a.m.dir(a.slot.id)); err != nil {
		a.m.log.Warn("cell_files_not_removed", "cell", a.slot.id, "err", err)
	}
}

// closeFiles closes the database, dropping what was not committed. The turn is held.
func (a *activation) closeFiles() error {
	return errors.Join(a.storage.Close(), a.stream.Close())
}
