package difftest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// conversations are what a client says, in order. After each message it waits
// for one answer; "close CODE REASON" closes instead.
var conversations = map[string][]string{
	"plainEcho":   {"hello", "é", "close 3001 done"},
	"hibernating": {"hi", "count", "count", "tags", "ping", "count", "all there", "close bye"},
}

func TestWebSocketConversations(t *testing.T) {
	*only = "websocket"
	defer func() { *only = "" }()
	for _, w := range bundles(t) {
		reference, ours := startWorkerd(t, w), startCelld(t, w)
		for path, said := range conversations {
			want, got := converse(t, reference, path, said), converse(t, ours, path, said)
			if got != want {
				t.Errorf("%s\ncelld\n%s\nworkerd\n%s", path, got, want)
			}
			if !strings.Contains(want, "closed") {
				t.Errorf("%s: the conversation did not come to its end:\n%s", path, want)
			}
		}
	}
}

func converse(t *testing.T, e engine, path string, said []string) string {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, e.url+"/websocket/"+path, nil)
	if err != nil {
		return fmt.Sprintf("no socket: %v (%v)", err, resp)
	}
	defer c.CloseNow()
	var log strings.Builder
	for _, m := range said {
		if strings.HasPrefix(m, "close 3") {
			c.Write(ctx, websocket.MessageText, []byte("last"))
			_, b, err := c.Read(ctx)
			err2 := c.Close(3001, "done")
			fmt.Fprintf(&log, "%s %v, closed %v\n", b, err, err2)
			return log.String()
		}
		if err := c.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
			fmt.Fprintf(&log, "write: %v\n", err)
		}
		kind, b, err := c.Read(ctx)
		if err != nil {
			fmt.Fprintf(&log, "closed %d %v\n", websocket.CloseStatus(err), strings.TrimPrefix(err.Error(), "failed to get reader: "))
			break
		}
		fmt.Fprintf(&log, "%v %s\n", kind, b)
	}
	return log.String()
}
