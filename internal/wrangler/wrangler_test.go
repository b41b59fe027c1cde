package wrangler

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Every testdata/NAME.{jsonc,toml} has a NAME.golden beside it: the Config, or
// the errors as a person sees them. "NAME@ENV.golden" reads environment ENV.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, golden := range files {
		name := strings.TrimSuffix(filepath.Base(golden), ".golden")
		t.Run(name, func(t *testing.T) {
			base, env, _ := strings.Cut(name, "@")
			got := describe(t, base, env)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func describe(t *testing.T, base, env string) string {
	file := "testdata/" + base + ".jsonc"
	if _, err := os.Stat(file); err != nil {
		file = "testdata/" + base + ".toml"
	}
	cfg, err := Load(file, Options{Env: env})
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, n := range cfg.Notices {
		fmt.Fprintln(&b, n.Format())
	}
	if err := cfg.Require(nil); err != nil {
		fmt.Fprintln(&b, err)
	}
	cfg.Notices = nil
	for i := range cfg.Migrations {
		cfg.Migrations[i].at = nil
	}
	out, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b.Write(out)
	b.WriteByte('\n')
	return b.String()
}

// The two formats mean the same.
func TestTOMLAndJSONAgree(t *testing.T) {
	a, b := describe(t, "full", ""), describe(t, "fulltoml", "")
	cut := func(s string) string {
		s = strings.ReplaceAll(s, "fulltoml.toml", "full.jsonc")
		return s[strings.Index(s, "\n{\n"):]
	}
	if cut(a) != cut(b) {
		t.Errorf("jsonc:\n%s\ntoml:\n%s", cut(a), cut(b))
	}
}

func TestReplay(t *testing.T) {
	const head = `{"name":"w","main":"i.js","migrations":`
	for _, c := range []struct{ migrations, want string }{
		{`[{"tag":"1","new_sqlite_classes":["A","B"]}]`, "A=A B=B"},
		{`[{"tag":"1","new_classes":["A"]},{"tag":"2","renamed_classes":[{"from":"A","to":"B"}]}]`, "B=A"},
		{`[{"tag":"1","new_classes":["A"]},{"tag":"2","renamed_classes":[{"from":"A","to":"B"}],"new_classes":["A"]}]`, "A=A.2 B=A"},
		{`[{"tag":"1","new_classes":["A"]},{"tag":"2","deleted_classes":["A"]},{"tag":"3","new_classes":["A"]}]`, "A=A.2"},
		{`[{"tag":"1","new_classes":["A","B"]},{"tag":"2","renamed_classes":[{"from":"A","to":"B"},{"from":"B","to":"A"}]}]`, "A=B B=A"},
		{`[{"tag":"1","transferred_classes":[{"from":"A","from_script":"x","to":"B"}]}]`, "B=A@x"},
		{`[{"tag":"1","deleted_classes":["A"]}]`, "cannot delete"},
		{`[{"tag":"1","new_classes":["A"]},{"tag":"2","new_classes":["A"]}]`, "exists already"},
		{`[{"tag":"1","new_classes":["A"]},{"tag":"1","new_classes":["B"]}]`, "used twice"},
	} {
		cfg, err := Parse("wrangler.json", []byte(head+c.migrations+"}"), Options{})
		var got []string
		if err != nil {
			got = []string{err.Error()}
		} else {
			for _, k := range cfg.Classes {
				s := k.Name + "=" + k.Namespace
				if k.Script != "" {
					s += "@" + k.Script
				}
				got = append(got, s)
			}
		}
		if s := strings.Join(got, " "); s != c.want && (err == nil || !strings.Contains(s, c.want)) {
			t.Errorf("%s: got %s, want %s", c.migrations, s, c.want)
		}
	}
}

func TestContradictions(t *testing.T) {
	for _, pair := range [][2]string{
		{"delete_all_deletes_alarm", "delete_all_preserves_alarm"}, {"nodejs_compat", "no_nodejs_compat"},
		{"disable_ctx_exports", "enable_ctx_exports"}, {"x", "x"},
	} {
		body := fmt.Sprintf(`{"name":"w","main":"i.js","compatibility_flags":["a","%s","%s"]}`, pair[0], pair[1])
		_, err := Parse("wrangler.json", []byte(body), Options{})
		if err == nil || !strings.Contains(err.Error(), pair[0]) || !strings.Contains(err.Error(), pair[1]) {
			t.Errorf("%v: %v", pair, err)
		}
	}
}

func TestMatcher(t *testing.T) {
	m, err := NewMatcher([]Rule{{Type: "Text", Globs: []string{"**/*.md", "*.graphql"}, Fallthrough: true}, {Type: "Data", Globs: []string{"img/**"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"./a.md": "Text", "x/y/a.md": "Text", "a.mdx": "", "q/s.graphql": "Text", "./a.txt": "Text", "img/a/b.png": "Data",
		"a.bin": "", "a.wasm": "CompiledWasm", "../x/a.wasm?module": "CompiledWasm", "a.wasmXmodule": "",
	} {
		if got := m.Type(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestDevVars(t *testing.T) {
	got, err := ParseDevVars(".dev.vars", []byte("# secrets\nA=1\nexport B = two words # no\nC=\"x\\ny # z\"\nD='multi\nline'\nE=`back \"tick\"`\r\nF=\nG=\"open\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "1", "B": "two words", "C": "x\ny # z", "D": "multi\nline", "E": `back "tick"`, "F": "", "G": `"open`}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %q, want %q", k, got[k], v)
		}
	}
	_, err = ParseDevVars(".dev.vars", []byte("OK=1\nhunter2\n"))
	if err == nil || !strings.Contains(err.Error(), ".dev.vars:2:1") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a bad line: %v", err)
	}
}

func TestDevVarsOfEnvironment(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, ".dev.vars"), []byte("A=plain"), 0o600)
	os.WriteFile(filepath.Join(dir, ".dev.vars.staging"), []byte("A=staging"), 0o600)
	for env, want := range map[string]string{"": "plain", "staging": "staging", "other": "plain"} {
		if got, err := LoadDevVars(dir, env); err != nil || got["A"] != want {
			t.Errorf("env %q: %v %v, want %s", env, got, err, want)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if _, err := Find(dir); err == nil || !strings.Contains(err.Error(), "wrangler.jsonc") {
		t.Errorf("an empty directory: %v", err)
	}
	for _, name := range []string{"wrangler.toml", "wrangler.jsonc", "wrangler.json"} {
		os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o644)
		if got, err := Find(dir); err != nil || filepath.Base(got) != name {
			t.Errorf("Find = %s, %v; want %s", got, err, name)
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"compatibility_date", "durable_objects", "name", "main", "vars"}
	for bad, want := range map[string]string{"compatability_date": "compatibility_date", "nmae": "name", "durable_object": "durable_objects", "zzzzzz": ""} {
		if got := nearest(bad, keys); got != want {
			t.Errorf("%s: %q, want %q", bad, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.*")
	for _, file := range files {
		if body, err := os.ReadFile(file); err == nil && !strings.HasSuffix(file, ".golden") {
			f.Add(body, strings.HasSuffix(file, ".toml"), "")
			f.Add(body, strings.HasSuffix(file, ".toml"), "staging")
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, isTOML bool, env string) {
		file := "wrangler.jsonc"
		if isTOML {
			file = "wrangler.toml"
		}
		cfg, err := Parse(file, body, Options{Env: env})
		if err != nil {
			_ = err.Error()
			return
		}
		if cfg.Name == "" || !slices.IsSortedFunc(cfg.Classes, func(a, b Class) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("accepted a config that is not one: %+v", cfg)
		}
		if err := cfg.Require(nil); err != nil {
			_ = err.Error()
		}
	})
}

func FuzzDevVars(f *testing.F) {
	f.Add([]byte("A=\"x\\\"y\"\nB='\n'"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := ParseDevVars("x", body); err != nil {
			_ = err.Error()
		}
	})
}
