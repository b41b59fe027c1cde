package worker

import "time"

// Events of a cell wait in its inbox, and are looked at again when their turn
// has come: an event before them may have opened a critical section, and then
// only what belongs to that section may go on. This is the input gate.

// event is one call of the runtime by somebody outside of the actor.
type event struct {
	run    func() error
	failed func(error) // told when run failed, or never will be called
	pipe   *pipeEnd    // set for what arrives on a session that the cell itself opened
}

// section is an open critical section.
type section struct {
	n     uint32
	limit *time.Timer
}

// event runs f in a turn of its own, behind the events before it and behind an
// open critical section. It does not wait for the turn; failed is told when it
// will not run.
func (a *actor) event(f func() error, failed func(error)) { a.arrive(event{run: f, failed: failed}) }

func (a *actor) arrive(e event) {
	if a.seat == nil { // a request has no gate: the run queue is order enough
		a.deliver(e)
		return
	}
	a.mu.Lock()
	if a.closed != nil {
		err := a.closed
		a.mu.Unlock()
		e.failed(err)
		return
	}
	a.inbox = append(a.inbox, e)
	blocked := a.blocks(e.section())
	a.mu.Unlock()
	if blocked {
		return // leaveSection looks at it
	}
	if err := a.iso.submit(a.takeEvent, a.end); err != nil {
		a.end(err)
	}
}

// deliver runs one event in a turn, without regard to critical sections.
func (a *actor) deliver(e event) {
	err := a.iso.submit(func() {
		if err := a.iso.turn(a, e.run); err != nil {
			e.failed(err)
		}
	}, e.failed)
	if err != nil {
		e.failed(err)
	}
}

// inside runs f in a turn without regard to critical sections: for what belongs to the section itself.
func (a *actor) inside(f func() error, failed func(error)) {
	a.deliver(event{run: f, failed: failed})
}

// takeEvent is the job that begins the first event that may begin. There is at
// least one such job on the run queue for every event that may.
func (a *actor) takeEvent() {
	a.mu.Lock()
	for k, e := range a.inbox {
		if a.blocks(e.section()) {
			continue
		}
		if k == 0 {
			a.inbox[0] = event{}
			a.inbox = a.inbox[1:]
		} else {
			a.inbox = append(a.inbox[:k], a.inbox[k+1:]...)
		}
		a.mu.Unlock()
		if err := a.iso.turn(a, e.run); err != nil {
			e.failed(err)
		}
		return
	}
	a.mu.Unlock()
}

// section is the critical section that the event belongs to: what answers a
// call belongs to the code that called.
func (e event) section() uint32 {
	if e.pipe == nil {
		return 0
	}
	return e.pipe.section
}

// blocks: an open critical section lets only its own in. a.mu is held.
func (a *actor) blocks(n uint32) bool {
	return len(a.section) > 0 && a.section[len(a.section)-1].n != n
}

// holdBack sorts the results that have come into those that may go on and those
// that wait; a.mu is held.
func (a *actor) holdBack() {
	if len(a.section) == 0 {
		return
	}
	var free []completion
	for _, c := range a.done {
		if a.blocks(c.section) {
			a.held = append(a.held, c)
		} else {
			free = append(free, c)
		}
	}
	a.done = free
}

// enterSection holds back everything that is not of section n.
func (a *actor) enterSection(n uint32) {
	limit := time.AfterFunc(blockLimit, func() { a.sectionTooLong(n) })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.section = append(a.section, section{n, limit})
}

// sectionTooLong resets a cell whose critical section n is still open.
func (a *actor) sectionTooLong(n uint32) {
	a.mu.Lock()
	open := false
	for _, s := range a.section {
		open = open || s.n == n
	}
	a.mu.Unlock()
	if open && a.seat != nil {
		a.seat.Reset(errWall)
	}
}

// leaveSection lets what waited go on, in order.
func (a *actor) leaveSection(n uint32) {
	a.iso.frameSection = 0
	a.mu.Lock()
	for k := len(a.section) - 1; k >= 0; k-- {
		if a.section[k].n == n {
			a.section[k].limit.Stop()
			a.section = append(a.section[:k], a.section[k+1:]...)
			break
		}
	}
	a.done = append(a.held, a.done...) // what waited came first
	a.held = nil
	a.holdBack()
	wake := len(a.done) > 0 && !a.queued
	a.queued = a.queued || wake
	events := 0
	for _, e := range a.inbox {
		if !a.blocks(e.section()) {
			events++
		}
	}
	a.mu.Unlock()
	if wake {
		a.iso.later(a.settle)
	}
	for range events {
		a.iso.later(a.takeEvent)
	}
}
