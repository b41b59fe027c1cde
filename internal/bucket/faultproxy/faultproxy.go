// Package faultproxy is a reverse proxy between a client and a real store that
// fails on command: for tests of whole binaries, where package faulty cannot reach.
//
//	p, err := faultproxy.Start("http://127.0.0.1:7070", seed)
//	… S3_ENDPOINT=p.URL() …
//	p.Set(faultproxy.Faults{CutAfter: 0.1})   // every tenth reply is lost after the write
//	p.Set(faultproxy.Faults{Down: true})      // outage
//	p.Set(faultproxy.Faults{})                // healthy again
//
// The Host header is passed on as the client sent it, because it is signed.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Faults say what happens to requests. The rates are probabilities from 0 to 1;
// their sum is at most 1, and each request meets at most one of them.
type Faults struct {
	// Only narrows the faults to some requests; nil is all of them.
	Only func(*http.Request) bool

	Delay      time.Duration // before the request is passed on
	Jitter     time.Duration // up to that much more, at random
	DelayReply time.Duration // between the store's answer and the client

	Unavailable float64 // 503 SlowDown; the store sees nothing
	TooMany     float64 // 429; the store sees nothing
	CutBefore   float64 // the connection is cut; the store sees nothing
	CutAfter    float64 // the store has answered, the reply is lost
	CutDuring   float64 // the reply stops in the middle of its body

	Down bool // every request is cut before; stands above the rates
	Hang bool // every request waits until other faults are set, and is then passed on
}

// Counts tell what happened since the start.
type Counts struct {
	Passed, Unavailable, TooMany, CutBefore, CutAfter, CutDuring int
}

// Proxy is a running proxy.
type Proxy struct {
	server  *http.Server
	address string
	forward *httputil.ReverseProxy
	served  sync.WaitGroup

	mu     sync.Mutex
	faults Faults
	change chan struct{} // closed when faults change
	rnd    *rand.Rand
	counts Counts
}

// Start listens on a free port of loopback in front of target. The same seed and
// the same order of requests give the same faults.
func Start(target string, seed uint64) (*Proxy, error) {
	to, err := url.Parse(target)
	if err != nil || to.Host == "" {
		return nil, fmt.Errorf("fault proxy: %q is no URL of a server", target)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	p := &Proxy{address: l.Addr().String(), change: make(chan struct{}), rnd: rand.New(rand.NewPCG(seed, 1))}
	quiet := log.New(io.Discard, "", 0)
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		Transport:      &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute},
		FlushInterval:  -1, // a reply that is cut later has begun
		ModifyResponse: p.reply,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { cut(w) },
		ErrorLog:       quiet,
	}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ErrorLog: quiet}
	p.served.Go(func() { p.server.Serve(l) })
	return p, nil
}

// URL is where clients connect.
func (p *Proxy) URL() string { return "http://" + p.address }

// Set replaces the faults, also for requests that hang.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
	close(p.change)
	p.change = make(chan struct{})
}

// Counts returns what happened so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Close cuts every connection.
func (p *Proxy) Close() error {
	p.Set(Faults{})
	err := p.server.Close()
	p.served.Wait()
	p.forward.Transport.(*http.Transport).CloseIdleConnections()
	return err
}

// fate is what was decided for one request.
type fate int

const (
	pass fate = iota
	unavailable
	tooMany
	cutBefore
	cutAfter
	cutDuring
)

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	f, fate, delay := p.decide(r)
	if !sleep(r.Context(), delay) {
		return
	}
	switch fate {
	case unavailable:
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
	case tooMany:
		refuse(w, r, http.StatusTooManyRequests, "TooManyRequests")
	case cutBefore:
		cut(w)
	default:
		ctx := context.WithValue(r.Context(), planKey{}, plan{fate, f.DelayReply})
		p.forward.ServeHTTP(w, r.WithContext(ctx))
	}
}

// decide waits while requests hang, and draws the fate of one.
func (p *Proxy) decide(r *http.Request) (Faults, fate, time.Duration) {
	for {
		p.mu.Lock()
		f, change := p.faults, p.change
		if f.Only != nil && !f.Only(r) {
			f = Faults{}
		}
		if !f.Hang || r.Context().Err() != nil {
			defer p.mu.Unlock()
			fate, delay := p.draw(f)
			return f, fate, delay
		}
		p.mu.Unlock()
		select {
		case <-change:
		case <-r.Context().Done():
		}
	}
}

// draw uses two numbers for every request, so that one fault does not shift the next.
func (p *Proxy) draw(f Faults) (fate, time.Duration) {
	dice, jitter := p.rnd.Float64(), time.Duration(p.rnd.Float64()*float64(f.Jitter))
	if f.Down {
		p.counts.CutBefore++
		return cutBefore, 0
	}
	for _, c := range []struct {
		rate  float64
		fate  fate
		count *int
	}{
		{f.Unavailable, unavailable, &p.counts.Unavailable},
		{f.TooMany, tooMany, &p.counts.TooMany},
		{f.CutBefore, cutBefore, &p.counts.CutBefore},
		{f.CutAfter, cutAfter, &p.counts.CutAfter},
		{f.CutDuring, cutDuring, &p.counts.CutDuring},
	} {
		if dice < c.rate {
			*c.count++
			return c.fate, f.Delay + jitter
		}
		dice -= c.rate
	}
	p.counts.Passed++
	return pass, f.Delay + jitter
}

type (
	planKey struct{}
	plan    struct {
		fate  fate
		delay time.Duration
	}
)

var errCut = errors.New("cut by the fault proxy")

// reply decides what the client sees of an answer that the store has given.
func (p *Proxy) reply(res *http.Response) error {
	plan := res.Request.Context().Value(planKey{}).(plan)
	sleep(res.Request.Context(), plan.delay)
	switch plan.fate {
	case cutAfter:
		return errCut // the ErrorHandler cuts
	case cutDuring:
		res.Body = &half{res.Body, halfOf(res.ContentLength)}
	}
	return nil
}

// halfOf a body of unknown length is its beginning.
func halfOf(length int64) int64 {
	if length < 0 {
		return 64
	}
	return length / 2
}

// half ends a body early with an error, upon which ReverseProxy aborts.
type half struct {
	io.ReadCloser
	left int64
}

func (h *half) Read(b []byte) (int, error) {
	if h.left == 0 {
		return 0, errCut
	}
	n, err := h.ReadCloser.Read(b[:min(int64(len(b)), h.left)])
	h.left -= int64(n)
	return n, err
}

// refuse answers as S3 does.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>injected by the fault proxy</Message></Error>", code)
}

// cut resets the connection.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// sleep says whether the request is still wanted afterwards.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
