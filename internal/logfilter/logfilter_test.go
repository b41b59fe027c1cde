package logfilter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text                string
		celld, store, other slog.Level
	}{
		{"info", slog.LevelInfo, slog.LevelInfo, slog.LevelInfo},
		{"celld=info,store=debug", slog.LevelInfo, slog.LevelDebug, slog.LevelInfo},
		{"off,celld=info", slog.LevelInfo, off, off},
		{"store=debug", off, slog.LevelDebug, off},
		{"warn, store=trace", slog.LevelWarn, slog.LevelDebug, slog.LevelWarn},
		{"store", off, slog.LevelDebug, off},
		{"error,celld=off", off, slog.LevelError, slog.LevelError},
	} {
		d, err := Parse(c.text)
		if err != nil || d.level("celld") != c.celld || d.level("store") != c.store || d.level("other") != c.other {
			t.Errorf("%q: %v %v %v, %v", c.text, d.level("celld"), d.level("store"), d.level("other"), err)
		}
	}
	for _, bad := range []string{"celld=loud", "=info", "a=b=c", "two words", "a/b=info"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func TestCELLDLOGWins(t *testing.T) {
	if err := Setup(os.Stderr, []string{"RUST_LOG=nonsense=", "CELLD_LOG=error"}); err != nil {
		t.Error(err)
	}
	err := Setup(os.Stderr, []string{"RUST_LOG=celld=loud"})
	if err == nil || !strings.Contains(err.Error(), "RUST_LOG") {
		t.Error(err)
	}
}

func TestLinesAndTargets(t *testing.T) {
	var b bytes.Buffer
	d, _ := Parse("store=debug")
	l := Logger("store").With("node", "a")
	set(d, slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l.Debug("read", "event", "node_lease_read")
	Logger("celld").Error("hidden")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, b.String())
	}
	if line["msg"] != "read" || line["target"] != "store" || line["node"] != "a" || line["event"] != "node_lease_read" {
		t.Error(b.String())
	}
}

func TestWhatIsOffCostsNothing(t *testing.T) {
	set(Directives{rest: off}, slog.DiscardHandler)
	l := Logger("store")
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if l.Enabled(ctx, slog.LevelDebug) {
			t.Error("it is off")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHumanLines(t *testing.T) {
	var b bytes.Buffer
	l := slog.New(newHuman(&b, false)).With("target", "celld")
	l.Warn("lease late", "event", "x", "left", "2s")
	l.With("cell", "Room:1").WithGroup("at").Info("two", "err", errors.New("a\nb\x1b[2J"), "none", "")
	lines := strings.Split(b.String(), "\n")
	if !strings.HasSuffix(lines[0], "WARN  lease late  left=2s") || !strings.HasSuffix(lines[1], `INFO  two  cell=Room:1  at.err="a\nb\x1b[2J"`) || len(lines) != 3 {
		t.Errorf("%q", lines)
	}
}

func TestAFileGetsJSON(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Setup(f, nil); err != nil {
		t.Fatal(err)
	}
	defer Setup(os.Stderr, nil)
	Logger("celld").Info("hello", "event", "greeting")
	b, err := os.ReadFile(f.Name())
	if err != nil || !json.Valid(b) || !strings.Contains(string(b), `"event":"greeting"`) {
		t.Errorf("%s, %v", b, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("celld=info,store=debug")
	f.Fuzz(func(t *testing.T, s string) { Parse(s) })
}
