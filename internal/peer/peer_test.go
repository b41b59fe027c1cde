package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"celld/internal/bucket"
	"celld/internal/bucket/mem"
	"celld/internal/call"
	"celld/internal/id"
)

// app is a Go handler in the place of a cell.
type app struct {
	fetch func(ctx context.Context, r *call.Request) (*call.Response, error)
	rpc   func(ctx context.Context) (call.Pipe, error)
}

func (a app) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) {
	return a.fetch(ctx, r)
}
func (a app) RPC(ctx context.Context) (call.Pipe, error) { return a.rpc(ctx) }

var target = Target{Cell: "Room:ab", Name: "lobby", Session: "b.1", Epoch: 7}

type node struct {
	server *Server
	client *Client
	addr   string
	auth   *Auth
}

func start(t *testing.T, store bucket.Store, s id.Session, resolve func(context.Context, Target) (call.Service, error)) *node {
	t.Helper()
	auth, err := OpenAuth(t.Context(), store, s)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{NewServer(auth, resolve, nil), NewClient(auth, nil), l.Addr().String(), auth}
	go n.server.Serve(l)
	t.Cleanup(func() { n.client.Close(); l.Close(); n.server.Close() })
	return n
}

// two nodes; b answers with a.
func pair(t *testing.T, a app) call.Service {
	store := mem.New()
	caller := start(t, store, "a.1", nil)
	callee := start(t, store, "b.1", func(context.Context, Target) (call.Service, error) { return a, nil })
	return caller.client.Service(callee.addr, target)
}

func readAll(t *testing.T, r *call.Response) string {
	t.Helper()
	if r.Body == nil {
		return ""
	}
	if r.Body.Stream == nil {
		return string(r.Body.Bytes)
	}
	defer r.Body.Stream.Close()
	b, err := io.ReadAll(r.Body.Stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFetchCarriesEverything(t *testing.T) {
	svc := pair(t, app{fetch: func(_ context.Context, r *call.Request) (*call.Response, error) {
		var body string
		if r.Body != nil {
			body = string(r.Body.Bytes)
		}
		h := append(r.Header, call.Field{Name: "X-Raw", Value: "caf\xe9"})
		return &call.Response{Status: 201, StatusText: "Made", Header: h, EncodeManually: true,
			Body: call.BytesBody([]byte(r.Method + " " + r.URL + " " + string(r.CF) + " " + r.Redirect + " " + body))}, nil
	}})
	resp, err := svc.Fetch(t.Context(), &call.Request{Method: "PUT", URL: "http://x/?q", CF: []byte(`{"a":1}`), Redirect: "manual",
		Header: []call.Field{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}, Body: call.BytesBody([]byte("hello"))})
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp); got != `PUT http://x/?q {"a":1} manual hello` {
		t.Error(got)
	}
	if resp.Status != 201 || resp.StatusText != "Made" || !resp.EncodeManually || fmt.Sprint(resp.Header) != fmt.Sprint([]call.Field{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}, {Name: "X-Raw", Value: "caf\xe9"}}) {
		t.Errorf("%+v", resp)
	}
}

func TestBodiesStreamBothWays(t *testing.T) {
	svc := pair(t, app{fetch: func(_ context.Context, r *call.Request) (*call.Response, error) {
		return &call.Response{Status: 200, Body: call.StreamBody(r.Body.Stream, r.Body.Length)}, nil // an echo
	}})
	pr, pw := io.Pipe()
	resp, err := svc.Fetch(t.Context(), &call.Request{Method: "POST", URL: "http://x/", Body: call.StreamBody(pr, -1)})
	if err != nil {
		t.Fatal(err)
	}
	// Each part comes back before the next is sent: nothing waits for the end.
	for _, part := range []string{"one", "two"} {
		go io.WriteString(pw, part)
		got := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body.Stream, got); err != nil || string(got) != part {
			t.Fatalf("%q, %v", got, err)
		}
	}
	big := strings.Repeat("x", 8<<20)
	go func() { io.WriteString(pw, big); pw.Close() }()
	if got := readAll(t, resp); got != big {
		t.Errorf("%d bytes of %d came back", len(got), len(big))
	}
}

