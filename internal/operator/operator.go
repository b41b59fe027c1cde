// Package operator is the plain-HTTP side of the internal listener: what an
// operator or a supervisor asks of one node. Peers speak TLS on the same port
// and never get here (see Split).
//
// Who may ask: a request with the node's bearer token; where no token is set,
// only one that comes from this machine.
package operator

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"celld/internal/id"
)

// Node is what the operator can see and do.
type Node interface {
	// State is the answer of GET /state.
	State() any
	// Cell describes one cell, as GET /cell/NAME shows it.
	Cell(cell id.Cell) (any, error)
	// Evict gives up one resident cell.
	Evict(r *http.Request, cell id.Cell) error
	// Reload adopts the newest deployment at once; changed tells whether there was one.
	Reload(r *http.Request) (changed bool, version string, err error)
	// Pause stops or resumes the handing over of idle cells.
	Pause(r *http.Request, paused bool) error
	// Shutdown starts the graceful stop and returns.
	Shutdown()
	// Ready tells whether the node serves.
	Ready() bool
}

// ErrNoCell: this node knows nothing of the cell.
var ErrNoCell = errors.New("no such cell on this node")

// Handler serves the operator's API. token may be empty.
func Handler(n Node, metrics prometheus.Gatherer, token string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, r *http.Request) { answer(w, http.StatusOK, n.State()) })
	mux.HandleFunc("GET /cell/{cell}", withCell(func(w http.ResponseWriter, r *http.Request, c id.Cell) {
		view, err := n.Cell(c)
		reply(w, view, err)
	}))
	mux.HandleFunc("POST /evict/{cell}", withCell(func(w http.ResponseWriter, r *http.Request, c id.Cell) {
		reply(w, map[string]any{"evicted": c}, n.Evict(r, c))
	}))
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) {
		changed, version, err := n.Reload(r)
		outcome := "unchanged"
		if changed {
			outcome = "adopted"
		}
		if err != nil {
			answer(w, http.StatusUnprocessableEntity, map[string]any{"outcome": "failed", "error": err.Error()})
			return
		}
		answer(w, http.StatusOK, map[string]any{"outcome": outcome, "version": version})
	})
	for path, paused := range map[string]bool{"pause": true, "resume": false} {
		mux.HandleFunc("POST /rebalance/"+path, func(w http.ResponseWriter, r *http.Request) {
			reply(w, map[string]any{"paused": paused}, n.Pause(r, paused))
		})
	}
	mux.HandleFunc("POST /shutdown", func(w http.ResponseWriter, r *http.Request) {
		n.Shutdown()
		answer(w, http.StatusAccepted, map[string]any{"draining": true})
	})
	return authorized(token, mux)
}

func withCell(f func(http.ResponseWriter, *http.Request, id.Cell)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := id.ParseCell(r.PathValue("cell"))
		if err != nil {
			answer(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
			return
		}
		f(w, r, c)
	}
}

func reply(w http.ResponseWriter, view any, err error) {
	switch {
	case errors.Is(err, ErrNoCell):
		answer(w, http.StatusNotFound, map[string]any{"error": err.Error()})
	case err != nil:
		answer(w, http.StatusConflict, map[string]any{"error": err.Error()})
	default:
		answer(w, http.StatusOK, view)
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.Encode(v)
}

func authorized(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case token != "" && isBearer && subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1:
		case token == "" && fromHere(r.RemoteAddr):
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, map[string]any{"error": "this needs the operator's token: set CELLD_OPERATOR_TOKEN on the node and send it as a bearer token"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func fromHere(remote string) bool {
	a, err := netip.ParseAddrPort(remote)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// Server makes the http.Server of the operator's side.
func Server(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
}

// sniffTimeout is how long a new connection may take to say its first byte.
const sniffTimeout = 10 * time.Second

// tlsHandshake is the first byte of every TLS connection, and of no HTTP request.
const tlsHandshake = 0x16

// Split divides one listener by the first byte of each connection: peers speak
// TLS, operators plain HTTP. Closing either half closes l.
func Split(l net.Listener) (plain, tls net.Listener) {
	s := &split{l: l, done: make(chan struct{})}
	p, t := &half{s, make(chan net.Conn)}, &half{s, make(chan net.Conn)}
	go s.accept(p.conns, t.conns)
	return p, t
}

type split struct {
	l    net.Listener
	done chan struct{} // closed when accept has ended
}

type half struct {
	s     *split
	conns chan net.Conn
}

func (s *split) accept(plain, tls chan net.Conn) {
	defer close(s.done)
	for {
		c, err := s.l.Accept()
		if err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			return
		}
		go s.sort(c, plain, tls)
	}
}

func (s *split) sort(c net.Conn, plain, tls chan net.Conn) {
	c.SetReadDeadline(time.Now().Add(sniffTimeout))
	first := make([]byte, 1)
	if _, err := c.Read(first); err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	to := plain
	if first[0] == tlsHandshake {
		to = tls
	}
	select {
	case to <- &peeked{c, first}:
	case <-s.done:
		c.Close()
	}
}

// peeked gives back the byte that was read to tell the protocols apart.
type peeked struct {
	net.Conn
	first []byte
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) > 0 && len(b) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

func (h *half) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.s.done:
		return nil, net.ErrClosed
	}
}

func (h *half) Close() error   { return h.s.l.Close() }
func (h *half) Addr() net.Addr { return h.s.l.Addr() }
