package worker

import (
	"fmt"
	"sync"
	"time"
)

const (
	// sample is how often the watchdog looks at running turns.
	sample = 5 * time.Millisecond
	// obey is how long a terminated turn may go on before its isolate is written off.
	obey = 5 * time.Second
	// blockLimit bounds blockConcurrencyWhile and transactions in wall time, as on the platform.
	blockLimit = 30 * time.Second
)

// errWall: a critical section took too long.
var errWall = fmt.Errorf("A call to blockConcurrencyWhile() in a Durable Object waited for too long. The call was canceled and the Durable Object was reset.")

// turnClock measures the CPU time of the turn that runs in an isolate.
type turnClock struct {
	mu      sync.Mutex
	serial  uint64 // of the running turn; 0: none
	next    uint64
	began   int64 // CPU time of the thread when the watchdog first saw it; -1: not yet
	base    time.Duration
	verdict error     // why the watchdog ended it
	killed  time.Time // when
	stuck   chan struct{}
}

func (c *turnClock) wedgedCh() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck == nil {
		c.stuck = make(chan struct{})
	}
	return c.stuck
}

func (i *isolate) beginTurn(*actor) {
	i.frameSection = 0
	c := &i.clock
	c.mu.Lock()
	c.next++
	c.serial, c.began, c.verdict = c.next, -1, nil
	c.mu.Unlock()
	i.script.rt.watch.wake()
}

// endTurn returns why the turn was ended by the watchdog, if it was.
func (i *isolate) endTurn() error {
	c := &i.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial = 0
	return c.verdict
}

// check is the watchdog's look at one isolate. Busy tells that a turn runs.
func (i *isolate) check(now time.Time) (busy bool) {
	c := &i.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serial == 0 {
		return false
	}
	cpu := i.v.RunningCPU()
	if cpu < 0 {
		return true // between two entries
	}
	switch {
	case c.began < 0:
		c.began = cpu
	case c.verdict == nil && i.script.opts.CPULimit > 0 && time.Duration(cpu-c.began) > i.script.opts.CPULimit:
		c.verdict, c.killed = ErrCPU, now
		i.v.Terminate()
	case c.verdict != nil && now.Sub(c.killed) > obey && !i.wedged.Load():
		i.wedged.Store(true)
		if c.stuck == nil {
			c.stuck = make(chan struct{})
		}
		close(c.stuck)
		go i.kill(fmt.Errorf("a turn ignored its termination for %v: %w", obey, ErrCPU))
	}
	return true
}

// interrupt ends the running turn of a, if it is the one that runs.
func (i *isolate) interrupt(cause error) {
	c := &i.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serial != 0 && c.verdict == nil {
		c.verdict, c.killed = cause, time.Now()
		i.v.Terminate()
	}
}

// watchdog looks at all isolates while any of them runs.
type watchdog struct {
	mu       sync.Mutex
	isolates map[*isolate]struct{}
	kick     chan struct{}
}

func newWatchdog() *watchdog {
	w := &watchdog{isolates: map[*isolate]struct{}{}, kick: make(chan struct{}, 1)}
	go w.run()
	return w
}

func (w *watchdog) add(i *isolate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isolates[i] = struct{}{}
}

func (w *watchdog) remove(i *isolate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.isolates, i)
}

// wake tells the watchdog that a turn has begun.
func (w *watchdog) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run looks every few milliseconds while turns run, and sleeps while none does.
func (w *watchdog) run() {
	tick := time.NewTicker(sample)
	defer tick.Stop()
	for range w.kick {
		tick.Reset(sample)
		for idle := 0; idle < 20; {
			<-tick.C
			if w.look() {
				idle = 0
			} else {
				idle++
			}
		}
	}
}

func (w *watchdog) look() (busy bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.isolates {
		busy = i.check(now) || busy
	}
	return busy
}

// fatal is V8's word that it cannot go on; the thread is parked for ever.
func (i *isolate) fatal(msg string) {
	i.wedged.Store(true)
	cause := fmt.Errorf("the JavaScript engine gave up: %s", msg)
	go i.kill(cause)
	if n := fatals.Add(1); n > 1 && i.script.opts.Fatal != nil {
		go i.script.opts.Fatal(cause)
	}
}
