package dev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"celld/internal/deploy"
)

// world is one Run under test.
type world struct {
	*testing.T
	dir    string
	events chan Event
	refuse chan error
}

func start(t *testing.T, files ...string) *world {
	w := &world{T: t, dir: t.TempDir(), events: make(chan Event, 100), refuse: make(chan error, 1)}
	for i := 0; i < len(files); i += 2 {
		w.write(files[i], files[i+1])
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	publish := func(_ context.Context, d *deploy.Deployment) error {
		select {
		case err := <-w.refuse:
			return err
		default:
			return nil
		}
	}
	go func() { done <- Run(ctx, Options{Configs: []string{w.dir}}, publish, func(e Event) { w.events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) write(name, body string) {
	w.Helper()
	file := filepath.Join(w.dir, name)
	os.MkdirAll(filepath.Dir(file), 0o755)
	if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
		w.Fatal(err)
	}
}

// replace writes as careful editors do.
func (w *world) replace(name, body string) {
	w.Helper()
	w.write(name+"~new", body)
	if err := os.Rename(filepath.Join(w.dir, name+"~new"), filepath.Join(w.dir, name)); err != nil {
		w.Fatal(err)
	}
}

// next is the next event that is no notice and no unchanged build.
func (w *world) next() Event {
	w.Helper()
	for {
		select {
		case e := <-w.events:
			if e.Notice == "" && !e.Unchanged {
				return e
			}
		case <-time.After(time.Minute):
			w.Fatal("no event")
		}
	}
}

func (w *world) published(want string) {
	w.Helper()
	e := w.next()
	if e.Published == nil {
		w.Fatalf("not published: %v", e.Err)
	}
	s := e.Published.Default()
	if body := string(e.Published.Body(*s.Module(s.Main))); !strings.Contains(body, want) {
		w.Fatalf("the code lacks %q:\n%s", want, body)
	}
}

func (w *world) fails(want string) {
	w.Helper()
	e := w.next()
	if e.Err == nil || !strings.Contains(e.Err.Error(), want) {
		w.Fatalf("got %+v, want a failure with %q", e, want)
	}
}

const cfg = `{"name":"web","main":"src/i.ts","compatibility_date":"2026-01-02"}`

func code(s string) string { return "import x from './x'; export default { a: x, b: '" + s + "' }" }

func TestChangesAreFollowed(t *testing.T) {
	w := start(t, "wrangler.jsonc", cfg, "src/i.ts", code("one"), "src/x.ts", "export default 'x1'")
	w.published("one")
	w.write("src/i.ts", code("two"))
	w.published("two")
	w.replace("src/x.ts", "export default 'x2'")
	w.published("x2")
	w.replace("wrangler.jsonc", strings.Replace(cfg, "}", `,"define":{"NOPE":"1"}}`, 1)) // an equal bundle
	w.write("src/i.ts", code("three"))
	w.published("three")
	w.write(".dev.vars", "A=1")
	w.published("three")
}

func TestFailuresKeepTheOldCode(t *testing.T) {
	w := start(t, "wrangler.jsonc", cfg, "src/i.ts", code("one"), "src/x.ts", "export default 'x1'")
	w.published("one")
	w.write("src/i.ts", "export default {")
	w.fails("src/i.ts:1:")
	w.write("src/i.ts", code("two"))
	w.published("two")
	w.write("wrangler.jsonc", `{"nmae":"x"}`)
	w.fails("did you mean")
	w.write("wrangler.jsonc", cfg)
	w.write("src/i.ts", "import './later'; "+code("three"))
	w.fails("./later")
	w.write("src/later.ts", "export {}")
	w.published("three")
	w.refuse <- errors.New("top level threw")
	w.write("src/i.ts", code("four"))
	w.fails("top level threw")
	w.write("src/i.ts", code("five"))
	w.published("five")
}

func TestRemovedAndRestored(t *testing.T) {
	w := start(t, "wrangler.jsonc", cfg, "src/i.ts", code("one"), "src/x.ts", "export default 'x1'")
	w.published("one")
	os.Remove(filepath.Join(w.dir, "src/x.ts"))
	w.fails("./x")
	w.write("src/x.ts", "export default 'x2'")
	w.published("x2")
}

func TestOnce(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "wrangler.jsonc"), []byte(cfg), 0o644)
	err := Run(t.Context(), Options{Configs: []string{dir}, Once: true}, nil, func(Event) {})
	if err == nil || !strings.Contains(err.Error(), "src/i.ts") {
		t.Errorf("a failed build with Once: %v", err)
	}
}
