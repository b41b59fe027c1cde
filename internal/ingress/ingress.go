package ingress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"celld/internal/call"
)

// HealthPath is the one path that never reaches the application.
const HealthPath = "/.well-known/celld/health"

const (
	// headerTimeout bounds how long a client may take to send its request head; it is then disconnected.
	headerTimeout = 30 * time.Second
	// idleTimeout closes connections that carry no request.
	idleTimeout = 3 * time.Minute
	// eagerBody: a body declared no longer than this is read before the handler starts, which saves it a stream.
	eagerBody = 16 << 10
)

// Options shape a Handler.
type Options struct {
	// Service is the deployment's entrypoint.
	Service func() call.Service
	// MaxBody is the longest request body; a longer one gets 413.
	MaxBody int64
	// TrustForwarded takes host, scheme and client address from X-Forwarded-* (the last value wins).
	TrustForwarded bool
	// ShowErrors answers an exception with its text and stack: for development only.
	ShowErrors bool
	Log        *slog.Logger
}

// Health is what the health path answers.
type Health int32

const (
	Starting Health = iota
	Serving
	Draining
)

// Handler is the public http.Handler.
type Handler struct {
	o      Options
	health atomic.Int32
	live   atomic.Int64 // requests under way
	served atomic.Uint64
}

// New makes a handler that is Starting.
func New(o Options) *Handler { return &Handler{o: o} }

// SetHealth changes what the health path says.
func (h *Handler) SetHealth(s Health) { h.health.Store(int32(s)) }

// Live is the number of requests under way, Served the number that ended.
func (h *Handler) Live() int64    { return h.live.Load() }
func (h *Handler) Served() uint64 { return h.served.Load() }

// Server makes the http.Server of the public listener.
func Server(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == HealthPath {
		h.answerHealth(w)
		return
	}
	h.live.Add(1)
	defer func() { h.live.Add(-1); h.served.Add(1) }()
	if Health(h.health.Load()) != Serving {
		h.refuse(w, "this node is not serving")
		return
	}
	if h.o.MaxBody > 0 && r.ContentLength > h.o.MaxBody {
		http.Error(w, tooLarge(h.o.MaxBody), http.StatusRequestEntityTooLarge)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	body := &limitedBody{r: r.Body, left: h.o.MaxBody}
	req, err := h.request(r, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	resp, err := h.o.Service().Fetch(ctx, req)
	switch {
	case body.over.Load():
		http.Error(w, tooLarge(h.o.MaxBody), http.StatusRequestEntityTooLarge)
	case err != nil:
		h.fail(w, r, err)
	case resp.Socket != nil:
		h.splice(ctx, w, r, resp)
	default:
		h.respond(w, r, resp)
	}
}

func tooLarge(limit int64) string {
	return "the request body is longer than the limit of " + strconv.FormatInt(limit, 10) + " bytes (CELLD_MAX_REQUEST_BODY_BYTES)"
}

func (h *Handler) answerHealth(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	switch Health(h.health.Load()) {
	case Serving:
		io.WriteString(w, `{"ok":true}`)
	case Draining:
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"ok":false,"draining":true}`)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"ok":false}`)
	}
}

func (h *Handler) refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Connection", "close")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// request makes the call. A short declared body is read here, a longer one streams.
func (h *Handler) request(r *http.Request, body *limitedBody) (*call.Request, error) {
	req := &call.Request{
		Method:   r.Method,
		URL:      h.url(r),
		Header:   make([]call.Field, 0, len(r.Header)+2),
		Redirect: "manual",
		Upgrade:  upgrades(r),
	}
	for name, values := range r.Header {
		if name == "Cf-Connecting-Ip" {
			continue // ours to set
		}
		for _, v := range values {
			req.Header = append(req.Header, call.Field{Name: name, Value: v})
		}
	}
	req.Header = append(req.Header, call.Field{Name: "Host", Value: r.Host}, call.Field{Name: "CF-Connecting-IP", Value: h.clientIP(r)})
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
	case r.ContentLength > 0 && r.ContentLength <= eagerBody:
		b := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(body, b); err != nil {
			return nil, errors.New("the request body ended before its declared length")
		}
		req.Body = call.BytesBody(b)
	default:
		req.Body = call.StreamBody(body, r.ContentLength)
	}
	return req, nil
}

// url is the absolute URL of the request as its client sees it.
func (h *Handler) url(r *http.Request) string {
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if h.o.TrustForwarded {
		if p := last(r.Header["X-Forwarded-Proto"]); p == "http" || p == "https" {
			scheme = p
		}
		if f := last(r.Header["X-Forwarded-Host"]); f != "" && validHost(f) {
			host = f
		}
	}
	if !validHost(host) {
		host = "localhost"
	}
	uri := r.RequestURI
	if !strings.HasPrefix(uri, "/") { // absolute form, or "*": the Host header decides
		uri = r.URL.RequestURI()
	}
	return scheme + "://" + host + uri
}

func (h *Handler) clientIP(r *http.Request) string {
	if h.o.TrustForwarded {
		if f := last(r.Header["X-Forwarded-For"]); net.ParseIP(f) != nil {
			return f
		}
	}
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return ip
}

// last is the last comma-separated value of the last line: what the nearest proxy wrote.
func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	l := lines[len(lines)-1]
	return strings.TrimSpace(l[strings.LastIndexByte(l, ',')+1:])
}

// validHost accepts host and host:port as URLs may hold them.
func validHost(s string) bool {
	if s == "" || len(s) > 255 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._:[]", c) >= 0
		if !ok {
			return false
		}
	}
	return true
}

func upgrades(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// limitedBody passes a request body on up to a limit, and remembers when it was more.
type limitedBody struct {
	r    io.ReadCloser
	left int64 // 0 at the start: no limit
	over atomic.Bool
	any  bool
}

var errTooLarge = errors.New("the request body is longer than the limit (CELLD_MAX_REQUEST_BODY_BYTES)")

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left == 0 && !b.any {
		return n, err
	}
	b.any = true
	if b.left -= int64(n); b.left < 0 {
		b.over.Store(true)
		return 0, errTooLarge
	}
	return n, err
}

func (b *limitedBody) Close() error { return b.r.Close() }
