package ingress

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/coder/websocket"

	"celld/internal/call"
)

const (
	// maxFrame is the longest WebSocket message, as on the platform; a longer one closes the socket with 1009.
	maxFrame = 32 << 20
	// ownerLost is the close code for a socket whose cell went away between frames.
	ownerLost = websocket.StatusServiceRestart // 1012
)

// splice joins the client's socket and the handler's until either closes.
func (h *Handler) splice(ctx context.Context, w http.ResponseWriter, r *http.Request, resp *call.Response) {
	if !upgrades(r) {
		resp.Socket.Abort(errors.New("the client did not ask for a WebSocket"))
		http.Error(w, "Expected \"Upgrade: websocket\" in the request", http.StatusUpgradeRequired)
		return
	}
	var protocols []string
	for _, f := range resp.Header {
		switch name := http.CanonicalHeaderKey(f.Name); {
		case name == "Sec-Websocket-Protocol":
			protocols = append(protocols, f.Value)
		case name == "Sec-Websocket-Accept" || name == "Sec-Websocket-Extensions" || hopByHop[name]:
		default:
			w.Header().Add(name, f.Value)
		}
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: protocols, InsecureSkipVerify: true})
	if err != nil {
		resp.Socket.Abort(err)
		return
	}
	conn.SetReadLimit(maxFrame)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	received := make(chan struct{})
	go func() {
		defer close(received)
		defer cancel()
		fromClient(ctx, conn, resp.Socket)
	}()
	toClient(ctx, conn, resp.Socket)
	cancel()
	conn.CloseNow()
	<-received
}

func fromClient(ctx context.Context, conn *websocket.Conn, s call.Socket) {
	for {
		kind, data, err := conn.Read(ctx)
		var closed websocket.CloseError
		switch {
		case errors.As(err, &closed):
			s.Send(ctx, call.Frame{Kind: call.Close, Code: int(closed.Code), Data: []byte(closed.Reason)})
			return
		case err != nil:
			s.Abort(err)
			return
		}
		f := call.Frame{Kind: call.Binary, Data: data}
		if kind == websocket.MessageText {
			f.Kind = call.Text
		}
		if err := s.Send(ctx, f); err != nil {
			return
		}
	}
}

func toClient(ctx context.Context, conn *websocket.Conn, s call.Socket) {
	for {
		f, err := s.Receive(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return
		case errors.Is(err, call.ErrUnproven):
			conn.Close(websocket.StatusInternalError, "durability unproven")
			return
		case err != nil:
			conn.Close(ownerLost, "owner unavailable")
			return
		case f.Kind == call.Close:
			conn.Close(websocket.StatusCode(f.Code), string(f.Data))
			return
		}
		kind := websocket.MessageBinary
		if f.Kind == call.Text {
			kind = websocket.MessageText
		}
		if err := conn.Write(ctx, kind, f.Data); err != nil {
			return
		}
	}
}
