package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"celld/internal/call"
	"celld/internal/id"
)

const (
	// dialTimeout bounds reaching a peer and the handshake with it.
	dialTimeout = 3 * time.Second
	// connections to one session at once; streams go to the one that carries fewest.
	connections = 2
	// keepAlive finds a peer that vanished without closing: within two of it the connection is given up.
	keepAlive = 3 * time.Second
	// idleConnection closes a connection that carried no stream for so long.
	idleConnection = 2 * time.Minute
)

// Dialer opens plain connections; the simulator has its own.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// Client calls other nodes.
type Client struct {
	auth *Auth
	dial Dialer

	mu     sync.Mutex
	pools  map[endpoint]*pool
	closed bool
}

type endpoint struct {
	address string
	session id.Session
}

// NewClient makes a client. dial may be nil for TCP.
func NewClient(auth *Auth, dial Dialer) *Client {
	if dial == nil {
		d := net.Dialer{Timeout: dialTimeout}
		dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	return &Client{auth: auth, dial: dial, pools: map[endpoint]*pool{}}
}

// pool is the connections to one session at one address.
type pool struct {
	mu      sync.Mutex
	conns   []*yamux.Session
	dialing chan struct{} // closed when the dial under way has ended; nil without one
}

// Service is the cell t at that address, as a thing that can be called.
func (c *Client) Service(address string, t Target) call.Service { return &remote{c, address, t} }

type remote struct {
	c       *Client
	address string
	t       Target
}

// Close ends every connection and every call on it.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	pools := c.pools
	c.pools = map[endpoint]*pool{}
	c.mu.Unlock()
	for _, p := range pools {
		p.mu.Lock()
		for _, y := range p.conns {
			y.Close()
		}
		p.mu.Unlock()
	}
}

// Forget drops the connections to a session, failing what is under way on
// them: it is known to be gone.
func (c *Client) Forget(s id.Session) {
	c.mu.Lock()
	var gone []*pool
	for e, p := range c.pools {
		if e.session == s {
			gone = append(gone, p)
			delete(c.pools, e)
		}
	}
	c.mu.Unlock()
	for _, p := range gone {
		p.mu.Lock()
		for _, y := range p.conns {
			y.Close()
		}
		p.mu.Unlock()
	}
}

// Probe dials address afresh and returns which session answers there.
func (c *Client) Probe(ctx context.Context, address string) (id.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var found id.Session
	conn, err := c.connect(ctx, address, c.auth.clientTLS("", &found))
	if err != nil {
		return "", err
	}
	return found, conn.Close()
}

// Stream opens a raw stream for one of the other protocols between nodes (the
// node log, handoffs), named as the callee registered it. An error means that
// nothing was sent.
func (c *Client) Stream(ctx context.Context, address string, s id.Session, protocol string) (net.Conn, error) {
	st, err := c.stream(ctx, endpoint{address, s})
	if err != nil {
		return nil, err
	}
	if err := writePreamble(st, protocol); err != nil {
		st.Close()
		return nil, &LostError{err}
	}
	return st, nil
}

// stream opens a stream, over a new connection if need be. Every error proves
// that nothing was sent.
func (c *Client) stream(ctx context.Context, e endpoint) (net.Conn, error) {
	p, err := c.pool(e)
	if err != nil {
		return nil, notStarted(err)
	}
	for {
		y, wait := p.pick()
		if y != nil {
			if st, err := y.OpenStream(); err == nil {
				return st, nil
			}
			p.drop(y)
			continue
		}
		if wait != nil { // somebody dials already
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, notStarted(ctx.Err())
			}
		}
		if err := c.grow(ctx, e, p); err != nil {
			return nil, notStarted(fmt.Errorf("dial peer %s (%s): %w", e.address, e.session, err))
		}
	}
}

func (c *Client) pool(e endpoint) (*pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	p := c.pools[e]
	if p == nil {
		p = &pool{}
		c.pools[e] = p
	}
	return p, nil
}

// pick returns the connection to use; or, if there is none, the dial to wait
// for; or nothing, and then the caller is the one who dials.
func (p *pool) pick() (*yamux.Session, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *yamux.Session
	live := p.conns[:0]
	for _, y := range p.conns {
		if y.IsClosed() {
			continue
		}
		live = append(live, y)
		if best == nil || y.NumStreams() < best.NumStreams() {
			best = y
		}
	}
	p.conns = live
	if best != nil && (best.NumStreams() == 0 || len(live) == connections || p.dialing != nil) {
		return best, nil
	}
	if p.dialing != nil {
		return nil, p.dialing
	}
	p.dialing = make(chan struct{})
	return nil, nil
}

