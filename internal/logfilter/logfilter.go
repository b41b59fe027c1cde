// Package logfilter decides what is logged, in the syntax of RUST_LOG:
//
//	info                        everything from info on
//	celld=info,store=debug      by target; others are off
//	warn,store=debug            a level for all others, and one for a target
//
// A target is a name that a logger was made with. Levels are off, error, warn,
// info, debug and trace (which is debug). A logger whose level is off costs
// one atomic load. On a terminal lines are for people, elsewhere JSON.
package logfilter

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// off is above every level.
const off = slog.Level(100)

// DefaultTarget is the target of most of the product.
const DefaultTarget = "celld"

// Directives are a parsed filter.
type Directives struct {
	rest   slog.Level // of targets that are not named
	levels map[string]slog.Level
}

// Default is what holds when nobody said anything.
func Default() Directives { return Directives{rest: slog.LevelInfo} }

// Parse reads a filter.
func Parse(text string) (Directives, error) {
	d := Directives{rest: off, levels: map[string]slog.Level{}}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		target, level, named := strings.Cut(part, "=")
		if !named {
			if l, ok := parseLevel(target); ok {
				d.rest = l
				continue
			}
			d.levels[target] = slog.LevelDebug // a bare target means all of it
			continue
		}
		l, ok := parseLevel(level)
		if !ok || target == "" {
			return d, fmt.Errorf("%q is not target=level with a level of off, error, warn, info, debug or trace", part)
		}
		d.levels[target] = l
	}
	return d, nil
}

func parseLevel(s string) (slog.Level, bool) {
	switch strings.ToLower(s) {
	case "off":
		return off, true
	case "error":
		return slog.LevelError, true
	case "warn", "warning":
		return slog.LevelWarn, true
	case "info":
		return slog.LevelInfo, true
	case "debug", "trace":
		return slog.LevelDebug, true
	}
	return 0, false
}

func (d Directives) level(target string) slog.Level {
	if l, ok := d.levels[target]; ok {
		return l
	}
	return d.rest
}

// state is shared by all loggers of the process.
var state struct {
	mu      sync.Mutex
	d       Directives
	out     slog.Handler
	targets map[string]*atomic.Int64 // level by target
}

// Logger is the logger of a target. Loggers may be made before Setup.
func Logger(target string) *slog.Logger {
	state.mu.Lock()
	defer state.mu.Unlock()
	start()
	l := state.targets[target]
	if l == nil {
		l = new(atomic.Int64)
		l.Store(int64(state.d.level(target)))
		state.targets[target] = l
	}
	return slog.New(&handler{level: l, target: target})
}

func start() {
	if state.targets == nil {
		state.targets = map[string]*atomic.Int64{}
		state.d = Default()
		state.out = slog.NewTextHandler(os.Stderr, nil)
	}
}

// Setup takes the filter from the environment (CELLD_LOG, else RUST_LOG; the
// last entry of a name counts) and sends the lines to w.
func Setup(w *os.File, environ []string) error {
	var name, text string
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		if v != "" && (k == "CELLD_LOG" || k == "RUST_LOG" && name != "CELLD_LOG") {
			name, text = k, v
		}
	}
	d := Default()
	if text != "" {
		var err error
		if d, err = Parse(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	set(d, formatFor(w))
	return nil
}

func set(d Directives, out slog.Handler) {
	state.mu.Lock()
	defer state.mu.Unlock()
	start()
	state.d, state.out = d, out
	for t, l := range state.targets {
		l.Store(int64(d.level(t)))
	}
	slog.SetDefault(slog.New(&handler{level: levelOf(DefaultTarget), target: DefaultTarget}))
}

func levelOf(target string) *atomic.Int64 {
	l := state.targets[target]
	if l == nil {
		l = new(atomic.Int64)
		l.Store(int64(state.d.level(target)))
		state.targets[target] = l
	}
	return l
}

func formatFor(w *os.File) slog.Handler {
	st, err := w.Stat()
	if err == nil && st.Mode()&os.ModeCharDevice != 0 {
		return newHuman(w, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
	}
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})
}

// handler filters by its target's level and passes on to the one output.
type handler struct {
	level  *atomic.Int64
	target string
	wrap   []func(slog.Handler) slog.Handler // groups and attributes, applied to the output of the moment
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return int64(l) >= h.level.Load() }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	state.mu.Lock()
	out := state.out
	state.mu.Unlock()
	out = out.WithAttrs([]slog.Attr{slog.String("target", h.target)})
	for _, w := range h.wrap {
		out = w(out)
	}
	return out.Handle(ctx, r)
}

func (h *handler) with(f func(slog.Handler) slog.Handler) slog.Handler {
	c := *h
	c.wrap = append(h.wrap[:len(h.wrap):len(h.wrap)], f)
	return &c
}

func (h *handler) WithAttrs(a []slog.Attr) slog.Handler {
	return h.with(func(o slog.Handler) slog.Handler { return o.WithAttrs(a) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func(o slog.Handler) slog.Handler { return o.WithGroup(name) })
}

// human writes lines for people: time, level, text, then the attributes.
type human struct {
	mu     *sync.Mutex
	w      io.Writer
	colour bool
	attrs  []slog.Attr
}

func newHuman(w io.Writer, colour bool) *human {
	return &human{mu: new(sync.Mutex), w: w, colour: colour}
}

func (h *human) Enabled(context.Context, slog.Level) bool { return true }
func (h *human) WithGroup(string) slog.Handler            { return h }
func (h *human) WithAttrs(a []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], a...)
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
	add := func(a slog.Attr) bool {
		if a.Key != "event" && a.Key != "target" && a.Value.String() != "" {
			fmt.Fprintf(&b, "  %s=%v", a.Key, a.Value)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}
