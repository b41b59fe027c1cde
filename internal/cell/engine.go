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
	// fails the events that wait for it.
	Create(ctx context.Context, s Seat) (Object, error)
}

// Object is a constructed cell inside an engine. Its methods may be called
// concurrently; the engine runs them as turns, one at a time.
type Object interface {
	call.Service
	// Alarm runs the alarm handler.
	Alarm(ctx context.Context, a AlarmInfo) error
	// Busy tells that work is pending which has no caller: timers, detached
	// promises, regular sockets. A busy object is not evicted.
	Busy() bool
	// Close ends the object: pending work is dropped with cause, and no turn
	// begins after it returned.
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
	// Begin starts a turn. An error (fenced, reset) means that no code may run.
	Begin() error
	Storage() *storage.Storage
	// End commits what the turn wrote and lets its outputs go as far as they are
	// proven. An error has failed the outputs and reset the cell.
	End() error
	// Emit queues one output behind those before it. release is called exactly
	// once, in order, with nil when the output may leave or with the reason why
	// it never will. It must not block. Outside of a turn it takes the newest position.
	Emit(release func(error))
	// Reset gives the object up: its uncommitted and unproven state is dropped,
	// its callers get cause, the next event builds it anew from durable state.
	Reset(cause error)
}
