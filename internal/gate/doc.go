// Package gate holds back what a cell lets out until it is proven that the
// writes behind it survive a failure (protocol §8).
//
// There is one Gate for each activation of a cell. It knows two numbers, the
// position that was committed and the position that is proven, and one queue:
// the outputs that were produced and have not left. It has no goroutine, no
// timer and no opinion about what an output is: a response head, a chunk, an
// outbound call, a WebSocket frame and an error are all a function that is
// called once, with nil when the output may leave or with the reason why it
// never will.
//
// The main path of a turn:
//
//	Open            the turn begins: what is emitted from now on has no position yet
//	Emit, Emit …    outputs queue up
//	Arm             (only if the turn moved the alarm) hold them for the wake entry too
//	Committed(pos)  the turn's transaction is position pos, and so are its outputs
//	Proven(pos)     someone proved pos: everything up to it leaves, in order
//
// A read-only turn ends with the position that was there before, so its outputs
// wait for earlier writes and for nothing else. When those are proven they
// leave inside Committed, without a goroutine switch or an allocation.
//
// An explicit transaction stays open over several turns. Its writes have no
// position until it commits, so the gate stays open too: turns that end inside
// of it do not call Committed, and everything emitted meanwhile, by whichever
// event, is held until the turn that closes the transaction calls it.
//
// Order is absolute: an output never leaves before one that was emitted
// earlier. That makes every other wait a matter of order as well: storage.sync()
// is an output that wakes its caller, and "delete the wake entry when the commit
// that consumed the alarm is proven" is an output that starts the deletion.
//
// Before each release the gate asks for authority (protocol §6): a session
// whose lease ended lets nothing out, not even what was proven while it lasted.
// The first refusal fails the gate. A failed gate never recovers; the cell is
// reset and its next activation has a gate of its own.
package gate
