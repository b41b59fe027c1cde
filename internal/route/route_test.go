package route

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/peer"
)

const room = id.Cell("Room:ab")

// handler is a callee.
type handler func(ctx context.Context, r *call.Request) (*call.Response, error)

func (h handler) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) {
	return h(ctx, r)
}
func (h handler) RPC(context.Context) (call.Pipe, error) { return nil, call.ErrNotStarted }

func says(text string) handler {
	return func(context.Context, *call.Request) (*call.Response, error) {
		return &call.Response{Status: 200, Body: call.BytesBody([]byte(text))}, nil
	}
}

func fails(err error) handler {
	return func(context.Context, *call.Request) (*call.Response, error) { return nil, err }
}

// world scripts what this node's manager and the peers answer, one look after the other.
type world struct {
	mu    sync.Mutex
	local []handler // one for each look; the last stands
	owner *cell.Remote
	peers map[id.Session]handler
	lives func(id.Session) (time.Time, bool, error)
	looks int
	calls []id.Session
	gone  []id.Session // forgotten

	wake    func(context.Context) error // before a local answer
	strange bool                        // this node knows of no cell
}

func (w *world) Service(ctx context.Context, _ id.Cell, _ string) (call.Service, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if w.wake != nil {
		if err := w.wake(ctx); err != nil {
			return nil, err
		}
	}
	if w.owner != nil {
		return nil, w.owner
	}
	h := w.local[0]
	if len(w.local) > 1 {
		w.local = w.local[1:]
	}
	return h, nil
}

func (w *world) Owned(id.Cell) (id.Epoch, bool) { return 7, !w.strange }

type peers struct{ w *world }

func (p peers) Service(_ string, t peer.Target) call.Service {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.calls = append(p.w.calls, t.Session)
	return p.w.peers[t.Session]
}

func (p peers) Forget(s id.Session) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.gone = append(p.w.gone, s)
}

func remote(s id.Session, left time.Duration) *cell.Remote {
	return &cell.Remote{Cell: room, Session: s, Node: s.Node(), Address: "x", Epoch: 3, Deadline: time.Now().Add(left)}
}

func router(w *world) *Router {
	return New(Config{Local: w, Peers: peers{w}, Deadline: 15 * time.Second, Session: "me.1", Authority: func() error { return nil },
		Lives: func(_ context.Context, s id.Session) (time.Time, bool, error) {
			if w.lives == nil {
				return time.Now().Add(10 * time.Second), true, nil
			}
			return w.lives(s)
		}})
}

func ask(r *Router, body *call.Body) (string, error) {
	resp, err := r.Cell(context.Background(), room, "").Fetch(context.Background(), &call.Request{Method: "POST", URL: "http://x/", Body: body})
	if err != nil {
		return "", err
	}
	return string(resp.Body.Bytes), nil
}

func TestHere(t *testing.T) {
	got, err := ask(router(&world{local: []handler{says("here")}}), nil)
	if got != "here" || err != nil {
		t.Error(got, err)
	}
}

func TestAtItsOwnerAndRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{owner: remote("b.1", 10*time.Second), peers: map[id.Session]handler{"b.1": says("there")}}
		r := router(w)
		for range 3 {
			if got, err := ask(r, nil); got != "there" || err != nil {
				t.Fatal(got, err)
			}
		}
		if w.looks != 1 {
			t.Errorf("ownership was looked at %d times", w.looks)
		}
		time.Sleep(11 * time.Second) // the lease that was seen is over
		w.owner = remote("b.1", 10*time.Second)
		ask(r, nil)
		if w.looks != 2 {
			t.Errorf("after the lease: %d looks", w.looks)
		}
	})
}

func TestAStaleRouteIsLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{owner: remote("b.1", 10*time.Second), peers: map[id.Session]handler{
			"b.1": fails(&peer.RefusedError{Reason: peer.Stale}), "c.1": says("moved")}}
		go func() {
			time.Sleep(time.Second)
			w.mu.Lock()
			w.owner = remote("c.1", 10*time.Second)
			w.mu.Unlock()
		}()
		if got, err := ask(router(w), call.StreamBody(io.NopCloser(strings.NewReader("body")), -1)); got != "moved" || err != nil {
			t.Error(got, err)
		}
	})
}

