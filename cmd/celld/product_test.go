package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"celld/internal/deploy/examplecheck"
)

// The binary under test is this test binary: with the variable set it is celld.
const asProduct = "CELLD_TEST_IS_THE_PRODUCT"

func TestMain(m *testing.M) {
	if os.Getenv(asProduct) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func product(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProduct+"=1")
	return cmd
}

// process is a celld that serves.
type process struct {
	*exec.Cmd
	url string
	err strings.Builder
}

var address = regexp.MustCompile(`http://[0-9.:]+`)

// serve starts celld and waits until it says where it listens.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: product(args...)}
	p.Stderr = &p.err
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		if p.url = address.FindString(sc.Text()); p.url != "" {
			go io.Copy(io.Discard, out)
			return p
		}
	}
	p.Wait()
	t.Fatalf("celld %v ended before it listened:\n%s", args, p.err.String())
	return nil
}

func (p *process) kill() {
	p.Process.Kill()
	p.Wait()
}

// get asks until there is an answer with status 200.
func get(t *testing.T, url string) string {
	t.Helper()
	for t.Context().Err() == nil {
		resp, err := http.Get(url)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == 200 {
			return string(b)
		}
	}
	return ""
}

// copyOf is a project to write to.
func copyOf(t *testing.T, example string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), example)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../examples", example))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExamples(t *testing.T) {
	for _, name := range []string{"hello", "counter", "kv", "todo", "alarm", "streaming", "rpc", "wasm"} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("../../examples/todo/node_modules"); name == "todo" && err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip("run `make tools` to install what the todo example imports")
			}
			p := serve(t, "dev", copyOf(t, name), "--port", "0", "--no-watch")
			lines, err := examplecheck.ReadFile(filepath.Join("../../examples", name, "check.txt"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := examplecheck.Run(ctx, p.url, lines); err != nil {
				t.Errorf("%v\n%s", err, p.err.String())
			}
		})
	}
}

// What was acknowledged is there again after kill -9, also without the local
// files, and after a graceful stop.
func TestTheCountGoesOn(t *testing.T) {
	dir := copyOf(t, "counter")
	want := 0
	count := func(p *process) {
		t.Helper()
		for range 3 {
			want++
			if got := get(t, p.url+"/"); got != fmt.Sprint(want) {
				t.Fatalf("%s, want %d", got, want)
			}
		}
	}
	start := func() *process { return serve(t, "dev", dir, "--port", "0", "--no-watch") }
	p := start()
	count(p)
	if out, err := product("dev", dir, "--port", "0", "--no-watch").CombinedOutput(); err == nil || !strings.Contains(string(out), fmt.Sprintf("in use by pid %d", p.Process.Pid)) {
		t.Errorf("a second process on the same directory: %v\n%s", err, out)
	}
	p.kill()
	p = start()
	count(p)
	p.kill()
	if err := os.RemoveAll(filepath.Join(dir, ".celld", "dev", "work")); err != nil {
		t.Fatal(err)
	}
	p = start()
	count(p)
	p.Process.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Errorf("graceful stop: %v\n%s", err, p.err.String())
	}
	count(start())
	if out, err := product("dev", dir, "--clean", "--port", "-1").CombinedOutput(); err == nil || !strings.Contains(string(out), "--port -1") {
		t.Errorf("%v\n%s", err, out)
	}
}

// New code serves without losing state; code that does not build or start leaves the old one.
func TestAChangeIsAdopted(t *testing.T) {
	dir := copyOf(t, "counter")
	file := filepath.Join(dir, "src", "index.ts")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := serve(t, "dev", dir, "--port", "0")
	if got := get(t, p.url+"/"); got != "1" {
		t.Fatal(got)
	}
	write(strings.Replace(string(source), "return new Response(String(n))", `return new Response("v2 " + n)`, 1))
	for got := ""; !strings.HasPrefix(got, "v2 "); got = get(t, p.url+"/") {
		if t.Context().Err() != nil {
			t.Fatal("the change was not adopted")
		}
	}
	before := get(t, p.url+"/value")
	for _, bad := range []string{string(source) + "\nbroken {", string(source) + "\nthrow new Error('at the top');"} {
		write(bad)
		if got := get(t, p.url+"/value"); got != before {
			t.Errorf("the count was %s and is %s", before, got)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  string
		code int
		want string // on standard error, or on standard output where the code is 0
	}{
		{[]string{"--help"}, "", 0, "celld dev"},
		{[]string{"--version"}, "", 0, "celld "},
		{[]string{"serve", "--help"}, "", 0, "Exit codes"},
		{[]string{"completion", "bash"}, "", 0, "bash completion"},
		{[]string{"nonsense"}, "", 1, "unknown command"},
		{[]string{"serve"}, "", 1, "CELLD_BUCKET"},
		{[]string{"serve", "--nope"}, "", 1, "try: celld serve --help"},
		{[]string{"serve", "--bucket", "file:///x", "--listen", "0.0.0.0:0"}, "", 1, "--internal-listen"},
		{[]string{"serve", "--bucket", "ftp://x"}, "", 1, "ftp"},
		{[]string{"serve"}, "CELLD_TTL_MS=soon", 1, "CELLD_TTL_MS"},
		{[]string{"deploy", "/nowhere", "--bucket", "file:///x"}, "", 1, "/nowhere"},
		{[]string{"diagnose"}, "", 1, "CELLD_BUCKET"},
		{[]string{"cell", "show", "nonsense", "--bucket", "file:///tmp"}, "", 1, "Class:id"},
	} {
		cmd := product(c.args...)
		cmd.Env = append(cmd.Env, c.env, "NO_COLOR=1")
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.Run()
		text := errs.String()
		if c.code == 0 {
			text = out.String()
		} else if out.Len() > 0 {
			t.Errorf("%v: standard output holds %q", c.args, out.String())
		}
		if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%v: exit code %d, %q; want %d, %q", c.args, got, text, c.code, c.want)
		}
	}
}

func TestDeployServeDiagnose(t *testing.T) {
	bucket := "file://" + t.TempDir()
	out, err := product("deploy", copyOf(t, "counter"), "--bucket", bucket).Output()
	if err != nil || strings.ContainsAny(strings.TrimSpace(string(out)), " \n") {
		t.Fatalf("deploy prints the version alone: %q, %v", out, err)
	}
	p := serve(t, "serve", "--bucket", bucket, "--listen", "127.0.0.1:0", "--node", "one", "--work-dir", t.TempDir())
	if got := get(t, p.url+"/"); got != "1" {
		t.Fatal(got)
	}
	var findings []struct{ Check, Verdict, Detail string }
	out, err = product("diagnose", "--bucket", bucket, "--json").Output()
	if err != nil || json.Unmarshal(out, &findings) != nil || len(findings) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range findings {
		if f.Verdict != "ok" {
			t.Errorf("%+v", f)
		}
	}
	out, err = product("cell", "list", "Counter", "--bucket", bucket).Output()
	if err != nil || !strings.Contains(string(out), "owned") || !strings.Contains(string(out), "one.") {
		t.Errorf("%s, %v", out, err)
	}
}
