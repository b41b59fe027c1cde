package logfilter

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// human writes lines for people: time, level, text, then the attributes.
type human struct {
	mu     *sync.Mutex
	w      io.Writer
	colour bool
	group  string // "outer.inner."
	attrs  []slog.Attr
}

func newHuman(w io.Writer, colour bool) *human {
	return &human{mu: new(sync.Mutex), w: w, colour: colour}
}

func (h *human) Enabled(context.Context, slog.Level) bool { return true }

func (h *human) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

func (h *human) WithAttrs(a []slog.Attr) slog.Handler {
	c := *h
	c.attrs = slices.Clip(h.attrs)
	for _, a := range a {
		a.Key = h.group + a.Key
		c.attrs = append(c.attrs, a)
	}
	return &c
}

var colours = map[slog.Level]string{slog.LevelDebug: "\x1b[2m", slog.LevelInfo: "\x1b[32m", slog.LevelWarn: "\x1b[33m", slog.LevelError: "\x1b[31m"}

func (h *human) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Time.Format("15:04:05.000 "))
	level := fmt.Sprintf("%-5s", r.Level)
	if h.colour {
		level = colours[r.Level] + level + "\x1b[0m"
	}
	b.WriteString(level + " " + r.Message)
	for _, a := range h.attrs {
		writeAttr(&b, a)
	}
	r.Attrs(func(a slog.Attr) bool {
		a.Key = h.group + a.Key
		writeAttr(&b, a)
		return true
	})
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}

// writeAttr leaves out what is for machines, and what is empty. A value stays on its line.
func writeAttr(b *strings.Builder, a slog.Attr) {
	v := a.Value.Resolve().String()
	if a.Key == "event" || a.Key == "target" || v == "" {
		return
	}
	if strings.ContainsFunc(v, unicode.IsControl) {
		v = strconv.Quote(v)
	}
	b.WriteString("  " + a.Key + "=" + v)
}