func TestABrokenBodyIsNotACleanEnd(t *testing.T) {
	svc := pair(t, app{fetch: func(_ context.Context, r *call.Request) (*call.Response, error) {
		pr, pw := io.Pipe()
		go func() { pw.Write([]byte("part")); pw.CloseWithError(call.ErrUnproven) }()
		return &call.Response{Status: 200, Body: call.StreamBody(pr, -1)}, nil
	}})
	resp, err := svc.Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Stream.Close()
	if _, err := io.ReadAll(resp.Body.Stream); !errors.Is(err, call.ErrUnproven) {
		t.Error(err)
	}
}

func TestErrorsKeepWhatTheyAre(t *testing.T) {
	for _, c := range []struct {
		name       string
		err        error
		notStarted bool
	}{
		{"overloaded before the start", call.ErrOverloaded, true},
		{"refused before the start", fmt.Errorf("gone: %w", call.ErrNotStarted), true},
		{"unproven", call.ErrUnproven, false},
		{"fenced while running", call.ErrFenced, false},
		{"exception", &call.Exception{Name: "RangeError", Message: "m", Stack: "s", Retryable: true, Clone: []byte{1}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := pair(t, app{fetch: func(context.Context, *call.Request) (*call.Response, error) { return nil, c.err }})
			_, err := svc.Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/"})
			if errors.Is(err, call.ErrNotStarted) != c.notStarted {
				t.Errorf("not started: %v (%v)", !c.notStarted, err)
			}
			var ex *call.Exception
			if want, ok := c.err.(*call.Exception); ok {
				if !errors.As(err, &ex) || fmt.Sprint(*ex) != fmt.Sprint(*want) {
					t.Errorf("%#v", err)
				}
			} else if c.name != "refused before the start" && !errors.Is(err, c.err) {
				t.Errorf("%v is not %v", err, c.err)
			}
		})
	}
}

