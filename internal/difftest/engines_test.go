package difftest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// compatibilityDate of every fixture: the newest that the workerd of package.json knows.
const compatibilityDate = "2026-07-30"

// worker is one bundle with the fixtures that share its flags.
type worker struct {
	flags  []string
	areas  []string
	bundle []byte
}

// engine is a running server of one worker.
type engine struct {
	name string
	url  string
}

// startTimeout bounds how long an engine may take to say where it listens.
const startTimeout = 60 * time.Second

// workerdPath is the reference engine from npm, installed by `make tools`.
func workerdPath(t *testing.T) string {
	t.Helper()
	p, err := filepath.Abs("../../tools/node_modules/.bin/workerd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("workerd is not installed: run `make tools` (%v)", err)
		}
		t.Skip("workerd is not installed: run `make tools`")
	}
	return p
}

func startWorkerd(t *testing.T, w worker) engine {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "worker.js"), w.bundle, 0o644); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	quoted := make([]string, len(w.flags))
	for i, f := range w.flags {
		quoted[i] = fmt.Sprintf("%q", f)
	}
	config := fmt.Sprintf(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (
    modules = [(name = "worker.js", esModule = embed "worker.js")],
    compatibilityDate = %q, compatibilityFlags = [%s],
    durableObjectNamespaces = [(className = "Cell", uniqueKey = "cell", enableSql = true)],
    durableObjectStorage = (localDisk = "disk"),
    bindings = [
      (name = "CELL", durableObjectNamespace = "Cell"), (name = "NAMED", service = (name = "main", entrypoint = "Named")),
      (name = "TEXT", text = "a text"), (name = "JSON", json = "{\"a\":[1]}") ])), (name = "disk", disk = (path = %q, writable = true))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")]);`,
		compatibilityDate, strings.Join(quoted, ", "), disk)
	path := filepath.Join(dir, "config.capnp")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	control, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(workerdPath(t), "serve", "--experimental", "--control-fd=3", path)
	cmd.ExtraFiles = []*os.File{child}
	start(t, cmd)
	child.Close()
	sc := bufio.NewScanner(control)
	for sc.Scan() {
		var event struct {
			Event string
			Port  int
		}
		if json.Unmarshal(sc.Bytes(), &event) == nil && event.Event == "listen" {
			return engine{"workerd", fmt.Sprintf("http://127.0.0.1:%d", event.Port)}
		}
	}
	t.Fatal("workerd ended before it listened")
	return engine{}
}

// celldBinary builds the product once for all tests of this package.
func celldBinary(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(buildDir, "celld")
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	out, err := exec.Command("go", "build", "-o", bin, "celld/cmd/celld").CombinedOutput()
	if err != nil {
		t.Fatalf("build celld: %v\n%s", err, out)
	}
	return bin
}

var buildDir string

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "celld-difftest-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}

var listening = regexp.MustCompile(`http://[0-9.]+:[0-9]+`)

// project writes the worker as a project for celld.
func project(t *testing.T, w worker) string {
	dir := t.TempDir()
	config, err := json.Marshal(map[string]any{
		"name": "fixtures", "main": "worker.js", "no_bundle": true,
		"compatibility_date": compatibilityDate, "compatibility_flags": w.flags,
		"durable_objects": map[string]any{"bindings": []any{map[string]any{"name": "CELL", "class_name": "Cell"}}},
		"migrations":      []any{map[string]any{"tag": "v1", "new_sqlite_classes": []string{"Cell"}}},
		"vars":            map[string]any{"TEXT": "a text", "JSON": map[string]any{"a": []int{1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"worker.js": w.bundle, "wrangler.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func startCelld(t *testing.T, w worker) engine {
	return startListening(t, exec.Command(celldBinary(t), "dev", project(t, w), "--port", "0", "--no-watch"))
}

// startFleet runs two nodes on one directory bucket.
func startFleet(t *testing.T, w worker) (a, b engine, bucket string) {
	bucket = "file://" + t.TempDir()
	if out, err := exec.Command(celldBinary(t), "deploy", project(t, w), "--bucket", bucket).CombinedOutput(); err != nil {
		t.Fatalf("deploy: %v\n%s", err, out)
	}
	node := func(name string) engine {
		return startListening(t, exec.Command(celldBinary(t), "serve", "--bucket", bucket, "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--node", name, "--work-dir", t.TempDir()))
	}
	return node("a"), node("b"), bucket
}

// startListening starts celld and waits until it says where it listens.
func startListening(t *testing.T, cmd *exec.Cmd) engine {
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		if url := listening.FindString(sc.Text()); url != "" {
			go io.Copy(io.Discard, out)
			return engine{"celld", url}
		}
	}
	t.Fatal("celld ended before it listened")
	return engine{}
}

// start runs cmd for the length of the test; what it says shows if the test fails.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() && log.Len() > 0 {
			text := log.String()
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), text[max(0, len(text)-4000):])
		}
	})
}

// answer is everything of a response that two engines must agree on.
type answer struct {
	Status int
	Header map[string][]string `json:",omitempty"`
	Body   string
}

var client = &http.Client{Timeout: startTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// ignored headers are the servers' own.
var ignored = map[string]bool{"Date": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Server": true}

func (e engine) ask(method, path, body string) (answer, error) {
	r, err := http.NewRequest(method, e.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("X-One", "1")
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	a := answer{Status: resp.StatusCode, Header: map[string][]string{}, Body: string(b)}
	for k, v := range resp.Header {
		if !ignored[k] {
			a.Header[k] = v
		}
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return a, err
	}
	return a, nil
}
