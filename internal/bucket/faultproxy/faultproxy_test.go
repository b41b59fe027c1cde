package faultproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"celld/internal/bucket/faultproxy"
)

// rig is a server behind a proxy, and a client that reuses nothing.
type rig struct {
	*faultproxy.Proxy
	client *http.Client
	seen   atomic.Int32
	host   atomic.Value
}

func newRig(t *testing.T, seed uint64) *rig {
	r := &rig{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.seen.Add(1)
		r.host.Store(req.Host)
		io.Copy(io.Discard, req.Body)
		io.WriteString(w, strings.Repeat("answer", 1000))
	}))
	t.Cleanup(server.Close)
	p, err := faultproxy.Start(server.URL, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	r.Proxy = p
	return r
}

// put returns what the client sees: a status, or -1 for a cut, or -2 for a cut body.
func (r *rig) put(t *testing.T) int {
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", r.URL()+"/b/k%2Fx", strings.NewReader("body"))
	res, err := r.client.Do(req)
	if err != nil {
		return -1
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err != nil {
		return -2
	}
	return res.StatusCode
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults faultproxy.Faults
		sees   int
		landed int32
	}{
		{"none", faultproxy.Faults{}, 200, 1},
		{"503", faultproxy.Faults{Unavailable: 1}, 503, 0},
		{"429", faultproxy.Faults{TooMany: 1}, 429, 0},
		{"cut before", faultproxy.Faults{CutBefore: 1}, -1, 0},
		{"cut after", faultproxy.Faults{CutAfter: 1}, -1, 1},
		{"cut during", faultproxy.Faults{CutDuring: 1}, -2, 1},
		{"down", faultproxy.Faults{Down: true, Unavailable: 1}, -1, 0},
		{"others only", faultproxy.Faults{Down: true, Only: func(r *http.Request) bool { return r.Method == "GET" }}, 200, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1)
			r.Set(c.faults)
			if got := r.put(t); got != c.sees || r.seen.Load() != c.landed {
				t.Errorf("the client sees %d and the server %d requests, want %d and %d", got, r.seen.Load(), c.sees, c.landed)
			}
			r.Set(faultproxy.Faults{})
			if got := r.put(t); got != 200 {
				t.Errorf("healthy again: the client sees %d", got)
			}
			if host := r.host.Load(); "http://"+host.(string) != r.URL() {
				t.Errorf("the server saw host %s, the client meant %s", host, r.URL())
			}
		})
	}
}

func TestHangEndsWithTheNextFaults(t *testing.T) {
	r := newRig(t, 1)
	arrived := make(chan struct{}, 1)
	r.Set(faultproxy.Faults{Hang: true, Only: func(*http.Request) bool {
		arrived <- struct{}{}
		return true
	}})
	done := make(chan int)
	go func() { done <- r.put(t) }()
	<-arrived
	if n := r.seen.Load(); n != 0 {
		t.Fatalf("the server saw %d requests while they hang", n)
	}
	r.Set(faultproxy.Faults{})
	if got := <-done; got != 200 {
		t.Errorf("after the hang: %d", got)
	}
}

func TestSameSeedSameFaults(t *testing.T) {
	run := func() (got []int) {
		r := newRig(t, 42)
		r.Set(faultproxy.Faults{Unavailable: 0.2, CutAfter: 0.2, CutBefore: 0.2})
		for range 30 {
			got = append(got, r.put(t))
		}
		return got
	}
	first, second := run(), run()
	for i := range first {
		if first[i] != second[i] {
			t.Fatalf("request %d: %d, then %d", i, first[i], second[i])
		}
	}
}