func TestWhatMayHaveRunIsNotRepeated(t *testing.T) {
	for name, err := range map[string]error{"lost": &peer.LostError{Cause: io.ErrUnexpectedEOF}, "threw": &call.Exception{Message: "x"}, "unproven": call.ErrUnproven} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{owner: remote("b.1", 10*time.Second), peers: map[id.Session]handler{"b.1": fails(err)}}
				if _, got := ask(router(w), nil); !errors.Is(got, err) || len(w.calls) != 1 {
					t.Errorf("%v after %d calls", got, len(w.calls))
				}
			})
		})
	}
}

func TestATouchedBodyIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		touched := handler(func(_ context.Context, r *call.Request) (*call.Response, error) {
			r.Body.Stream.Read(make([]byte, 1))
			return nil, call.ErrNotStarted
		})
		w := &world{local: []handler{touched, says("again")}}
		if _, err := ask(router(w), call.StreamBody(io.NopCloser(strings.NewReader("body")), -1)); !errors.Is(err, call.ErrNotStarted) {
			t.Error(err)
		}
	})
}

func TestTheDeadlineBoundsItAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{local: []handler{fails(call.ErrNotStarted)}}
		began := time.Now()
		_, err := ask(router(w), nil)
		if took := time.Since(began); !errors.Is(err, call.ErrNotStarted) || took > 15*time.Second || took < 14*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestOverloadIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{local: []handler{fails(call.ErrOverloaded)}}
		began := time.Now()
		if _, err := ask(router(w), nil); !errors.Is(err, call.ErrOverloaded) || time.Since(began) > 0 {
			t.Error(err)
		}
	})
}

func TestAFrozenOwner(t *testing.T) {
	frozen := handler(func(ctx context.Context, _ *call.Request) (*call.Response, error) {
		<-ctx.Done()
		return nil, &peer.LostError{Cause: context.Cause(ctx)}
	})
	t.Run("its lease ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{owner: remote("b.1", 4*time.Second), peers: map[id.Session]handler{"b.1": frozen},
				lives: func(id.Session) (time.Time, bool, error) { return time.Time{}, false, nil }}
			began := time.Now()
			_, err := ask(router(w), nil)
			if err == nil || !strings.Contains(err.Error(), "lost its lease") || time.Since(began) != 4*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("it is only slow and renews", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			slow := handler(func(context.Context, *call.Request) (*call.Response, error) {
				time.Sleep(time.Minute)
				return says("late")(context.Background(), nil)
			})
			w := &world{owner: remote("b.1", 4*time.Second), peers: map[id.Session]handler{"b.1": slow}}
			if got, err := ask(router(w), nil); got != "late" || err != nil {
				t.Error(got, err)
			}
		})
	})
}

func TestWhomPeersReach(t *testing.T) {
	r := router(&world{local: []handler{says("x")}})
	for _, c := range []struct {
		name   string
		target peer.Target
		want   peer.Refusal
	}{
		{"the owner at its epoch", peer.Target{Cell: room, Session: "me.1", Epoch: 7}, 0},
		{"an older activation of the same session", peer.Target{Cell: room, Session: "me.1", Epoch: 5}, 0},
		{"an epoch that is not here", peer.Target{Cell: room, Session: "me.1", Epoch: 8}, peer.Stale},
		{"another session", peer.Target{Cell: room, Session: "me.0", Epoch: 7}, peer.Stale},
	} {
		_, err := r.Resolve(t.Context(), c.target)
		var refused *peer.RefusedError
		if errors.As(err, &refused); c.want == 0 && err != nil || c.want != 0 && (refused == nil || refused.Reason != c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	r.cfg.Authority = func() error { return call.ErrFenced }
	var refused *peer.RefusedError
	if _, err := r.Resolve(t.Context(), peer.Target{Cell: room, Session: "me.1", Epoch: 7}); !errors.As(err, &refused) || refused.Reason != peer.Fenced {
		t.Error(err)
	}
}
