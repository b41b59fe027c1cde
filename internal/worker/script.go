package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"celld/internal/call"
	"celld/internal/id"
)

// Router finds the cell behind a stub.
type Router interface {
	Cell(ctx context.Context, c id.Cell, name string) call.Service
}

// Options are the limits of a script and what it is wired to.
type Options struct {
	Stateless int // isolates for stateless requests
	Cells     int // isolates that cells share
	HeapLimit int64
	CPULimit  time.Duration
	// MaxRequests bounds the stateless requests under way (0: no bound); one over
	// it waits AdmissionWait and is then refused.
	MaxRequests   int
	AdmissionWait time.Duration

	Router   Router
	Outbound call.Service // what fetch() reaches
	// Service finds an entrypoint of another script of the deployment.
	Service func(script, entrypoint string) (call.Service, error)
	Log     *slog.Logger
	// Fatal is told when V8 was lost a second time: the process should end gracefully.
	Fatal func(error)
}

// Script is one version of one script, loaded.
type Script struct {
	rt     *Runtime
	bundle *Bundle
	opts   Options
	maps   sourceMaps
	slots  chan struct{} // admission; nil without a bound
	// exports of the main module, as the first isolate saw them
	exports Exports

	mu        sync.Mutex
	stateless []*isolate
	cells     []*isolate
	alone     map[id.Cell]strikes // of cells that ran wild
	closed    bool
}

// Load compiles a bundle into its first isolates. An error tells what is wrong
// with the code: a syntax error, a module that throws, an import that leads nowhere.
func (rt *Runtime) Load(b *Bundle, o Options) (*Script, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Stateless, o.Cells = max(o.Stateless, 1), max(o.Cells, 1)
	s := &Script{rt: rt, bundle: b, opts: o, alone: map[id.Cell]strikes{}}
	if o.MaxRequests > 0 {
		s.slots = make(chan struct{}, o.MaxRequests)
	}
	if err := s.readMaps(); err != nil {
		return nil, err
	}
	first, err := s.newIsolate()
	if err != nil {
		return nil, err
	}
	s.stateless, s.exports = []*isolate{first}, first.exports
	return s, nil
}

// Close ends everything that runs in the script.
func (s *Script) Close(cause error) {
	s.mu.Lock()
	s.closed = true
	all := append(append([]*isolate{}, s.stateless...), s.cells...)
	s.stateless, s.cells = nil, nil
	s.mu.Unlock()
	for _, i := range all {
		i.shut(cause)
	}
}

// Bundle is what the script was loaded from.
func (s *Script) Bundle() *Bundle { return s.bundle }

// Entrypoint is a stateless entrypoint as a service; "" or "default" is the default export.
func (s *Script) Entrypoint(name string) *Entrypoint {
	if name == "" {
		name = "default"
	}
	return &Entrypoint{script: s, name: name}
}

var errClosed = fmt.Errorf("this version of the script is not served any more: %w", call.ErrNotStarted)

// admit picks an isolate for a stateless request. release gives its place back.
func (s *Script) admit(ctx context.Context) (*isolate, func(), error) {
	release := func() {}
	if s.slots != nil {
		if err := s.waitForSlot(ctx); err != nil {
			return nil, nil, err
		}
		var once sync.Once
		release = func() { once.Do(func() { <-s.slots }) }
	}
	i, err := s.pick(&s.stateless, s.opts.Stateless)
	if err != nil {
		release()
		return nil, nil, err
	}
	return i, release, nil
}

func (s *Script) waitForSlot(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	t := time.NewTimer(s.opts.AdmissionWait)
	defer t.Stop()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-t.C:
		return fmt.Errorf("%d requests are under way (CELLD_MAX_REQUESTS): %w", s.opts.MaxRequests, call.ErrOverloaded)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pick takes the isolate of a pool with the least to do. The pool grows, up to
// its size, while every member of it is busy.
func (s *Script) pick(pool *[]*isolate, size int) (*isolate, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	*pool = slices.DeleteFunc(*pool, func(i *isolate) bool { return i.lost.Load() })
	var best *isolate
	for _, i := range *pool {
		if best == nil || i.load.Load() < best.load.Load() {
			best = i
		}
	}
	if best != nil && (best.load.Load() == 0 || len(*pool) >= size) {
		s.mu.Unlock()
		return best, nil
	}
	s.mu.Unlock()
	fresh, err := s.newIsolate()
	if err != nil {
		if best != nil {
			return best, nil
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go fresh.shut(errClosed)
		return nil, errClosed
	}
	if len(*pool) >= size { // others were quicker
		go fresh.shut(errClosed)
		return (*pool)[0], nil
	}
	*pool = append(*pool, fresh)
	return fresh, nil
}

// lost takes a dead isolate out of its pool and fails what ran in it.
func (s *Script) lost(i *isolate, cause error) {
	s.mu.Lock()
	for _, pool := range []*[]*isolate{&s.stateless, &s.cells} {
		for k, o := range *pool {
			if o == i {
				*pool = append((*pool)[:k:k], (*pool)[k+1:]...)
				break
			}
		}
	}
	s.mu.Unlock()
	s.opts.Log.Error("isolate given up", "event", "isolate_lost", "script", s.bundle.Name, "err", cause)
	go i.bury(cause)
}

// Stats are figures of a script for operators.
type Stats struct {
	Stateless, Cells int
	Actors           int64
}

// Stats of this moment.
func (s *Script) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Stateless: len(s.stateless), Cells: len(s.cells)}
	for _, i := range append(append([]*isolate{}, s.stateless...), s.cells...) {
		st.Actors += i.load.Load()
	}
	return st
}

var errNoOutbound = errors.New("this Worker may not reach the network")

// outbound serves fetch().
func (s *Script) outbound() call.Service {
	if s.opts.Outbound == nil {
		return nothing{}
	}
	return s.opts.Outbound
}

type nothing struct{}

func (nothing) Fetch(context.Context, *call.Request) (*call.Response, error) {
	return nil, errNoOutbound
}
func (nothing) RPC(context.Context) (call.Pipe, error) { return nil, errNoOutbound }
