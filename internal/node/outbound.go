package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"celld/internal/call"
)

const (
	// maxRedirects is how many a fetch() follows, as on the platform.
	maxRedirects = 20
	// maxOutboundFrame is the longest WebSocket message from outside.
	maxOutboundFrame = 32 << 20
)

// outbound is what fetch() of the Workers reaches: the network of this machine.
type outbound struct{ follow, manual *http.Client }

func newOutbound() *outbound {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	limit := func(_ *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("Too many redirects; https://developers.cloudflare.com/workers/platform/limits/#response-limits-1")
		}
		return nil
	}
	stop := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &outbound{&http.Client{Transport: t, CheckRedirect: limit}, &http.Client{Transport: t, CheckRedirect: stop}}
}

func (o *outbound) RPC(context.Context) (call.Pipe, error) {
	return nil, errors.New("RPC is for bindings, not for URLs")
}

func (o *outbound) Fetch(ctx context.Context, r *call.Request) (*call.Response, error) {
	if r.Upgrade {
		return o.websocket(ctx, r)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, nil)
	if err != nil {
		return nil, err
	}
	setBody(req, r.Body)
	for _, f := range r.Header {
		switch strings.ToLower(f.Name) {
		case "host":
			req.Host = f.Value
		case "content-length", "transfer-encoding", "connection": // the transport's own
		default:
			req.Header.Add(f.Name, f.Value)
		}
	}
	client := o.follow
	if r.Redirect == "manual" {
		client = o.manual
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, networkError(err)
	}
	return response(resp), nil
}

func setBody(req *http.Request, b *call.Body) {
	switch {
	case b == nil:
	case b.Stream != nil:
		req.Body, req.ContentLength = b.Stream, b.Length
	default:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(b.Bytes)), int64(len(b.Bytes))
		body := b.Bytes // a redirect that keeps the method sends it again
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
}

// networkError is what fetch() rejects with: the cause, not Go's wrapping of it.
func networkError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &call.Exception{Name: "Error", Message: "Network connection lost.", Retryable: true, Stack: err.Error()}
}

func response(resp *http.Response) *call.Response {
	r := &call.Response{Status: resp.StatusCode, StatusText: strings.TrimPrefix(resp.Status, fmt.Sprint(resp.StatusCode, " "))}
	for name, values := range resp.Header {
		for _, v := range values {
			r.Header = append(r.Header, call.Field{Name: name, Value: v})
		}
	}
	if resp.Body != nil && resp.Body != http.NoBody {
		r.Body = call.StreamBody(resp.Body, resp.ContentLength)
	}
	return r
}

func (o *outbound) websocket(ctx context.Context, r *call.Request) (*call.Response, error) {
	header := http.Header{}
	var protocols []string
	for _, f := range r.Header {
		switch name := http.CanonicalHeaderKey(f.Name); name {
		case "Upgrade", "Connection", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions", "Host":
		case "Sec-Websocket-Protocol":
			for p := range strings.SplitSeq(f.Value, ",") {
				protocols = append(protocols, strings.TrimSpace(p))
			}
		default:
			header.Add(name, f.Value)
		}
	}
	conn, resp, err := websocket.Dial(ctx, r.URL, &websocket.DialOptions{HTTPHeader: header, Subprotocols: protocols})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return response(resp), nil // the server answered instead
		}
		return nil, networkError(err)
	}
	conn.SetReadLimit(maxOutboundFrame)
	out := &call.Response{Status: http.StatusSwitchingProtocols, Socket: &outboundSocket{conn: conn}}
	if p := conn.Subprotocol(); p != "" {
		out.Header = append(out.Header, call.Field{Name: "Sec-WebSocket-Protocol", Value: p})
	}
	return out, nil
}

// outboundSocket is a WebSocket that a Worker opened to the outside.
type outboundSocket struct {
	conn   *websocket.Conn
	closed bool
}

func (s *outboundSocket) Receive(ctx context.Context) (call.Frame, error) {
	if s.closed {
		return call.Frame{}, io.EOF
	}
	kind, data, err := s.conn.Read(ctx)
	var ended websocket.CloseError
	switch {
	case errors.As(err, &ended):
		s.closed = true
		return call.Frame{Kind: call.Close, Code: int(ended.Code), Data: []byte(ended.Reason)}, nil
	case err != nil:
		return call.Frame{}, err
	case kind == websocket.MessageText:
		return call.Frame{Kind: call.Text, Data: data}, nil
	}
	return call.Frame{Kind: call.Binary, Data: data}, nil
}

func (s *outboundSocket) Send(ctx context.Context, f call.Frame) error {
	switch f.Kind {
	case call.Text:
		return s.conn.Write(ctx, websocket.MessageText, f.Data)
	case call.Binary:
		return s.conn.Write(ctx, websocket.MessageBinary, f.Data)
	}
	return s.conn.Close(websocket.StatusCode(f.Code), string(f.Data))
}

func (s *outboundSocket) Abort(error) { s.conn.CloseNow() }
