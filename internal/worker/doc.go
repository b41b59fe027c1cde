// Package worker runs JavaScript: stateless Workers, and cells as an engine for
// package cell.
//
// One deployment's script is a Script: its modules, loaded into a few isolates
// (script.go). All isolates start from one snapshot, made when the process
// starts, in which the runtime of runtime/ is already there (snapshot.go).
//
// An isolate does one thing at a time (isolate.go). Its run queue is FIFO; who
// finds it idle runs its own job on its own goroutine, else a runner drains the
// queue. A job is a turn: one event of one actor, or one actor's batch of
// completions, and then the microtasks, to the end.
//
// An actor is whose code runs (actor.go): one request to a stateless entrypoint
// (request.go), or one cell (object.go). It owns what its JavaScript started:
// promises of host calls, timers, body streams, RPC pipes, sockets. When the
// actor ends they end.
//
// JavaScript reaches Go through tables of hostcall.Op. A synchronous call works
// inline, in the turn. An asynchronous one leaves work behind that runs on its
// own goroutine, and its result comes back as a completion. What shows something
// of a cell to others is an output: it goes through Seat.Emit, whatever it is.
//
// Limits (limits.go): one watchdog looks at the CPU time of running turns. A turn
// over its limit is terminated and its actor reset; neighbours in the isolate
// live on. An isolate that ran out of memory is condemned: its cells start again
// elsewhere. A turn that ignores termination takes its isolate with it.
package worker
