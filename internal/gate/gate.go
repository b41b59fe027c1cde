package gate

import (
	"sync"

	"celld/internal/id"
)

// keep is the size of queue that an idle gate holds on to. A larger one,
// grown in a burst, is given back when it has drained.
const keep = 4

// Gate orders and holds the outputs of one activation of one cell. Its methods
// may be called concurrently; release functions run one at a time, in order,
// on whichever caller's goroutine made them due, and never under the lock.
type Gate struct {
	authority func() error

	mu        sync.Mutex
	committed id.TXID
	proven    id.TXID
	open      bool     // a turn or an explicit transaction has no position yet
	half      error    // why outputs from outside of turns fail: a write is half done
	releasing bool     // some goroutine is inside of drain
	queue     []output // emitted, not yet left; [settled:] have no position yet
	head      int      // queue[:head] left already
	settled   int
	arms      []*arm // unfinished, in order of position
	err       error  // why nothing leaves any more
}

// output is one thing that wants out.
type output struct {
	pos     id.TXID
	reject  error // this one output fails, those behind it do not
	release func(error)
}

// arm is one wake entry that must be durable before outputs at pos leave.
type arm struct{ pos id.TXID }

// New makes the gate of an activation that restored everything up to start,
// which is thereby proven. authority is asked before every release.
func New(start id.TXID, authority func() error) *Gate {
	g := &Gate{}
	g.Init(start, authority)
	return g
}

// Init is New for a gate that is a field of something larger.
func (g *Gate) Init(start id.TXID, authority func() error) {
	g.authority, g.committed, g.proven = authority, start, start
}

// Open begins a turn. Outputs emitted from now on wait for Committed to give
// them their position.
func (g *Gate) Open() {
	g.mu.Lock()
	g.open = true
	g.mu.Unlock()
}

// Emit queues one output behind those before it. release is called exactly
// once; it must not block. Outside of a turn the output takes the newest
// position, and may leave before Emit returns.
func (g *Gate) Emit(release func(error)) {
	g.mu.Lock()
	g.queue = append(g.queue, output{release: release})
	if !g.open {
		g.settle(g.half)
	}
	g.drain()
}

// Committed ends the turn, or the explicit transaction, at pos, which is the
// old position if nothing was written.
func (g *Gate) Committed(pos id.TXID) {
	g.mu.Lock()
	g.open, g.half = false, nil
	g.committed = max(g.committed, pos)
	g.settle(nil)
	g.drain()
}

// Reject ends the turn without a position, because it left a write half done:
// what was emitted in it fails with err, in its place in the order, and so does
// what follows it until a turn ends with Committed.
func (g *Gate) Reject(err error) {
	g.mu.Lock()
	g.open, g.half = false, err
	g.settle(err)
	g.drain()
}

// Arm holds every output at pos or later until done was called: with nil once
// the wake entry is in the bucket, or with the error that fails the gate. It
// is called before Committed(pos).
func (g *Gate) Arm(pos id.TXID) (done func(error)) {
	a := &arm{pos: pos}
	g.mu.Lock()
	g.arms = append(g.arms, a)
	g.mu.Unlock()
	return func(err error) {
		if err != nil {
			g.Fail(err)
			return
		}
		g.mu.Lock()
		g.disarm(a)
		g.drain()
	}
}

// Proven tells that everything up to pos survives failure. Proofs may arrive
// in any order and from several provers, and even before Committed(pos): a
// prover may be quicker than the end of the turn.
func (g *Gate) Proven(pos id.TXID) {
	g.mu.Lock()
	g.proven = max(g.proven, pos)
	g.drain()
}

// Fail ends the gate: everything that waits, and everything that is emitted
// later, is released with err. The first error stands.
func (g *Gate) Fail(err error) {
	g.mu.Lock()
	g.fail(err)
	g.drain()
}

// Position is the newest committed position.
func (g *Gate) Position() id.TXID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.committed
}

// ProvenPosition is the newest proven position.
func (g *Gate) ProvenPosition() id.TXID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.proven
}

// Idle tells that nothing waits: every commit is proven, every wake entry is
// written, every output has left.
func (g *Gate) Idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.head == len(g.queue) && len(g.arms) == 0 && g.committed <= g.proven && !g.open && !g.releasing
}

// Err is why the gate failed, or nil.
func (g *Gate) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// settle gives the outputs of the turn that ends their position.
func (g *Gate) settle(reject error) {
	for i := g.settled; i < len(g.queue); i++ {
		g.queue[i].pos, g.queue[i].reject = g.committed, reject
	}
	g.settled = len(g.queue)
}

func (g *Gate) disarm(a *arm) {
	for i := range g.arms {
		if g.arms[i] == a {
			g.arms = append(g.arms[:i], g.arms[i+1:]...)
			break
		}
	}
	if len(g.arms) == 0 {
		g.arms = nil
	}
}

func (g *Gate) fail(err error) {
	if g.err == nil {
		g.err = err
	}
	g.arms = nil
}

// drain releases everything that is due. It is entered with the lock held and
// leaves with it released. Only one goroutine is inside of the loop: a second
// one, or a release function that calls back into the gate, leaves its work to
// the first. That is what keeps the order without a lock around callbacks.
func (g *Gate) drain() {
	if g.releasing {
		g.mu.Unlock()
		return
	}
	g.releasing = true
	for g.due() {
		o := g.pop()
		err := g.err
		g.mu.Unlock()
		if err == nil {
			err = g.ask(o)
		}
		o.release(err)
		g.mu.Lock()
	}
	g.releasing = false
	g.mu.Unlock()
}

// ask checks authority at the last moment before an output leaves. A refusal
// fails everything behind it too. It runs without the lock.
func (g *Gate) ask(o output) error {
	if o.reject != nil {
		return o.reject
	}
	err := g.authority()
	if err != nil {
		g.mu.Lock()
		g.fail(err)
		g.mu.Unlock()
	}
	return err
}

// due tells whether the first output of the queue may leave, or must fail, now.
func (g *Gate) due() bool {
	if g.head == len(g.queue) {
		return false
	}
	if g.err != nil {
		return true
	}
	if g.head >= g.settled {
		return false
	}
	pos := g.queue[g.head].pos
	return pos <= g.proven && (len(g.arms) == 0 || pos < g.arms[0].pos)
}

func (g *Gate) pop() output {
	o := g.queue[g.head]
	g.queue[g.head] = output{} // let go of the closure
	g.head++
	switch {
	case g.head == len(g.queue) && cap(g.queue) > keep:
		g.queue, g.head, g.settled = nil, 0, 0
	case g.head == len(g.queue):
		g.queue, g.head, g.settled = g.queue[:0], 0, 0
	case g.head > 64 && g.head > len(g.queue)/2:
		n := copy(g.queue, g.queue[g.head:])
		clear(g.queue[n:])
		g.queue, g.settled, g.head = g.queue[:n], g.settled-g.head, 0
	}
	g.settled = max(g.settled, 0)
	return o
}
