package worker

import (
	"context"
	"strings"
	"sync"
	"unicode/utf8"

	"celld/internal/call"
	"celld/internal/hostcall"
)

// reply is one answer that a caller waits for. It is settled once.
type reply struct {
	once sync.Once
	done chan struct{}
	resp *call.Response
	err  error
}

func newReply() *reply { return &reply{done: make(chan struct{})} }

func (r *reply) settle(resp *call.Response, err error) {
	settled := false
	r.once.Do(func() {
		r.resp, r.err = resp, err
		settled = true
		close(r.done)
	})
	if !settled && resp != nil {
		discard(resp)
	}
}

func (r *reply) fail(err error) { r.settle(nil, err) }

// wait returns the answer, or the caller's end if that comes first.
func (r *reply) wait(ctx context.Context) (*call.Response, error) {
	select {
	case <-r.done:
		return r.resp, r.err
	default:
	}
	select {
	case <-r.done:
		return r.resp, r.err
	case <-ctx.Done():
		err := context.Cause(ctx)
		r.fail(err)
		<-r.done
		return r.resp, r.err
	}
}

// discard lets go of a response that nobody will read.
func discard(resp *call.Response) {
	if resp.Body != nil && resp.Body.Stream != nil {
		resp.Body.Stream.Close()
	}
	if resp.Socket != nil {
		resp.Socket.Abort(errEnded)
	}
}

// ---- heads, as they cross to JavaScript and back

// fieldSeparator stands between names and values of headers: it can be in neither.
const fieldSeparator = "\n"

// packFields is headers as one string: name, value, name, value, …
func packFields(fields []call.Field) string {
	n := 0
	for _, f := range fields {
		n += len(f.Name) + len(f.Value) + 2
	}
	var b strings.Builder
	b.Grow(n)
	for k, f := range fields {
		if k > 0 {
			b.WriteString(fieldSeparator)
		}
		b.WriteString(f.Name)
		b.WriteString(fieldSeparator)
		b.WriteString(headerText(f.Value))
	}
	return b.String()
}

func unpackFields(s string) []call.Field {
	if s == "" {
		return nil
	}
	fields := make([]call.Field, 0, strings.Count(s, fieldSeparator)/2+1)
	for {
		name, rest, ok := strings.Cut(s, fieldSeparator)
		if !ok {
			return fields
		}
		value, next, more := strings.Cut(rest, fieldSeparator)
		fields = append(fields, call.Field{Name: name, Value: value})
		if !more {
			return fields
		}
		s = next
	}
}

// headerText is a header value as JavaScript sees it: UTF-8 where it is that, else Latin-1.
func headerText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// responseValue is a response on its way into JavaScript:
// [status, statusText, headers, body or undefined, stream id or 0, socket id or 0].
func (a *actor) responseValue(resp *call.Response) hostcall.Value {
	items := []hostcall.Value{hostcall.Num(float64(resp.Status)), hostcall.Text(resp.StatusText), hostcall.Text(packFields(resp.Header)), {}, hostcall.Num(0), hostcall.Num(0)}
	switch {
	case resp.Socket != nil:
		items[5] = hostcall.Num(float64(a.addSocket(resp.Socket)))
	case resp.Body == nil:
	case resp.Body.Stream != nil:
		items[4] = hostcall.Num(float64(a.addIn(resp.Body.Stream)))
	default:
		items[3] = hostcall.Buf(resp.Body.Bytes)
	}
	return hostcall.Value{Kind: hostcall.Tuple, Items: items}
}
