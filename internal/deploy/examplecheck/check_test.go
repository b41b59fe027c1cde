package examplecheck

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"celld/internal/deploy"
	"celld/internal/wrangler"
)

func TestRun(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/late":
			fmt.Fprint(w, asked.Add(1))
		case "/echo":
			w.WriteHeader(201)
			io.Copy(w, r.Body)
		case "/type":
			fmt.Fprint(w, r.Header.Get("Content-Type"))
		default:
			fmt.Fprintln(w, r.URL.Path)
		}
	}))
	defer srv.Close()
	good := `
# a comment
GET /x => /x
GET /x => 200 /x
GET /x-$RUN => ~ ^/x-[a-z0-9]{10}\n$
POST /echo {"a": [1, 2]} => 201 {"a":[1,2]}
POST /echo two words => 201
POST /type {} => application/json
eventually GET /late => 5`
	lines, err := Parse(strings.NewReader(good))
	if err != nil || len(lines) != 7 {
		t.Fatal(len(lines), err)
	}
	if err := Run(t.Context(), srv.URL, lines); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"GET /x => /y", "GET /x => 404", "POST /echo {} => 201 {\"a\":1}", "GET /x => ~ ^y", "GET /x =>"} {
		lines, err := Parse(strings.NewReader(bad))
		if err != nil {
			t.Fatal(bad, err)
		}
		if err := Run(t.Context(), srv.URL, lines); err == nil {
			t.Errorf("%s passed", bad)
		}
	}
	for _, bad := range []string{"GET /x", "/x => 1", "get /x => 1", "GET x => 1", "GET /x => ~ ("} {
		if _, err := Parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%s parsed", bad)
		}
	}
}

const root = "../../.."

// Every example, bundled by this program, answers on workerd what its check.txt says.
func TestExamplesOnWorkerd(t *testing.T) {
	bin, err := filepath.Abs(root + "/tools/node_modules/.bin/workerd")
	if err != nil {
		t.Fatal(err)
	}
	need(t, bin, "make tools")
	checks, err := filepath.Glob(root + "/examples/*/check.txt")
	if err != nil || len(checks) < 8 {
		t.Fatalf("examples: %v, %v", checks, err)
	}
	for _, check := range checks {
		dir := filepath.Dir(check)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			if _, err := os.Stat(dir + "/package.json"); err == nil {
				need(t, dir+"/node_modules", "npm ci in "+dir)
			}
			lines, err := ReadFile(check)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := wrangler.Load(dir, wrangler.Options{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := deploy.Build(t.Context(), []*wrangler.Config{cfg}, deploy.Options{Output: os.Stderr})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // bounds "eventually"
			defer cancel()
			if err := Run(ctx, workerd(t, bin, b.Deployment), lines); err != nil {
				t.Error(err)
			}
		})
	}
}

func need(t *testing.T, path, how string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	} else if os.Getenv("CI") != "" {
		t.Fatalf("%v: run %s", err, how)
	}
	t.Skipf("%s is not there: run %s", path, how)
}

// workerd serves the default script of d and returns its URL.
func workerd(t *testing.T, bin string, d *deploy.Deployment) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.capnp"), []byte(capnp(t, dir, d)), 0o644); err != nil {
		t.Fatal(err)
	}
	control, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	cmd := exec.Command(bin, "serve", "--experimental", "--control-fd=3", filepath.Join(dir, "config.capnp"))
	cmd.ExtraFiles, cmd.Stderr, cmd.Stdout = []*os.File{child}, os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for sc := bufio.NewScanner(control); sc.Scan(); {
		var event struct {
			Event string
			Port  int
		}
		if json.Unmarshal(sc.Bytes(), &event) == nil && event.Event == "listen" {
			return fmt.Sprintf("http://127.0.0.1:%d", event.Port)
		}
	}
	t.Fatal("workerd ended before it listened")
	return ""
}

func capnp(t *testing.T, dir string, d *deploy.Deployment) string {
	s := d.Default()
	fields := map[deploy.ModuleType]string{
		deploy.ESModule: "esModule", deploy.CommonJS: "commonJsModule", deploy.Text: "text", deploy.Data: "data",
		deploy.CompiledWasm: "wasm", deploy.JSON: "json",
	}
	var modules, spaces, bindings []string
	write := func(i int, m deploy.Module) {
		file := fmt.Sprintf("m%d", i)
		if err := os.WriteFile(filepath.Join(dir, file), d.Body(m), 0o644); err != nil {
			t.Fatal(err)
		}
		modules = append(modules, fmt.Sprintf("(name = %q, %s = embed %q)", m.Name, fields[m.Type], file))
	}
	for i, m := range s.Modules { // the first module is the main one
		if m.Name == s.Main {
			write(i, m)
		}
	}
	for i, m := range s.Modules {
		if m.Name != s.Main {
			write(i, m)
		}
	}
	for _, c := range s.Classes {
		spaces = append(spaces, fmt.Sprintf("(className = %q, uniqueKey = %q, enableSql = true)", c.Name, c.Namespace))
	}
	for _, b := range s.Bindings {
		switch b.Type {
		case deploy.PlainText:
			bindings = append(bindings, fmt.Sprintf("(name = %q, text = %q)", b.Name, b.Text))
		case deploy.DurableObject:
			bindings = append(bindings, fmt.Sprintf("(name = %q, durableObjectNamespace = %q)", b.Name, b.Class))
		}
	}
	return fmt.Sprintf(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (
    modules = [%s], compatibilityDate = %q,
    durableObjectNamespaces = [%s], durableObjectStorage = (localDisk = "disk"), bindings = [%s])), (name = "disk", disk = (path = %q, writable = true))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")]);`,
		strings.Join(modules, ", "), s.CompatibilityDate, strings.Join(spaces, ", "), strings.Join(bindings, ", "), t.TempDir())
}
