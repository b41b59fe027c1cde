package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/peer"
)

// An owner that says that it is none is not asked again while the record stands.
func TestARefusalWaitsForAnotherOwner(t *testing.T) {
	for _, reason := range []peer.Refusal{peer.Stale, peer.Fenced, peer.Draining} {
		t.Run(reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{owner: remote("b.1", 10*time.Second), peers: map[id.Session]handler{
					"b.1": fails(&peer.RefusedError{Reason: reason}), "c.1": says("moved")}}
				go func() {
					time.Sleep(5 * time.Second)
					w.mu.Lock()
					w.owner = remote("c.1", 10*time.Second)
					w.mu.Unlock()
				}()
				if got, err := ask(router(w), nil); got != "moved" || err != nil {
					t.Error(got, err)
				}
				if want := []id.Session{"b.1", "c.1"}; !slices.Equal(w.calls, want) {
					t.Errorf("called %v", w.calls)
				}
			})
		})
	}
}

// One that is not reached, or has trouble of its own, may do better soon.
func TestTroubleThatMayPassIsTriedAgain(t *testing.T) {
	for name, err := range map[string]error{
		"dial":    fmt.Errorf("dial: %w", call.ErrNotStarted),
		"restore": &peer.RefusedError{Reason: peer.Unknown, Detail: "the bucket is slow"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := &world{owner: remote("b.1", time.Hour), peers: map[id.Session]handler{
					"b.1": func(context.Context, *call.Request) (*call.Response, error) {
						if time.Since(began) < 2*time.Second {
							return nil, err
						}
						return says("there")(context.Background(), nil)
					}}}
				if got, err := ask(router(w), nil); got != "there" || err != nil {
					t.Error(got, err)
				}
			})
		})
	}
}

// Waiting for a cell to wake counts too.
func TestTheDeadlineBoundsAWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{wake: func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("waiting: %w: %w", context.Cause(ctx), call.ErrNotStarted)
		}}
		began := time.Now()
		_, err := ask(router(w), nil)
		if took := time.Since(began); !errors.Is(err, call.ErrNotStarted) || took != 15*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestAFencedNodeAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{wake: func(context.Context) error { return fmt.Errorf("%w: %w", call.ErrFenced, call.ErrNotStarted) }}
		began := time.Now()
		if _, err := ask(router(w), nil); !errors.Is(err, call.ErrFenced) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// While one call hangs at a frozen owner, others find the new one, and what else
// hangs there is ended.
func TestOthersDoNotWaitBehindAFrozenOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{owner: remote("b.1", 4*time.Second), peers: map[id.Session]handler{
			"b.1": func(ctx context.Context, _ *call.Request) (*call.Response, error) {
				<-ctx.Done()
				return nil, &peer.LostError{Cause: context.Cause(ctx)}
			},
			"c.1": says("new")},
			lives: func(id.Session) (time.Time, bool, error) { return time.Time{}, false, nil }}
		r := router(w)
		first := make(chan error)
		go func() {
			_, err := ask(r, nil)
			first <- err
		}()
		time.Sleep(4*time.Second + time.Millisecond)
		w.mu.Lock()
		w.owner = remote("c.1", 10*time.Second)
		w.mu.Unlock()
		if got, err := ask(r, nil); got != "new" || err != nil {
			t.Error(got, err)
		}
		if err := <-first; err == nil {
			t.Error("the first call succeeded")
		}
		if !slices.Equal(w.gone, []id.Session{"b.1"}) {
			t.Errorf("forgotten: %v", w.gone)
		}
	})
}

// A proxied call leaves nothing behind, though its caller lives on.
func TestACallLetsItsContextGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var there context.Context
		var body *call.Body
		w := &world{owner: remote("b.1", time.Hour), peers: map[id.Session]handler{
			"b.1": func(ctx context.Context, _ *call.Request) (*call.Response, error) {
				there = ctx
				return &call.Response{Status: 200, Body: body}, nil
			}}}
		s := router(w).Cell(t.Context(), room, "")
		if _, err := s.Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/"}); err != nil || there.Err() == nil {
			t.Error(err, there.Err())
		}
		body = call.StreamBody(io.NopCloser(strings.NewReader("long")), -1)
		resp, err := s.Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/"})
		if err != nil || there.Err() != nil {
			t.Fatal("the body cannot be read any more:", err, there.Err())
		}
		if resp.Body.Stream.Close(); there.Err() == nil {
			t.Error("the body was closed and the context is still held")
		}
	})
}

func TestRoutesThatAreOverAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router(&world{})
		for i := range 100 {
			r.remember(id.NewCell("Room", fmt.Sprint(i)), remote("b.1", 10*time.Second))
		}
		time.Sleep(2 * sweepPeriod)
		r.remember(room, remote("b.1", 10*time.Second))
		if len(r.remote) != 1 {
			t.Errorf("%d routes are kept", len(r.remote))
		}
	})
}

// How a cell that cannot be had is told to a peer.
func TestWhatPeersAreTold(t *testing.T) {
	thrown := &call.Exception{Name: "TypeError", Message: "in the constructor"}
	for _, c := range []struct {
		name   string
		err    error
		refuse peer.Refusal
	}{
		{"another node has it", remote("c.1", time.Second), peer.Stale},
		{"draining", cell.ErrDraining, peer.Draining},
		{"fenced meanwhile", fmt.Errorf("%w: %w", call.ErrFenced, call.ErrNotStarted), peer.Fenced},
		{"not restored", fmt.Errorf("restore: %w", call.ErrNotStarted), peer.Unknown},
		{"thrown by the constructor", thrown, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The caller read this session's name; this session knows nothing of the cell, and looks.
			r := router(&world{strange: true, wake: func(context.Context) error { return c.err }})
			s, err := r.Resolve(t.Context(), peer.Target{Cell: room, Session: "me.1", Epoch: 9})
			var refused *peer.RefusedError
			if errors.As(err, &refused); c.refuse != 0 && (refused == nil || refused.Reason != c.refuse) {
				t.Fatalf("%v", err)
			}
			if c.refuse == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if _, err = s.Fetch(t.Context(), nil); !errors.Is(err, c.err) {
					t.Error(err)
				}
			}
		})
	}
	r := router(&world{strange: true, local: []handler{says("woken")}})
	if _, err := r.Resolve(t.Context(), peer.Target{Cell: room, Session: "me.1", Epoch: 9}); err != nil {
		t.Error("a cell that is this session's by the record was refused:", err)
	}
}

func BenchmarkHere(b *testing.B) {
	s := router(&world{local: []handler{says("here")}}).Cell(b.Context(), room, "")
	req := &call.Request{Method: "GET", URL: "http://x/"}
	for b.Loop() {
		if _, err := s.Fetch(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