func TestARefusalLeavesTheBodyUntouched(t *testing.T) {
	store := mem.New()
	caller := start(t, store, "a.1", nil)
	callee := start(t, store, "b.1", func(_ context.Context, got Target) (call.Service, error) {
		if got != target {
			t.Errorf("%+v", got)
		}
		return nil, &RefusedError{Stale, "owned by c"}
	})
	var read atomic.Bool
	body := readerFunc(func(p []byte) (int, error) { read.Store(true); return 0, io.EOF })
	_, err := caller.client.Service(callee.addr, target).Fetch(t.Context(), &call.Request{Method: "PUT", URL: "http://x/", Body: call.StreamBody(io.NopCloser(body), -1)})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Reason != Stale || !errors.Is(err, call.ErrNotStarted) {
		t.Fatal(err)
	}
	if read.Load() {
		t.Error("the body was read although no handler ran")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestNobodyHomeIsProofOfNotStarted(t *testing.T) {
	store := mem.New()
	caller := start(t, store, "a.1", nil)
	other := start(t, store, "c.1", nil) // another session at the address that b had
	stranger := start(t, mem.New(), "b.1", nil)
	closed, _ := net.Listen("tcp", "127.0.0.1:0")
	closed.Close()
	for name, addr := range map[string]string{"nobody": closed.Addr().String(), "another session": other.addr, "another fleet": stranger.addr} {
		_, err := caller.client.Service(addr, target).Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/"})
		if !errors.Is(err, call.ErrNotStarted) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "another session" && !errors.Is(err, errWrongSession) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := caller.client.Probe(t.Context(), other.addr); err != nil || got != "c.1" {
		t.Errorf("probe: %q, %v", got, err)
	}
	if _, err := caller.client.Probe(t.Context(), stranger.addr); err == nil {
		t.Error("a node of another fleet passed the probe")
	}
}

func TestALostConnectionIsAmbiguous(t *testing.T) {
	store := mem.New()
	caller := start(t, store, "a.1", nil)
	running := make(chan struct{})
	callee := start(t, store, "b.1", func(context.Context, Target) (call.Service, error) {
		return app{fetch: func(ctx context.Context, _ *call.Request) (*call.Response, error) {
			close(running)
			<-ctx.Done()
			return nil, ctx.Err()
		}}, nil
	})
	result := make(chan error, 1)
	go func() {
		_, err := caller.client.Service(callee.addr, target).Fetch(context.Background(), &call.Request{Method: "GET", URL: "http://x/"})
		result <- err
	}()
	<-running
	caller.client.Forget("b.1") // as when the owner is found dead
	err := <-result
	var lost *LostError
	if !errors.As(err, &lost) || errors.Is(err, call.ErrNotStarted) {
		t.Error(err)
	}
}

func TestTheCallerGoingAwayEndsTheHandler(t *testing.T) {
	running, ended := make(chan struct{}), make(chan struct{})
	svc := pair(t, app{fetch: func(ctx context.Context, _ *call.Request) (*call.Response, error) {
		close(running)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-running; cancel() }()
	if _, err := svc.Fetch(ctx, &call.Request{Method: "GET", URL: "http://x/"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
}

// chanSocket is a socket of Go channels, and its other end.
type chanSocket struct {
	in, out chan call.Frame
	aborted chan error
}

func (s *chanSocket) Receive(ctx context.Context) (call.Frame, error) {
	select {
	case f, ok := <-s.out:
		if !ok {
			return f, io.EOF
		}
		return f, nil
	case <-ctx.Done():
		return call.Frame{}, ctx.Err()
	}
}
func (s *chanSocket) Send(_ context.Context, f call.Frame) error { s.in <- f; return nil }
func (s *chanSocket) Abort(err error) {
	select {
	case s.aborted <- err:
	default:
	}
}

func TestSockets(t *testing.T) {
	far := &chanSocket{make(chan call.Frame, 4), make(chan call.Frame, 4), make(chan error, 1)}
	svc := pair(t, app{fetch: func(context.Context, *call.Request) (*call.Response, error) {
		return &call.Response{Status: 101, Socket: far}, nil
	}})
	ctx := t.Context()
	resp, err := svc.Fetch(ctx, &call.Request{Method: "GET", URL: "http://x/", Upgrade: true})
	if err != nil {
		t.Fatal(err)
	}
	near := resp.Socket
	big := bytes.Repeat([]byte{7}, 3<<20)
	for _, f := range []call.Frame{{Kind: call.Text, Data: []byte("hi")}, {Kind: call.Binary, Data: big}} {
		near.Send(ctx, f)
		if got := <-far.in; got.Kind != f.Kind || !bytes.Equal(got.Data, f.Data) {
			t.Errorf("to the cell: %v, %d bytes", got.Kind, len(got.Data))
		}
		far.out <- f
		if got, err := near.Receive(ctx); err != nil || got.Kind != f.Kind || !bytes.Equal(got.Data, f.Data) {
			t.Errorf("from the cell: %v, %v", got.Kind, err)
		}
	}
	far.out <- call.Frame{Kind: call.Close, Code: 3001, Data: []byte("done")}
	if got, err := near.Receive(ctx); err != nil || got.Code != 3001 || string(got.Data) != "done" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := near.Receive(ctx); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	near.Abort(nil)
}

func TestASocketWhoseCallerVanishesIsAborted(t *testing.T) {
	far := &chanSocket{make(chan call.Frame, 4), make(chan call.Frame, 4), make(chan error, 1)}
	svc := pair(t, app{fetch: func(context.Context, *call.Request) (*call.Response, error) {
		return &call.Response{Status: 101, Socket: far}, nil
	}})
	resp, err := svc.Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/", Upgrade: true})
	if err != nil {
		t.Fatal(err)
	}
	resp.Socket.Abort(nil)
	if err := <-far.aborted; err == nil {
		t.Error("no reason")
	}
}

func TestRPCPipes(t *testing.T) {
	here, there := pipePair()
	svc := pair(t, app{rpc: func(context.Context) (call.Pipe, error) { return there, nil }})
	p, err := svc.RPC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Send(t.Context(), []byte("ask"))
	if m, err := here.Receive(t.Context()); err != nil || string(m) != "ask" {
		t.Fatal(string(m), err)
	}
	here.Send(t.Context(), []byte("answer"))
	if m, err := p.Receive(t.Context()); err != nil || string(m) != "answer" {
		t.Fatal(string(m), err)
	}
	p.Close(nil)
	if _, err := here.Receive(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// pipePair is an RPC session within one process.
func pipePair() (a, b call.Pipe) {
	ab, ba := make(chan []byte, 8), make(chan []byte, 8)
	return &chanPipe{in: ba, out: ab}, &chanPipe{in: ab, out: ba}
}

type chanPipe struct {
	in, out chan []byte
	closed  atomic.Bool
}

func (p *chanPipe) Receive(ctx context.Context) ([]byte, error) {
	select {
	case m, ok := <-p.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (p *chanPipe) Send(_ context.Context, m []byte) error { p.out <- m; return nil }
func (p *chanPipe) Close(error) {
	if p.closed.CompareAndSwap(false, true) {
		close(p.out)
	}
}

func TestKeyRotationCutsNobodyOff(t *testing.T) {
	store := mem.New()
	echo := func(context.Context, Target) (call.Service, error) {
		return app{fetch: func(context.Context, *call.Request) (*call.Response, error) { return &call.Response{Status: 204}, nil }}, nil
	}
	a, b := start(t, store, "a.1", nil), start(t, store, "b.1", echo)
	ask := func(c *Client) error {
		_, err := c.Service(b.addr, target).Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/"})
		return err
	}
	a.auth.reloadInterval, b.auth.reloadInterval = 0, 0
	if err := RotateAuth(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{b, a} { // one after the other, calls in between
		if err := n.auth.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh := NewClient(a.auth, nil)
		err := ask(fresh)
		fresh.Close()
		if err != nil {
			t.Error(err)
		}
	}
}

func TestStreamsOfOtherProtocols(t *testing.T) {
	store := mem.New()
	a, b := start(t, store, "a.1", nil), start(t, store, "b.1", nil)
	b.server.Handle("shout", func(_ context.Context, from id.Session, c net.Conn) {
		in := make([]byte, 2)
		io.ReadFull(c, in)
		fmt.Fprintf(c, "%s says %s", from, strings.ToUpper(string(in)))
	})
	c, err := a.client.Stream(t.Context(), b.addr, "b.1", "shout")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hi")
	if got, err := io.ReadAll(c); err != nil || string(got) != "a.1 says HI" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzFrames(f *testing.F) {
	o := &open{Verb: Fetch, Target: target, Head: &call.Request{Method: "GET", URL: "http://x/", Body: call.BytesBody([]byte("b"))}}
	f.Add(o.encode())
	f.Add(encodeHead(&call.Response{Status: 200, Header: []call.Field{{Name: "a", Value: "b"}}, Body: call.BytesBody([]byte("b"))}))
	f.Add(encodeFailure(&call.Exception{Name: "E"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := decodeOpen(b); err == nil {
			if again, err := decodeOpen(o.encode()); err != nil || again.Target != o.Target {
				t.Errorf("an accepted frame does not survive a second trip: %v", err)
			}
		}
		decodeHead(b)
		decodeFailure(b)
		decodeRefusal(b)
	})
}
