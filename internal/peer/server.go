package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/hashicorp/yamux"

	"celld/internal/call"
	"celld/internal/id"
)

// Server answers other nodes.
type Server struct {
	auth *Auth
	log  *slog.Logger
	// Resolve finds the callee of a call, or an error that says why no handler was started.
	Resolve func(ctx context.Context, t Target) (call.Service, error)

	protocols map[string]func(context.Context, id.Session, net.Conn)

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// NewServer makes a server; log may be nil.
func NewServer(auth *Auth, resolve func(context.Context, Target) (call.Service, error), log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{auth: auth, log: log, Resolve: resolve, protocols: map[string]func(context.Context, id.Session, net.Conn){}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Handle registers what raw streams of a protocol are for. Before Serve only.
func (s *Server) Handle(protocol string, f func(ctx context.Context, from id.Session, c net.Conn)) {
	s.protocols[protocol] = f
}

// Serve accepts peers from l, which yields connections that begin with TLS,
// until l is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		s.wg.Go(func() { s.connection(c) })
	}
}

// Close ends every connection and waits for its handlers.
func (s *Server) Close() {
	s.cancel()
	s.wg.Wait()
}

func (s *Server) connection(raw net.Conn) {
	defer raw.Close()
	stop := context.AfterFunc(s.ctx, func() { raw.Close() })
	defer stop()
	conn := tls.Server(raw, s.auth.serverTLS())
	hctx, cancel := context.WithTimeout(s.ctx, dialTimeout)
	err := conn.HandshakeContext(hctx)
	cancel()
	if err == nil && conn.ConnectionState().NegotiatedProtocol == "" {
		err = errors.New("the peer named no protocol version")
	}
	if err != nil {
		s.log.Warn("peer refused", "event", "peer_refused", "remote", raw.RemoteAddr(), "err", err)
		return
	}
	from, err := sessionOf(conn.ConnectionState().PeerCertificates[0])
	if err != nil {
		return
	}
	y, err := yamux.Server(conn, muxConfig())
	if err != nil {
		return
	}
	defer y.Close()
	for {
		st, err := y.AcceptStream()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.stream(from, st) })
	}
}

func (s *Server) stream(from id.Session, st net.Conn) {
	defer st.Close()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	protocol, err := readPreamble(st)
	if err != nil {
		return
	}
	if protocol == callProtocol {
		s.call(ctx, cancel, newFramed(st))
		return
	}
	if f := s.protocols[protocol]; f != nil {
		f(ctx, from, st)
	}
}

// call runs one call to its end.
func (s *Server) call(ctx context.Context, cancel context.CancelFunc, f *framed) {
	k, p, err := f.read()
	if err != nil || k != frameOpen {
		return
	}
	o, err := decodeOpen(p)
	if err != nil {
		f.write(frameRefuse, encodeRefusal(&RefusedError{Unknown, err.Error()}), true)
		return
	}
	svc, err := s.Resolve(ctx, o.Target)
	if err != nil {
		f.write(frameRefuse, encodeRefusal(err), true)
		return
	}
	switch o.Verb {
	case Fetch:
		s.fetch(ctx, cancel, f, o, svc)
	case RPC:
		s.rpc(ctx, cancel, f, svc)
	default:
		f.write(frameRefuse, encodeRefusal(&RefusedError{Unknown, "unknown verb"}), true)
	}
}

func (s *Server) fetch(ctx context.Context, cancel context.CancelFunc, f *framed, o *open, svc call.Service) {
	// Accept leaves at once only where the caller waits for it with a body; else it rides with the answer.
	if f.write(frameAccept, nil, o.Stream) != nil {
		return
	}
	in := newInbound(f, cancel)
	if o.Stream {
		o.Head.Body = call.StreamBody(in, o.Length)
	}
	defer in.stop()
	go in.run(o.Stream)

	resp, err := svc.Fetch(ctx, o.Head)
	switch {
	case err != nil && errors.Is(err, call.ErrNotStarted) && !in.touched():
		f.write(frameRefuse, encodeRefusal(err), true)
	case err != nil:
		f.write(frameFail, encodeFailure(err), true)
	default:
		s.respond(ctx, f, in, resp)
	}
}

func (s *Server) respond(ctx context.Context, f *framed, in *inbound, resp *call.Response) {
	streams := resp.Body != nil && resp.Body.Stream != nil
	if err := f.write(frameHead, encodeHead(resp), true); err != nil {
		if streams {
			resp.Body.Stream.Close()
		}
		if resp.Socket != nil {
			resp.Socket.Abort(err)
		}
		return
	}
	switch {
	case resp.Socket != nil:
		in.socket(resp.Socket)
		pumpSocket(ctx, f, resp.Socket)
	case streams:
		stop := context.AfterFunc(ctx, func() { resp.Body.Stream.Close() })
		defer stop()
		sendBody(f, resp.Body.Stream)
	}
	in.finish(ctx)
}

// pumpSocket sends a cell's frames to the caller until its socket ends.
func pumpSocket(ctx context.Context, f *framed, s call.Socket) {
	out := &socket{f: f, end: func() {}}
	for {
		fr, err := s.Receive(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				f.write(frameFail, encodeFailure(err), true)
			}
			return
		}
		if out.Send(ctx, fr) != nil || fr.Kind == call.Close {
			return
		}
	}
}

func (s *Server) rpc(ctx context.Context, cancel context.CancelFunc, f *framed, svc call.Service) {
	p, err := svc.RPC(ctx)
	if err != nil {
		if errors.Is(err, call.ErrNotStarted) {
			f.write(frameRefuse, encodeRefusal(err), true)
		} else {
			f.write(frameFail, encodeFailure(err), true)
		}
		return
	}
	if f.write(frameAccept, nil, true) != nil {
		p.Close(errors.New("the caller is gone"))
		return
	}
	outer := &pipe{f: f, end: cancel}
	var wg sync.WaitGroup
	wg.Go(func() { copyPipe(ctx, p, outer) })
	copyPipe(ctx, outer, p)
	cancel()
	f.rw.Close()
	wg.Wait()
}

// copyPipe passes messages on until src ends, and then tells dst how.
func copyPipe(ctx context.Context, dst, src call.Pipe) {
	for {
		msg, err := src.Receive(ctx)
		if errors.Is(err, io.EOF) {
			dst.Close(nil)
			return
		}
		if err == nil {
			err = dst.Send(ctx, msg)
		}
		if err != nil {
			dst.Close(err)
			return
		}
	}
}