func (p *pool) drop(y *yamux.Session) {
	y.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.conns {
		if o == y {
			p.conns = append(p.conns[:i], p.conns[i+1:]...)
			return
		}
	}
}

// grow dials one more connection for a pool whose dialing mark the caller holds.
func (c *Client) grow(ctx context.Context, e endpoint, p *pool) error {
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var y *yamux.Session
	conn, err := c.connect(dctx, e.address, c.auth.clientTLS(e.session, nil))
	if err == nil {
		if y, err = yamux.Client(conn, muxConfig()); err != nil {
			conn.Close()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.dialing)
	p.dialing = nil
	if err == nil {
		p.conns = append(p.conns, y)
		return nil
	}
	if len(p.conns) > 0 { // the others still serve
		return nil
	}
	return err
}

func (c *Client) connect(ctx context.Context, address string, config *tls.Config) (*tls.Conn, error) {
	raw, err := c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	c.KeepAliveInterval = keepAlive
	c.ConnectionWriteTimeout = keepAlive
	c.StreamOpenTimeout = 0 // a slow callee is the caller's to judge
	c.StreamCloseTimeout = 30 * time.Second
	c.MaxStreamWindowSize = 1 << 20
	c.AcceptBacklog = 4096
	return c
}

// ---- calls

func (r *remote) Fetch(ctx context.Context, req *call.Request) (*call.Response, error) {
	o := &open{Verb: Fetch, Target: r.t, Head: req, Length: -1}
	var body io.ReadCloser
	if req.Body != nil && req.Body.Stream != nil {
		body, o.Stream, o.Length = req.Body.Stream, true, req.Body.Length
	}
	f, end, err := r.start(ctx, o)
	if err != nil {
		return nil, err
	}
	resp, err := r.answer(ctx, f, body, end)
	if err != nil {
		end()
		return nil, r.cause(ctx, err)
	}
	return resp, nil
}

// start opens the stream and sends the first frame. end closes the stream; it
// also runs when ctx ends, which is how a callee learns that the caller is gone.
func (r *remote) start(ctx context.Context, o *open) (*framed, func(), error) {
	conn, err := r.c.stream(ctx, endpoint{r.address, r.t.Session})
	if err != nil {
		return nil, nil, err
	}
	f := newFramed(conn)
	stop := context.AfterFunc(ctx, func() { closeNow(conn) })
	end := func() { stop(); closeNow(conn) }
	f.mu.Lock()
	err = writePreamble(f.w, callProtocol)
	f.mu.Unlock()
	if err == nil {
		err = f.write(frameOpen, o.encode(), true)
	}
	if err != nil {
		end()
		return nil, nil, r.cause(ctx, &LostError{err})
	}
	return f, end, nil
}

// closeNow ends both directions: the callee sees the end at once, and a local reader does not wait for it.
func closeNow(c net.Conn) {
	c.SetReadDeadline(time.Unix(1, 0))
	c.Close()
}

// answer reads up to the response head.
func (r *remote) answer(ctx context.Context, f *framed, body io.ReadCloser, end func()) (*call.Response, error) {
	k, p, err := f.read()
	if err != nil {
		return nil, &LostError{err}
	}
	if k == frameAccept {
		if body != nil {
			go sendBody(f, body)
		}
		if k, p, err = f.read(); err != nil {
			return nil, &LostError{err}
		}
	}
	switch k {
	case frameRefuse:
		return nil, decodeRefusal(p)
	case frameFail:
		return nil, decodeFailure(p)
	case frameHead:
	default:
		return nil, errFrame
	}
	h, err := decodeHead(p)
	if err != nil {
		return nil, err
	}
	resp := h.Response
	switch {
	case h.socket:
		resp.Socket = &socket{f: f, end: end}
	case h.stream:
		resp.Body = call.StreamBody(&bodyReader{f: f, end: end}, h.length)
	default:
		end()
	}
	return &resp, nil
}

func (r *remote) cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, call.ErrNotStarted) {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

func (r *remote) RPC(ctx context.Context) (call.Pipe, error) {
	f, end, err := r.start(ctx, &open{Verb: RPC, Target: r.t})
	if err != nil {
		return nil, err
	}
	k, p, err := f.read()
	switch {
	case err != nil:
		err = &LostError{err}
	case k == frameAccept:
		return &pipe{f: f, end: end}, nil
	case k == frameRefuse:
		err = decodeRefusal(p)
	case k == frameFail:
		err = decodeFailure(p)
	default:
		err = errFrame
	}
	end()
	return nil, r.cause(ctx, err)
}
