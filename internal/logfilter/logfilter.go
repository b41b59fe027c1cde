// Package logfilter decides what is logged, in the syntax of RUST_LOG:
//
//	info                        everything from info on
//	celld=info,store=debug      by target; celld also stands for all that is not named
//	store=debug                 this target and no other
//	warn,store=debug            a level for all others, and one for a target
//
// A target is a name that a logger was made with. Levels are off, error, warn,
// info, debug and trace (which is debug). A logger whose level is off costs
// one atomic load. On a terminal lines are for people, elsewhere JSON.
package logfilter

import (
	"context"
	"fmt"
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
	bare := false // a level for everything was given
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		target, level, named := strings.Cut(part, "=")
		if !named {
			if l, ok := parseLevel(target); ok {
				d.rest, bare = l, true
				continue
			}
			level = "debug" // a bare target means all of it
		}
		l, ok := parseLevel(level)
		if !ok || !isTarget(target) {
			return d, fmt.Errorf("%q is not target=level with a level of off, error, warn, info, debug or trace", part)
		}
		d.levels[target] = l
	}
	// The product's name stands for all of it, what Workers print included.
	if l, named := d.levels[DefaultTarget]; named && !bare {
		d.rest = l
	}
	return d, nil
}

func isTarget(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-:.", r)) {
			return false
		}
	}
	return s != ""
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
	return slog.New(&handler{level: levelOf(target), target: target})
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
	env := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	d := Default()
	for _, name := range []string{"CELLD_LOG", "RUST_LOG"} {
		if env[name] == "" {
			continue
		}
		var err error
		if d, err = Parse(env[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		break
	}
	set(d, formatFor(w, env))
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

// levelOf is the level of a target, which all its loggers share. The lock is held.
func levelOf(target string) *atomic.Int64 {
	l := state.targets[target]
	if l == nil {
		l = new(atomic.Int64)
		l.Store(int64(state.d.level(target)))
		state.targets[target] = l
	}
	return l
}

// formatFor chooses lines for people if w is a terminal.
func formatFor(w *os.File, env map[string]string) slog.Handler {
	st, err := w.Stat()
	if err == nil && st.Mode()&os.ModeCharDevice != 0 {
		return newHuman(w, env["NO_COLOR"] == "" && env["TERM"] != "dumb")
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
