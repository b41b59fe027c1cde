package operator

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"celld/internal/id"
)

type fake struct{ shutdowns int }

func (*fake) State() any                         { return map[string]int{"residents": 3} }
func (*fake) Cell(id.Cell) (any, error)          { return nil, ErrNoCell }
func (*fake) Evict(*http.Request, id.Cell) error { return errors.New("cell_active") }
func (*fake) Reload(*http.Request) (bool, string, error) {
	return false, "", errors.New("boom at top level")
}
func (*fake) Pause(*http.Request, bool) error { return nil }
func (f *fake) Shutdown()                     { f.shutdowns++ }
func (*fake) Ready() bool                     { return true }
func ask(h http.Handler, method, path, from, bearer string) int {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = from
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestWhoMayAsk(t *testing.T) {
	open := Handler(&fake{}, prometheus.NewRegistry(), "")
	locked := Handler(&fake{}, prometheus.NewRegistry(), "s3cret")
	for _, c := range []struct {
		name   string
		h      http.Handler
		from   string
		bearer string
		want   int
	}{
		{"this machine, no token set", open, "127.0.0.1:9", "", 200},
		{"this machine over v6", open, "[::1]:9", "", 200},
		{"another machine, no token set", open, "10.0.0.8:9", "", 401},
		{"another machine, guessed token", open, "10.0.0.8:9", "x", 401},
		{"another machine, right token", locked, "10.0.0.8:9", "s3cret", 200},
		{"this machine without the token that is set", locked, "127.0.0.1:9", "", 401},
		{"wrong token", locked, "127.0.0.1:9", "s3cre", 401},
	} {
		if got := ask(c.h, "GET", "/state", c.from, c.bearer); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	n := &fake{}
	h := Handler(n, prometheus.NewRegistry(), "")
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/metrics", 200}, {"GET", "/state", 200},
		{"GET", "/cell/Room:ab", 404}, {"GET", "/cell/nonsense", 400},
		{"POST", "/evict/Room:ab", 409}, {"POST", "/reload", 422}, {"POST", "/shutdown", 202}, {"POST", "/rebalance/pause", 200}, {"POST", "/rebalance/resume", 200},
		{"GET", "/shutdown", 405}, {"GET", "/", 404},
	} {
		if got := ask(h, c.method, c.path, "127.0.0.1:9", ""); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got, c.want)
		}
	}
	if n.shutdowns != 1 {
		t.Errorf("%d shutdowns", n.shutdowns)
	}
}

func TestSplitTellsTLSFromHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain, tls := Split(l)
	for _, c := range []struct {
		send string
		to   net.Listener
	}{{"GET / HTTP/1.1\r\n", plain}, {"\x16\x03\x01", tls}} {
		d, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(d, c.send)
		a, err := c.to.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(c.send))
		if _, err := io.ReadFull(a, got); err != nil || string(got) != c.send {
			t.Errorf("%q, %v", got, err)
		}
		a.Close()
		d.Close()
	}
	plain.Close()
	if _, err := tls.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}
