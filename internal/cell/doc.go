// Package cell is the life of the cells on one node: who is in memory, what
// runs when, and what must be proven before anybody hears of it.
//
// # States
//
//	inactive ──call, alarm──► waking ──► resident ──idle, cap, drain──► leaving ──► inactive
//	                            │           │                              ▲
//	                            ▼           └──failed proof, Reset─────────┘
//	                         its waiters get the error
//
// A Manager has one slot for each cell it knows. A slot is a few words: an
// evicted cell that is still this session's, or that waits for its alarm, is
// nothing more. A resident cell adds an activation: an epoch, a gate, an object of the
// engine, and a database that is closed again when nobody uses it. No state
// costs a goroutine or a timer: alarms share one heap, idleness one sweep, and a
// prover runs only while something is unproven.
//
// # Waking (activate.go)
//
// Whoever needs a cell calls enter. The first one starts the waking, the
// others wait for the same one, so a cold cell that a thousand requests want is
// acquired once. activate is the main path: a permit, room below the residency
// cap, the ownership record (internal/owner), the restore (internal/replica),
// the constructor. A cell that is another live session's gives *Remote. Every
// failure from before the constructor is marked call.ErrNotStarted.
//
// # Turns (activation.go)
//
// The engine runs code between Begin and End, one turn at a time. Begin checks
// authority. End commits what the turn wrote, captures it as the next position,
// tells the gate, and makes sure that a prover runs. An explicit transaction
// that stays open holds the outputs of all turns until it ends; a half-done write
// fails the outputs of its turn.
//
// # Proofs (prove.go)
//
// The prover takes everything that was captured, uploads it, reads the ownership
// record once, and tells the gate. Commits that arrive meanwhile share the next
// round. If the durability budget runs out, or the record names somebody else,
// the cell is reset: outputs fail with the cause, memory and local files are
// dropped, and the next call restores what is durable. A fleet proof may come
// first; then the upload goes on without a limit, since what was acknowledged
// must be in the bucket before the cell moves.
//
// # Alarms (alarm.go, timers.go, wake.go)
//
// The row in the cell's database is the truth. The heap tells this node when to
// look at it. The wake entry in the bucket tells every node, and is what makes an
// alarm outlive its owner: it is written before the arming is acknowledged and
// deleted after the consumption is proven. A firing keeps the row until the
// handler has succeeded, so an alarm fires at least once.
//
// # The ends
//
// Drain hands cells over: calls end, proofs complete, records are released.
// Fence drops everything at once and writes nothing. A reset cell comes back
// with its next call; one that resets again and again waits longer each time.
//
// # Locks
//
// Manager.mu guards slots and is held for moments; engine code under it is
// limited to Object.Busy. activation.turn serializes whoever touches the database.
// The gate and activation.mu are leaves.
package cell
