package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celld/internal/bucket/mem"
	"celld/internal/deploy"
	"celld/internal/worker"
	"celld/internal/wrangler"
	"celld/runtime"
)

func build(t *testing.T, config, source string) *deploy.Deployment {
	t.Helper()
	dir := t.TempDir()
	for name, body := range map[string]string{"wrangler.jsonc": config, "index.ts": source, "a.txt": "text"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := wrangler.Load(dir, wrangler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := deploy.Build(t.Context(), []*wrangler.Config{cfg}, deploy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b.Deployment
}

const plain = `{"name":"web","main":"index.ts","compatibility_date":"2026-05-01"}`

const cells = `{"name":"web","main":"index.ts","compatibility_date":"2026-05-01",
	"durable_objects":{"bindings":[{"name":"C","class_name":"Cell"}]},"migrations":[{"tag":"1","new_sqlite_classes":["Cell"]}]}`

// What does not start in the real engine never becomes the active deployment.
func TestCheckInTheRealEngine(t *testing.T) {
	rt, err := worker.NewRuntime()
	if errors.Is(err, runtime.ErrNotBuilt) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := Checker{Runtime: rt, Options: worker.Options{HeapLimit: 64 << 20}}
	store := mem.New()
	good := build(t, cells, `import { DurableObject } from "cloudflare:workers"; import text from "./a.txt";
		export class Cell extends DurableObject {} export default { fetch: () => new Response(text) }`)
	if _, err := deploy.Publish(t.Context(), store, good, check); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, config, source, want string }{
		{"throws", plain, "const x: any = undefined;\nexport default { a: x.y.z }", "index.ts:2"},
		{"import", plain, `import x from "cloudflare:nowhere"; export default { fetch: () => x }`, "cloudflare:nowhere"},
		{"no class", cells, `export const Cell = 7; export default { fetch() {} }`, `class "Cell"`},
	} {
		_, err := deploy.Publish(t.Context(), store, build(t, c.config, c.source), check)
		if !errors.Is(err, deploy.ErrRejected) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if d, err := deploy.Load(t.Context(), store); err != nil || d.Version != good.Version {
		t.Errorf("the active deployment changed: %v", err)
	}
}

func TestBundle(t *testing.T) {
	d := build(t, cells, `import text from "./a.txt"; export class Cell {} ; export default { fetch: () => text }`)
	all := Bundles(d)
	b := all[0]
	if len(all) != 1 || b.Main != "index.js" || len(b.Modules) != 2 || b.Classes[0].Namespace != "Cell" || b.Bindings[0].Namespace != "Cell" || b.Version != d.Version {
		t.Errorf("%+v", b)
	}
}
