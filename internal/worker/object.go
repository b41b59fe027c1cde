package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/hostcall"
	"celld/internal/id"
)

// strikesAlone: a cell that was reset this often for running wild gets an isolate of its own.
const strikesAlone = 2

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
	wild := s.alone[c] >= strikesAlone
	s.mu.Unlock()
	if wild {
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
	if errors.Is(cause, ErrCPU) {
		o.script.mu.Lock()
		o.script.alone[o.seat.ID()]++
		o.script.mu.Unlock()
	}
	o.fail(cause)
	if o.alone {
		go o.iso.shut(cause)
	}
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

// limitSection resets a cell whose critical section n stays open too long.
func (a *actor) limitSection(n uint32) {
	t := time.AfterFunc(blockLimit, func() {
		a.mu.Lock()
		open := false
		for _, s := range a.section {
			open = open || s == n
		}
		a.mu.Unlock()
		if open && a.seat != nil {
			a.seat.Reset(errWall)
		}
	})
	context.AfterFunc(a.ctx, func() { t.Stop() })
}
