package cell

import (
	"context"

	"celld/internal/call"
	"celld/internal/id"
	"celld/internal/storage"
)

// Engine runs the handlers of cells. V8 is one engine (internal/worker), Go
// handlers are another (tests, simulation).
type Engine interface {
	// Create runs the constructor of a cell that was just activated. An error
	// fails the events that wait for it. s may be used until Create fails or
	// the object is closed.
	Create(ctx context.Context, s Seat) (Object, error)
}

// Object is a constructed cell inside an engine. Its methods may be called
// concurrently; the engine runs them as turns, one at a time.
type Object interface {
	call.Service
	// Alarm runs the alarm handler. Its result is not an output: what the
	// handler let out went through the gate.
	Alarm(ctx context.Context, a AlarmInfo) error
	// Busy tells that work is pending which has no caller: timers, detached
	// promises, regular sockets. A busy object is not evicted. It is asked under
	// a lock: it must answer at once, and must not wait for a turn.
	Busy() bool
	// Close ends the object: calls in progress fail with cause, pending work is
	// dropped, and no turn begins after it returned. It may be called again,
	// also while an earlier call runs; the first cause stands.
	Close(cause error)
}

// AlarmInfo is what an alarm handler is told.
type AlarmInfo struct {
	RetryCount int
	IsRetry    bool
}

// Seat is what an engine sees of the cell it runs.
//
// Every touch of the object's code is a turn: Begin, run, End. Between the two
// the engine alone uses Storage. Outputs emitted in a turn leave when what the
// turn committed, and everything before it, is proven.
type Seat interface {
	ID() id.Cell
	// Name is the name the id was made from, or "".
	Name() string
	// Epoch is the fencing number of this activation.
	Epoch() id.Epoch
	// Begin starts a turn. An error (fenced, reset) means that no code may run.
	Begin() error
	// Storage is valid between Begin and End; the next turn may get another one.
	Storage() *storage.Storage
	// End commits what the turn wrote and lets its outputs go as far as they are
	// proven. An error has failed the outputs and reset the cell. A write that
	// was left half done fails the outputs of the turn and nothing else.
	End() error
	// Emit queues one output behind those before it. release is called exactly
	// once, in order, with nil when the output may leave or with the reason why
	// it never will. It must not block, and may be called before Emit returns.
	// Outside of a turn it takes the newest position.
	Emit(release func(error))
	// Sync is storage.sync(), called within a turn: release is called with nil
	// when everything written so far is proven. Inside of an explicit transaction
	// it is refused with an error at once.
	Sync(release func(error))
	// Reset gives the object up: its uncommitted and unproven state is dropped,
	// its callers get cause, the next event builds it anew from durable state.
	Reset(cause error)
}
