package ingress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"celld/internal/call"
)

// app is a Go handler in the place of a Worker.
type app func(ctx context.Context, r *call.Request) (*call.Response, error)

func (a app) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) { return a(ctx, r) }
func (a app) RPC(context.Context) (call.Pipe, error)                             { return nil, errors.ErrUnsupported }

func serve(t *testing.T, o Options, a app) *httptest.Server {
	t.Helper()
	o.Service = func() call.Service { return a }
	h := New(o)
	h.SetHealth(Serving)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// raw sends text as it is and returns the status line's code and the body.
func raw(t *testing.T, s *httptest.Server, text string) (int, string) {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, text)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func text(s string) *call.Response {
	return &call.Response{Status: 200, Body: call.BytesBody([]byte(s))}
}

func TestURLAsTheClientSeesIt(t *testing.T) {
	echo := app(func(_ context.Context, r *call.Request) (*call.Response, error) { return text(r.URL), nil })
	const forwarded = "X-Forwarded-Host: evil.example, shop.example\r\nX-Forwarded-Proto: http, https\r\n"
	for _, c := range []struct {
		name, head, want string
		trust            bool
	}{
		{"host header", "GET /a?b=c HTTP/1.1\r\nHost: x.example\r\n", "http://x.example/a?b=c", false},
		{"forwarded is ignored by default", "GET / HTTP/1.1\r\nHost: x.example\r\n" + forwarded, "http://x.example/", false},
		{"the last forwarded value wins", "GET / HTTP/1.1\r\nHost: x.example\r\n" + forwarded, "https://shop.example/", true},
		{"a malformed forwarded host falls back", "GET / HTTP/1.1\r\nHost: x.example\r\nX-Forwarded-Host: a/b\r\n", "http://x.example/", true},
		{"the authority of an absolute form is not the path", "GET http://other.example/p HTTP/1.1\r\nHost: x.example\r\n", "http://other.example/p", false},
		{"escapes stay as sent", "GET /%2e/%E2%82%AC?q=%20 HTTP/1.1\r\nHost: h\r\n", "http://h/%2e/%E2%82%AC?q=%20", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, Options{TrustForwarded: c.trust}, echo)
			if code, got := raw(t, s, c.head+"Connection: close\r\n\r\n"); code != 200 || got != c.want {
				t.Errorf("%d %q, want %q", code, got, c.want)
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	s := serve(t, Options{MaxBody: 20000}, func(_ context.Context, r *call.Request) (*call.Response, error) {
		if r.Body == nil || r.Body.Stream == nil {
			return nil, errors.New("a long body must stream")
		}
		n, err := io.Copy(io.Discard, r.Body.Stream)
		if err != nil {
			return nil, err
		}
		return text(fmt.Sprint(n)), nil
	})
	for _, c := range []struct {
		size    int
		chunked bool
		want    int
	}{{20000, false, 200}, {20001, false, 413}, {20000, true, 200}, {20001, true, 413}} {
		var body io.Reader = bytes.NewReader(make([]byte, c.size))
		if c.chunked {
			body = io.MultiReader(body)
		}
		resp, err := http.Post(s.URL, "", body)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("size %d chunked %v: %d %s, want %d", c.size, c.chunked, resp.StatusCode, b, c.want)
		}
	}
}

func TestHealthNeverReachesTheApplication(t *testing.T) {
	h := New(Options{Service: func() call.Service { t.Error("called"); return nil }})
	for _, c := range []struct {
		health Health
		code   int
		body   string
	}{{Starting, 503, `{"ok":false}`}, {Serving, 200, `{"ok":true}`}, {Draining, 503, `{"ok":false,"draining":true}`}} {
		h.SetHealth(c.health)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", HealthPath, nil))
		if w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%v: %d %s", c.health, w.Code, w.Body)
		}
	}
	h.SetHealth(Draining)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("a draining node answered %d %v", w.Code, w.Header())
	}
}

func TestErrorsBecomeStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{call.ErrOverloaded, 503}, {call.ErrFenced, 503}, {call.ErrUnproven, 503}, {fmt.Errorf("x: %w", call.ErrNotStarted), 503},
		{&call.Exception{Name: "TypeError", Message: "secret detail"}, 500},
	} {
		s := serve(t, Options{}, func(context.Context, *call.Request) (*call.Response, error) { return nil, c.err })
		resp, err := http.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want || strings.Contains(string(b), "secret") {
			t.Errorf("%v: %d %s", c.err, resp.StatusCode, b)
		}
	}
}

func TestStreamFlowsAsItIsWritten(t *testing.T) {
	pr, pw := io.Pipe()
	s := serve(t, Options{}, func(context.Context, *call.Request) (*call.Response, error) {
		return &call.Response{Status: 200, Body: call.StreamBody(pr, -1)}, nil
	})
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := make([]byte, 3)
	for _, part := range []string{"one", "two"} {
		go io.WriteString(pw, part)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != part {
			t.Fatalf("%s, %v", got, err)
		}
	}
	pw.CloseWithError(errors.New("broken"))
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a broken stream ended cleanly")
	}
}

func TestClientGoneEndsTheCall(t *testing.T) {
	gone := make(chan struct{})
	started := make(chan struct{})
	s := serve(t, Options{}, func(ctx context.Context, _ *call.Request) (*call.Response, error) {
		close(started)
		<-ctx.Done()
		close(gone)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	go http.DefaultClient.Do(r)
	<-started
	cancel()
	<-gone
}

func TestContentEncodingIsDoneByTheServer(t *testing.T) {
	for _, manual := range []bool{false, true} {
		s := serve(t, Options{}, func(context.Context, *call.Request) (*call.Response, error) {
			r := text("plain")
			r.Header = []call.Field{{Name: "content-encoding", Value: "gzip"}}
			r.EncodeManually = manual
			return r, nil
		})
		r, _ := http.NewRequest("GET", s.URL, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if manual {
			if string(b) != "plain" {
				t.Errorf("manual: %q", b)
			}
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := io.ReadAll(z); string(p) != "plain" {
			t.Errorf("%q", p)
		}
	}
}

// echoSocket sends every frame back.
type echoSocket struct{ frames chan call.Frame }

func (e *echoSocket) Send(_ context.Context, f call.Frame) error { e.frames <- f; return nil }
func (e *echoSocket) Abort(error)                                { e.frames <- call.Frame{} }
func (e *echoSocket) Receive(ctx context.Context) (call.Frame, error) {
	select {
	case f := <-e.frames:
		if f.Kind == 0 {
			return f, errors.New("owner lost")
		}
		return f, nil
	case <-ctx.Done():
		return call.Frame{}, ctx.Err()
	}
}

func TestWebSocket(t *testing.T) {
	sock := &echoSocket{make(chan call.Frame, 4)}
	s := serve(t, Options{}, func(_ context.Context, r *call.Request) (*call.Response, error) {
		if !r.Upgrade {
			return nil, errors.New("no upgrade")
		}
		return &call.Response{Status: 101, Socket: sock, Header: []call.Field{{Name: "Sec-WebSocket-Protocol", Value: "chat"}}}, nil
	})
	ctx := t.Context()
	c, _, err := websocket.Dial(ctx, s.URL, &websocket.DialOptions{Subprotocols: []string{"chat"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Subprotocol() != "chat" {
		t.Errorf("subprotocol %q", c.Subprotocol())
	}
	c.Write(ctx, websocket.MessageText, []byte("hi"))
	if kind, b, err := c.Read(ctx); err != nil || kind != websocket.MessageText || string(b) != "hi" {
		t.Fatal(kind, string(b), err)
	}
	sock.frames <- call.Frame{} // the owner goes away between frames
	_, _, err = c.Read(ctx)
	if websocket.CloseStatus(err) != 1012 {
		t.Errorf("%v, want close 1012", err)
	}
}

func TestUpgradeWithoutAskingIsRefused(t *testing.T) {
	sock := &echoSocket{make(chan call.Frame, 4)}
	s := serve(t, Options{}, func(context.Context, *call.Request) (*call.Response, error) {
		return &call.Response{Status: 101, Socket: sock}, nil
	})
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 426 || len(sock.frames) != 1 {
		t.Errorf("%d, socket aborted: %v", resp.StatusCode, len(sock.frames) == 1)
	}
}
