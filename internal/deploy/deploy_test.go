package deploy

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celld/internal/bucket"
	"celld/internal/bucket/mem"
	"celld/internal/wrangler"
)

// project writes files (NAME, body, NAME, body, …) and returns their directory.
func project(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i+1 < len(files); i += 2 {
		file := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tryBuild(t testing.TB, opts Options, dirs ...string) (*Built, error) {
	t.Helper()
	var cfgs []*wrangler.Config
	for _, dir := range dirs {
		cfg, err := wrangler.Load(dir, wrangler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cfgs = append(cfgs, cfg)
	}
	return Build(t.Context(), cfgs, opts)
}

func build(t testing.TB, dirs ...string) *Built {
	t.Helper()
	b, err := tryBuild(t, Options{}, dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func config(more string) string {
	return `{"name":"web","main":"src/index.ts","compatibility_date":"2026-01-02"` + more + `}`
}

const hello = `export default { fetch(): Response { return new Response("hi") } }`

func TestBundle(t *testing.T) {
	dir := project(t, "wrangler.jsonc", config(`,"define":{"VERSION":"\"v7\""},"rules":[{"type":"Text","globs":["**/*.md"],"fallthrough":true}]`),
		"src/index.ts", `
			import { thing } from "pkg";
			import text from "./a.txt";
			import md from "../docs/b.md";
			import data from "./c.bin";
			import wasm from "./d.wasm?module";
			import json from "./e.json";
			import { DurableObject } from "cloudflare:workers";
			import fs from "node:fs";
			export class Cell extends DurableObject {}
			export default { async fetch(r: Request): Promise<Response> {
				const late = await import("./late");
				return Response.json([thing, text, md, data, wasm, json, VERSION, late, fs, process.env.NODE_ENV]) } }`,
		"src/late.ts", `export const late: number = 1;`,
		"src/a.txt", "text", "docs/b.md", "# md", "src/c.bin", "\x00\x01", "src/d.wasm", "\x00asm", "src/e.json", `{"j":1}`,
		"node_modules/pkg/package.json", `{"name":"pkg","exports":{"workerd":"./w.js","default":"./d.js"}}`,
		"node_modules/pkg/w.js", `export const thing = "from workerd";`, "node_modules/pkg/d.js", `export const thing = "default";`)
	b := build(t, dir)
	s := b.Default()
	types := map[ModuleType]string{}
	for _, m := range s.Modules {
		types[m.Type] = string(b.Body(m))
	}
	code := types[ESModule]
	for _, want := range []string{"from workerd", `"v7"`, `"production"`, `from "cloudflare:workers"`, `from "node:fs"`, "late"} {
		if !strings.Contains(code, want) {
			t.Errorf("the bundle lacks %s:\n%s", want, code)
		}
	}
	if types[Text] == "" || types[Data] != "\x00\x01" || types[CompiledWasm] != "\x00asm" || len(s.Modules) != 5 {
		t.Errorf("modules: %q", types)
	}
	main := s.Module(s.Main)
	if main == nil || main.Name != "index.js" || !strings.Contains(string(b.SourceMap(*main)), `"src/index.ts"`) {
		t.Errorf("main %+v", main)
	}
	for _, file := range []string{"wrangler.jsonc", "src/index.ts", "src/late.ts", "src/a.txt", "src/d.wasm", "node_modules/pkg/w.js"} {
		if !strings.Contains(strings.Join(b.Inputs, "\n")+"\n", filepath.Join(dir, file)+"\n") {
			t.Errorf("inputs lack %s: %v", file, b.Inputs)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	for _, c := range []struct {
		name, config, source string
		want                 []string
	}{
		{"syntax", config(""), "export default {\n  fetch() { return ] }\n}", []string{"src/index.ts:2:19", "Unexpected \"]\"", "^"}},
		{"import", config(""), "import x from './nowhere'; export default x", []string{"src/index.ts:1:14", "./nowhere"}},
		{"node module", config(""), "import p from 'path'; export default p", []string{"src/index.ts:1:14", "nodejs_compat"}},
		{"class", config(`,"durable_objects":{"bindings":[{"name":"C","class_name":"Cell"}]}`), hello, []string{`class "Cell"`, "wrangler.jsonc:1:", "default"}},
		{"no exports", config(""), "addEventListener('fetch', () => {})", []string{"exports nothing", "export default"}},
		{"no date", `{"name":"web","main":"src/index.ts"}`, hello, []string{"compatibility_date"}},
		{"no main", `{"name":"web","main":"src/other.ts","compatibility_date":"2026-01-02"}`, hello, []string{"src/other.ts", "is not there"}},
		{"unsupported", config(`,"queues":{"producers":[{"binding":"Q","queue":"q"}]}`), hello, []string{`"queues" is not supported yet`}},
		{"build command", config(`,"build":{"command":"exit 3"}`), hello, []string{"exit 3", "exit status 3"}},
		{"no_bundle", config(`,"no_bundle":true`), hello, []string{"needs the bundler"}},
		{"far class", config(`,"durable_objects":{"bindings":[{"name":"C","class_name":"Cell","script_name":"other"}]}`), hello, []string{`Worker "other"`, "-c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := project(t, "wrangler.jsonc", c.config, "src/index.ts", c.source)
			b, err := tryBuild(t, Options{}, dir)
			if err == nil {
				t.Fatal("built")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
			if c.name == "import" && !strings.Contains(strings.Join(b.Dirs, " "), filepath.Join(dir, "src")) {
				t.Errorf("nobody watches for the missing file: %v", b.Dirs)
			}
			if len(b.Inputs) == 0 {
				t.Error("a failed build tells nothing to watch")
			}
		})
	}
}

func TestNoBundle(t *testing.T) {
	dir := project(t, "wrangler.jsonc", `{"name":"web","main":"out/app/index.js","base_dir":"out","no_bundle":true,"compatibility_date":"2026-01-02"}`,
		"out/app/index.js", `import "../lib/x.mjs"; export default {}`, "out/lib/x.mjs", "1", "out/t.txt", "t", "out/x.cjs", "2", "out/readme.md", "no", "out/node_modules/a.js", "no")
	b := build(t, dir)
	got := ""
	for _, m := range b.Default().Modules {
		got += m.Name + ":" + string(m.Type) + " "
	}
	if got != "app/index.js:esm lib/x.mjs:esm t.txt:text x.cjs:cjs " || b.Default().Main != "app/index.js" {
		t.Errorf("modules %s, main %s", got, b.Default().Main)
	}
}

func TestAdditionalModulesStayOutside(t *testing.T) {
	dir := project(t, "wrangler.jsonc", config(`,"find_additional_modules":true`),
		"src/index.ts", `import a from "./lib/a.mjs"; const n = "a"; export default { fetch: () => [a, import("./lib/" + n + ".mjs")] }`, "src/lib/a.mjs", "export default 1")
	b := build(t, dir)
	main := b.Default().Module("index.js")
	if b.Default().Module("lib/a.mjs") == nil || main == nil || !strings.Contains(string(b.Body(*main)), `from "./lib/a.mjs"`) {
		t.Errorf("%+v\n%s", b.Default().Modules, b.Body(*main))
	}
}

func TestBuiltinsWithNodeCompat(t *testing.T) {
	dir := project(t, "wrangler.jsonc", config(`,"compatibility_flags":["nodejs_compat"]`),
		"src/index.ts", `import path from "path"; import old from "old"; export default { fetch: () => [path, old] }`,
		"node_modules/old/package.json", `{"name":"old","main":"i.js"}`, "node_modules/old/i.js", `const b = require("buffer"); module.exports = b.Buffer;`)
	b := build(t, dir)
	code := string(b.Body(*b.Default().Module("index.js")))
	if !strings.Contains(code, `from "node:path"`) || !strings.Contains(code, `from "node:buffer"`) || strings.Contains(code, "Dynamic require") && strings.Contains(code, `__require("buffer")`) {
		t.Error(code)
	}
}

func TestVersionCoversEverything(t *testing.T) {
	make := func(cfg, src string) string {
		return build(t, project(t, "wrangler.jsonc", cfg, "src/index.ts", src)).Version
	}
	base := make(config(""), hello)
	if again := make(config(""), hello); again != base {
		t.Errorf("equal sources make %s and %s", base, again)
	}
	for _, other := range []string{
		make(config(""), strings.Replace(hello, "hi", "ho", 1)), make(config(`,"vars":{"A":"1"}`), hello),
		make(config(`,"compatibility_flags":["x"]`), hello), make(strings.Replace(config(""), "2026", "2025", 1), hello),
	} {
		if other == base {
			t.Error("a change is not seen in the version")
		}
	}
}

func TestVarsAndDevVars(t *testing.T) {
	dir := project(t, "wrangler.jsonc", config(`,"vars":{"A":"top","B":{"x":[1]},"N":null}`), "src/index.ts", hello, ".dev.vars", "A=dev\nSECRET=s")
	find := func(b *Built, name string) Binding {
		for _, x := range b.Default().Bindings {
			if x.Name == name {
				return x
			}
		}
		return Binding{}
	}
	plain := build(t, dir)
	if find(plain, "A").Text != "top" || string(find(plain, "B").JSON) != `{"x":[1]}` || find(plain, "N").Type != JSONValue || find(plain, "SECRET").Name != "" {
		t.Errorf("%+v", plain.Default().Bindings)
	}
	dev, err := tryBuild(t, Options{Dev: true}, dir)
	if err != nil || find(dev, "A").Text != "dev" || find(dev, "SECRET").Text != "s" {
		t.Errorf("%v %+v", err, dev.Default().Bindings)
	}
}

func TestSecretsInDevelopment(t *testing.T) {
	dir := project(t, "wrangler.jsonc", config(`,"secrets":{"required":["HAVE","LACK"]}`), "src/index.ts", hello, ".dev.vars", "HAVE=s")
	if _, err := tryBuild(t, Options{}, dir); err == nil || !strings.Contains(err.Error(), `"secrets" is not supported yet`) {
		t.Errorf("deploy: %v", err)
	}
	dev, err := tryBuild(t, Options{Dev: true}, dir)
	if err != nil || len(dev.Notices) != 1 || !strings.Contains(dev.Notices[0], "LACK") {
		t.Errorf("dev: %v %v", err, dev.Notices)
	}
}

func cellConfig(name, extra string) string {
	return `{"name":"` + name + `","main":"i.js","compatibility_date":"2026-01-02","durable_objects":{"bindings":[{"name":"C","class_name":"Cell"}` + extra + `]},
		"migrations":[{"tag":"1","new_classes":["Cell"]}]}`
}

const cellSource = `export class Cell {} ; export default {}`

func TestScriptsWithOneClassNameDoNotShareData(t *testing.T) {
	a := project(t, "wrangler.jsonc", cellConfig("a", `,{"name":"FAR","class_name":"Cell","script_name":"b"}`), "i.js", cellSource)
	b := project(t, "wrangler.jsonc", cellConfig("b", ""), "i.js", cellSource)
	d := build(t, a, b)
	bind := d.Script("a").Bindings
	if bind[0].Namespace != "Cell" || bind[1].Namespace != "Cell-b" || d.Script("b").Bindings[0].Namespace != "Cell-b" {
		t.Errorf("%+v", d.Manifest.Scripts)
	}
	store := mem.New()
	if _, err := Publish(t.Context(), store, d.Deployment, nil); err != nil {
		t.Fatal(err)
	}
	turned := build(t, b, a)
	if _, err := Publish(t.Context(), store, turned.Deployment, nil); !errors.Is(err, ErrRejected) {
		t.Errorf("turning the order would swap the data: %v", err)
	}
}

type checkFunc func(*Deployment, *Script) ([]string, error)

func (f checkFunc) Check(_ context.Context, d *Deployment, s *Script) ([]string, error) {
	return f(d, s)
}

func TestRejectedLeavesTheActiveOne(t *testing.T) {
	store := mem.New()
	first := build(t, project(t, "wrangler.jsonc", config(""), "src/index.ts", hello))
	if _, err := Publish(t.Context(), store, first.Deployment, nil); err != nil {
		t.Fatal(err)
	}
	second := build(t, project(t, "wrangler.jsonc", cellConfig("web", ""), "i.js", cellSource))
	for name, check := range map[string]checkFunc{
		"throws at start": func(*Deployment, *Script) ([]string, error) { return nil, errors.New("Error: boom") },
		"class is gone":   func(*Deployment, *Script) ([]string, error) { return []string{"default"}, nil },
	} {
		if _, err := Publish(t.Context(), store, second.Deployment, check); !errors.Is(err, ErrRejected) {
			t.Errorf("%s: %v", name, err)
		}
		if p, err := Current(t.Context(), store); err != nil || p.Version != first.Version {
			t.Errorf("%s: active is %v, %v", name, p, err)
		}
	}
	ok := checkFunc(func(*Deployment, *Script) ([]string, error) { return []string{"default", "Cell"}, nil })
	p, err := Publish(t.Context(), store, second.Deployment, ok)
	if err != nil || p.Previous != first.Version {
		t.Errorf("%+v %v", p, err)
	}
}

func TestTamperedModule(t *testing.T) {
	store, ctx := mem.New(), t.Context()
	b := build(t, project(t, "wrangler.jsonc", config(""), "src/index.ts", hello))
	if _, err := Publish(ctx, store, b.Deployment, nil); err != nil {
		t.Fatal(err)
	}
	if d, err := Load(ctx, store); err != nil || d.Version != b.Version {
		t.Fatal(d, err)
	}
	m := b.Default().Modules[0]
	for _, evil := range [][]byte{append(append([]byte{}, b.Body(m)...), ' '), b.Body(m)[1:], {}} {
		store.Put(ctx, m.SHA256.key(), evil)
		var bad *Tampered
		_, err := Load(ctx, store)
		if !errors.As(err, &bad) || bad.Want != m.SHA256 || bad.Got == bad.Want || !strings.Contains(err.Error(), "module index.js") {
			t.Errorf("tampered: %v", err)
		}
	}
	if _, err := Publish(ctx, store, b.Deployment, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(ctx, store); err != nil {
		t.Errorf("publishing again did not repair: %v", err)
	}
	store.Put(ctx, manifestKey(b.Version), []byte(`{"format":1}`))
	var bad *Tampered
	if _, err := Load(ctx, store); !errors.As(err, &bad) {
		t.Errorf("tampered manifest: %v", err)
	}
}

func TestUnknownFeatureAndFormat(t *testing.T) {
	b := build(t, project(t, "wrangler.jsonc", config(""), "src/index.ts", hello))
	b.Manifest.Features = []string{"time-travel-v9"}
	if err := b.seal(); err != nil {
		t.Fatal(err)
	}
	store := mem.New()
	if _, err := Publish(t.Context(), store, b.Deployment, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), store); !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "time-travel-v9") {
		t.Errorf("unknown feature: %v", err)
	}
	if _, err := decodeManifest([]byte(`{"format":2}`)); !errors.Is(err, ErrUnfit) {
		t.Errorf("newer format: %v", err)
	}
}

// cut fails every write after the first n.
type cut struct {
	bucket.Store
	left int
}

func (c *cut) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	if c.left--; c.left < 0 {
		return "", errors.New("power cut")
	}
	return c.Store.Put(ctx, key, body)
}

func (c *cut) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	if c.left--; c.left < 0 {
		return "", bucket.ErrNotSent
	}
	return c.Store.Swap(ctx, key, body, old)
}

// A publication that ends anywhere leaves the old deployment whole, and the
// next attempt goes through.
func TestPublishIsCrashSafe(t *testing.T) {
	first := build(t, project(t, "wrangler.jsonc", config(""), "src/index.ts", hello))
	second := build(t, project(t, "wrangler.jsonc", config(""), "src/index.ts", strings.Replace(hello, "hi", "ho", 1)))
	for n := 0; ; n++ {
		store := mem.New()
		if _, err := Publish(t.Context(), store, first.Deployment, nil); err != nil {
			t.Fatal(err)
		}
		_, err := Publish(t.Context(), &cut{store, n}, second.Deployment, nil)
		if err == nil {
			if n < 4 {
				t.Errorf("only %d writes: blobs, manifest and pointer are 4 at least", n)
			}
			return
		}
		if d, err := Load(t.Context(), store); err != nil || d.Version != first.Version {
			t.Fatalf("after %d writes: %v", n, err)
		}
		if _, err := Publish(t.Context(), store, second.Deployment, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWatcher(t *testing.T) {
	store, ctx := mem.New(), t.Context()
	one := build(t, project(t, "wrangler.jsonc", config(""), "src/index.ts", hello))
	two := build(t, project(t, "wrangler.jsonc", config(`,"vars":{"A":"2"}`), "src/index.ts", hello))
	var adopted []string
	refuse := ""
	w := NewWatcher(store, func(_ context.Context, d *Deployment) error {
		if d.Version == refuse {
			return errors.New("top level threw")
		}
		adopted = append(adopted, d.Version)
		return nil
	}, slog.New(slog.DiscardHandler))

	if err := w.look(ctx, false); err != nil {
		t.Errorf("an empty bucket is no error for a poll: %v", err)
	}
	if err := w.Reload(ctx); err == nil || !strings.Contains(err.Error(), "celld deploy") {
		t.Errorf("reload of an empty bucket: %v", err)
	}
	Publish(ctx, store, one.Deployment, nil)
	for range 3 { // adopted once
		if err := w.look(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	refuse = two.Version
	Publish(ctx, store, two.Deployment, nil)
	if err := w.look(ctx, false); err == nil || !strings.Contains(err.Error(), one.Version+" keeps running") {
		t.Errorf("refused: %v", err)
	}
	if err := w.look(ctx, false); err != nil {
		t.Errorf("a refusal is said once: %v", err)
	}
	if s, _ := w.State(ctx); s.Active.Version != one.Version || s.Refused != two.Version || s.RefusedBy == nil {
		t.Errorf("state %+v", s)
	}
	if err := w.Reload(ctx); err == nil {
		t.Error("reload does not tell of the refusal")
	}
	refuse = ""
	if err := w.Reload(ctx); err != nil {
		t.Error(err)
	}
	Publish(ctx, store, one.Deployment, nil) // back
	if err := w.look(ctx, false); err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(adopted, " "), one.Version+" "+two.Version+" "+one.Version; got != want {
		t.Errorf("adopted %s, want %s", got, want)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add(build(f, project(f, "wrangler.jsonc", config(""), "src/index.ts", hello)).Manifest.encode())
	f.Add([]byte(`{"format":1,"scripts":[{"main":"a"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decodeManifest(body)
		if err != nil {
			return
		}
		for _, blob := range m.blobs() {
			_ = blob.SHA256.key()
		}
	})
}
