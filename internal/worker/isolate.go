package worker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"celld/internal/call"
	"celld/internal/v8"
)

// isolate is one V8 isolate with one script loaded, and its run queue.
type isolate struct {
	script *Script
	v      *v8.Isolate
	ctx    int
	fn     handles
	frames frames

	mu      sync.Mutex
	queue   []job // in order of arrival
	head    int
	running bool
	dead    error       // set once: no job runs any more
	lost    atomic.Bool // dead is set; for pools, which look without the lock

	// Touched only by whoever runs a job.
	args         v8.Args
	cur          *actor
	promise      uint32 // of the asynchronous call being started
	frameSection uint32 // critical section of the running code, 0 outside
	actors       map[uint32]*actor
	next         uint32

	load    atomic.Int64 // actors that are alive: what pools balance by
	loader  *loader
	exports Exports

	clock  turnClock
	wedged atomic.Bool   // a turn ignored its termination
	idle   chan struct{} // made by who waits for the run queue to stop
}

// handles are the functions of the runtime that Go calls.
type handles struct {
	load, makeError, fileModule, builtin                        uint32
	fetch, construct, alarm, abort, drop, scheduled             uint32
	rpcOpen, pipeMessage, pipeClosed, socketFrame, socketClosed uint32
}

var errIsolateGone = fmt.Errorf("the isolate was given up: %w", call.ErrNotStarted)

// job is one entry of the run queue. dropped, if there is one, is told when the
// isolate dies before the job has run.
type job struct {
	run     func()
	dropped func(error)
}

// submit runs a job on the isolate: here and now when it is idle, else in its turn.
// An error means that it never runs; dropped is then not told.
func (i *isolate) submit(run func(), dropped func(error)) error {
	i.mu.Lock()
	if i.dead != nil {
		defer i.mu.Unlock()
		return i.gone()
	}
	if i.running {
		i.queue = append(i.queue, job{run, dropped})
		i.mu.Unlock()
		return nil
	}
	i.running = true
	i.mu.Unlock()
	run()
	i.handOver()
	return nil
}

// later queues a job and never runs it on the caller's goroutine, which may hold locks.
func (i *isolate) later(run func()) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dead != nil {
		return i.dead
	}
	i.queue = append(i.queue, job{run: run})
	if !i.running {
		i.running = true
		go i.drain()
	}
	return nil
}

// handOver gives the isolate to a runner if jobs came in meanwhile.
func (i *isolate) handOver() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.head == len(i.queue) || i.dead != nil {
		i.rest()
		return
	}
	go i.drain()
}

// rest marks the run queue stopped; i.mu is held.
func (i *isolate) rest() {
	i.running = false
	if i.idle != nil {
		close(i.idle)
		i.idle = nil
	}
}

// watchUntilIdle returns when no job runs, or when the one that does is known to be wedged.
func (i *isolate) watchUntilIdle() {
	i.mu.Lock()
	if !i.running {
		i.mu.Unlock()
		return
	}
	if i.idle == nil {
		i.idle = make(chan struct{})
	}
	idle := i.idle
	i.mu.Unlock()
	select {
	case <-idle:
	case <-i.clock.wedgedCh():
	}
}

func (i *isolate) drain() {
	for {
		i.mu.Lock()
		if i.head == len(i.queue) || i.dead != nil {
			i.queue, i.head = i.queue[:0], 0
			i.rest()
			i.mu.Unlock()
			return
		}
		next := i.queue[i.head]
		i.queue[i.head] = job{}
		i.head++
		if i.head > 1024 && i.head*2 > len(i.queue) { // give the front back
			i.queue = append(i.queue[:0], i.queue[i.head:]...)
			i.head = 0
		}
		i.mu.Unlock()
		next.run()
	}
}

// wait returns when every job queued before it has run. For Close and tests.
func (i *isolate) wait() {
	done := make(chan struct{})
	if i.later(func() { close(done) }) == nil {
		<-done
	}
}

// kill marks the isolate dead: queued jobs never run, actors fail with cause.
func (i *isolate) kill(cause error) {
	i.mu.Lock()
	if i.dead != nil {
		i.mu.Unlock()
		return
	}
	never := i.die(cause)
	i.mu.Unlock()
	for _, j := range never {
		j.drop(errIsolateGone)
	}
	i.script.lost(i, cause)
}

// die marks the isolate dead and returns the jobs that will never run; i.mu is held.
func (i *isolate) die(cause error) []job {
	never := i.queue[i.head:]
	i.lost.Store(true)
	i.dead, i.queue, i.head = cause, nil, 0
	return never
}

// gone is why the isolate takes no job, as who brings one is told: nothing of
// it has begun. i.mu is held.
func (i *isolate) gone() error {
	if errors.Is(i.dead, call.ErrNotStarted) {
		return i.dead
	}
	return errIsolateGone
}

func (j job) drop(cause error) {
	if j.dropped != nil {
		j.dropped(cause)
	}
}

func (i *isolate) isDead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dead != nil
}

// classify turns what V8 said of a failed call into what happened to the turn.
func classify(err error) error {
	switch {
	case errors.Is(err, v8.ErrTerminated):
		return errTerminated
	case errors.Is(err, v8.ErrOOM):
		return ErrMemory
	}
	return err
}

var (
	errTerminated = errors.New("the turn was terminated")
	// ErrMemory: the isolate's memory limit was exceeded.
	ErrMemory = errors.New("Worker exceeded memory limit.")
	// ErrCPU: an event used more CPU time than it may.
	ErrCPU = errors.New("Worker exceeded CPU time limit.")
)
