package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/hostcall"
	"celld/internal/id"
)

const (
	// strikesAlone: a cell that was reset this often for running wild gets an isolate of its own.
	strikesAlone = 2
	// From then on it is built again only after a while, which doubles up to a limit.
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	// forgiven: strikes count no more when a cell ran that long without another.
	forgiven = 10 * time.Minute
)

// strikes are a cell's resets for running wild.
type strikes struct {
	n    int
	last time.Time
}

// backoff is how long after its last strike the cell is not built.
func (s strikes) backoff() time.Duration {
	if s.n < strikesAlone {
		return 0
	}
	return min(firstBackoff<<min(s.n-strikesAlone, 10), lastBackoff)
}

// strike counts one. Those long past are forgotten, so that the map stays small.
func (s *Script) strike(c id.Cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for other, st := range s.alone {
		if now.Sub(st.last) > forgiven {
			delete(s.alone, other)
		}
	}
	s.alone[c] = strikes{s.alone[c].n + 1, now}
}

// errWild: a cell that ran wild several times is left alone for a while.
func errWild(n int, wait time.Duration) error {
	return fmt.Errorf("the Durable Object exceeded its CPU time limit %d times and is not started again for %v: %w", n, wait.Round(time.Millisecond), call.ErrOverloaded)
}

// Engine makes cells out of the Durable Object classes of whatever script
// Current returns for a class.
type Engine struct {
	Current func(class string) (*Script, error)
}

var _ cell.Engine = Engine{}

func (e Engine) Create(ctx context.Context, seat cell.Seat) (cell.Object, error) {
	s, err := e.Current(seat.ID().Class())
	if err != nil {
		return nil, err
	}
	class := s.classFor(seat.ID().Class())
	if class == "" {
		return nil, fmt.Errorf("the deployment has no Durable Object class for cells of %q", seat.ID().Class())
	}
	i, alone, err := s.seatFor(seat.ID())
	if err != nil {
		return nil, err
	}
	o := &object{actor: i.newActor(context.Background(), seat, string(seat.ID())), script: s, alone: alone}
	if err := o.construct(ctx, class); err != nil {
		o.Close(err)
		return nil, err
	}
	return o, nil
}

// seatFor picks the isolate that a cell lives in.
func (s *Script) seatFor(c id.Cell) (i *isolate, alone bool, err error) {
	s.mu.Lock()
	past := s.alone[c]
	s.mu.Unlock()
	since := time.Since(past.last)
	if wait := past.backoff() - since; wait > 0 {
		return nil, false, errWild(past.n, wait)
	}
	if past.n >= strikesAlone && since < forgiven {
		i, err = s.newIsolate()
		return i, true, err
	}
	i, err = s.pick(&s.cells, s.opts.Cells)
	return i, false, err
}

func (s *Script) classFor(namespace string) string {
	for _, c := range s.bundle.Classes {
		if c.Namespace == namespace {
			return c.Name
		}
	}
	return ""
}

// object is one constructed cell.
type object struct {
	*actor
	script *Script
	alone  bool
	close  sync.Once
}

func (o *object) construct(ctx context.Context, class string) error {
	n, rep := o.addCall()
	i := o.iso
	o.event(func() error {
		g := &i.args
		g.Reset()
		g.Num(float64(o.id))
		g.Num(float64(n))
		g.Str(class)
		g.Str(o.seat.ID().Object())
		g.Str(o.seat.Name())
		_, err := i.v.CallArgs(i.ctx, i.fn.construct, 0, g)
		return err
	}, rep.fail)
	_, err := rep.wait(ctx)
	return err
}

func (o *object) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) {
	n, rep := o.addCall()
	o.event(func() error { return o.iso.callFetch(o.actor, n, "", r) }, rep.fail)
	stop := context.AfterFunc(ctx, func() { o.clientGone(n) })
	resp, err := rep.wait(ctx)
	if err != nil || resp.Socket == nil && (resp.Body == nil || resp.Body.Stream == nil) {
		stop()
	}
	return resp, err
}

func (o *object) RPC(context.Context) (call.Pipe, error) { return o.openPipe("") }

func (o *object) Alarm(ctx context.Context, info cell.AlarmInfo) error {
	n, rep := o.addCall()
	i := o.iso
	o.event(func() error {
		g := &i.args
		g.Reset()
		g.Num(float64(o.id))
		g.Num(float64(n))
		g.Num(float64(info.RetryCount))
		g.Bool(info.IsRetry)
		_, err := i.v.CallArgs(i.ctx, i.fn.alarm, 0, g)
		return err
	}, rep.fail)
	_, err := rep.wait(ctx)
	return err
}

func (o *object) Busy() bool { return o.busy() }

func (o *object) Close(cause error) {
	o.fail(cause)
	o.close.Do(func() {
		if errors.Is(cause, ErrCPU) {
			o.script.strike(o.seat.ID())
		}
		if o.alone {
			go o.iso.shut(cause)
		}
	})
}

// storageSync is storage.sync(): settled when everything written so far is proven.
func storageSync(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	a, promise := actorOf(f), actorOf(f).iso.promise
	if a.seat == nil {
		return nil, throwError{"Error", "there is no storage outside of a Durable Object"}
	}
	a.seat.Sync(func(err error) { a.complete(promise, hostcall.Value{}, err) })
	return nil, nil
}

// resetCell is worker.reset(name, message, stack): the cell's JavaScript says
// that it cannot go on. It happens when the turn is over.
func resetCell(f hostcall.Frame) error {
	a := actorOf(f)
	a.resetCause = &call.Exception{Name: f.Arg(0).Str(), Message: f.Arg(1).Str(), Stack: a.iso.script.mapStack(f.Arg(2).Str()), Clone: append([]byte(nil), f.Arg(3).Bytes()...)}
	return nil
}
