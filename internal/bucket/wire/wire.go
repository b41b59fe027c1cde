// Package wire is what the cloud adapters share: an HTTP client with a pool of its
// own, the knowledge of whether a request left this process, and metadata as
// header values.
package wire

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"celld/internal/bucket"
)

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 50 * time.Second // below the 60 s after which common load balancers hang up
	idleConns   = 128              // more requests at once open more connections and close them again
)

// NewClient makes a client that shares no connection with any other, so that a
// queue of uploads cannot starve a lease renewal.
func NewClient() *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           dialer.DialContext,
			TLSHandshakeTimeout:   dialTimeout,
			MaxIdleConns:          idleConns,
			MaxIdleConnsPerHost:   idleConns,
			IdleConnTimeout:       idleTimeout,
			ExpectContinueTimeout: time.Second,
			DisableCompression:    true, // ranges are of the stored bytes
		},
		// A redirected write would be sent twice.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Sent remembers whether a request got a connection. One that did not has
// certainly done nothing.
type Sent struct{ started atomic.Bool }

// Track watches the requests made with the returned context.
func Track(ctx context.Context) (context.Context, *Sent) {
	s := &Sent{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { s.started.Store(true) },
	}), s
}

// Class is the class of a failure that came without an answer.
func (s *Sent) Class() error {
	if s.started.Load() {
		return nil
	}
	return bucket.ErrNotSent
}

// Answer is the class of a failure by HTTP status alone: which refusals are
// certain. 408, 429 and 5xx may come from something in the middle, after the
// request had passed it.
func Answer(status int) error {
	switch status {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return bucket.ErrPrecondition
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
		http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusNotImplemented, http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		return bucket.ErrNotSent
	default:
		return nil
	}
}

// EscapeMeta writes metadata so that it survives as a header value: everything
// but visible ASCII is percent-encoded, and so is the percent sign.
func EscapeMeta(value string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// UnescapeMeta undoes EscapeMeta. A value that somebody else wrote, and that is no
// such encoding, stays as it is.
func UnescapeMeta(value string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			b.WriteByte(value[i])
			continue
		}
		if i+2 >= len(value) {
			return value
		}
		high, low := nibble(value[i+1]), nibble(value[i+2])
		if high < 0 || low < 0 {
			return value
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	if !utf8.ValidString(b.String()) {
		return value
	}
	return b.String()
}

func nibble(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }
