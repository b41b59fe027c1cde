package faulttest

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/buckettest"
	"celld/internal/bucket/faultproxy"
)

var (
	long = flag.Bool("long", false, "tell every story at length")
	seed = flag.Uint64("seed", 1, "seed of what befalls whom, and of the store's faults")
)

// size is how long a story is, in its short and in its long form.
func size(short, atLength int) int {
	if *long {
		return atLength
	}
	return short
}

// ttl is short, so that a story of several leases takes seconds.
const ttl = 2 * time.Second

var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "celld-faulttest-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "celld")
	if out, err := exec.Command("go", "build", "-o", binary, "celld/cmd/celld").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build celld: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// rig is a store, a proxy before it, and a deployment in it.
type rig struct {
	t     *testing.T
	proxy *faultproxy.Proxy
	url   string
	env   []string // for processes behind the proxy
	extra []string // settings of this story
	store bucket.Store
}

func newRig(t *testing.T, extra ...string) *rig {
	url, env := buckettest.VersityGW(t)
	endpoint := strings.TrimPrefix(env[0], "S3_ENDPOINT=")
	proxy, err := faultproxy.Start(endpoint, *seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	r := &rig{t: t, proxy: proxy, url: url, env: append([]string{"S3_ENDPOINT=" + proxy.URL()}, env[1:]...), extra: extra}
	r.store = buckettest.Open(t, url, env)
	r.deploy()
	return r
}

func (r *rig) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), r.env...)
	cmd.Env = append(cmd.Env, "CELLD_BUCKET="+r.url, fmt.Sprintf("CELLD_TTL_MS=%d", ttl.Milliseconds()), "CELLD_CPU_LIMIT_MS=500", "CELLD_MAX_REQUEST_BODY_BYTES=1000000", "CELLD_V8_HEAP_LIMIT_MB=64")
	cmd.Env = append(cmd.Env, r.extra...)
	return cmd
}

// onDirectory is a rig whose bucket is a directory, with no proxy before it.
func onDirectory(t *testing.T) *rig {
	r := &rig{t: t, url: "file://" + t.TempDir()}
	r.store = buckettest.Open(t, r.url, nil)
	r.deploy()
	return r
}

func (r *rig) deploy() {
	r.t.Helper()
	source, err := os.ReadFile("testdata/ledger.js")
	if err != nil {
		r.t.Fatal(err)
	}
	if out, err := r.deploySource(string(source)); err != nil {
		r.t.Fatalf("deploy: %v\n%s", err, out)
	}
}

// deploySource deploys one module and returns what the command said.
func (r *rig) deploySource(source string) (string, error) {
	dir := r.t.TempDir()
	os.WriteFile(filepath.Join(dir, "ledger.js"), []byte(source), 0o644)
	os.WriteFile(filepath.Join(dir, "wrangler.json"), []byte(`{"name":"ledger","main":"ledger.js","compatibility_date":"2026-07-30",
		"durable_objects":{"bindings":[{"name":"LEDGER","class_name":"Ledger"}]},"migrations":[{"tag":"1","new_sqlite_classes":["Ledger"]}]}`), 0o644)
	out, err := r.command("deploy", dir).CombinedOutput()
	return string(out), err
}

// node is one process, which may be started again and again.
type node struct {
	r    *rig
	name string
	dir  string
	args []string // more than every node has

	avoided atomic.Int32 // by how many halves of the writers

	mu       sync.Mutex
	cmd      *exec.Cmd
	url      string
	internal string
	log      *lockedBuilder // of all its runs
	ended    chan struct{}
}

func (r *rig) node(name string, args ...string) *node { return r.nodeAt(name, r.t.TempDir(), args...) }

func (r *rig) nodeAt(name, dir string, args ...string) *node {
	n := &node{r: r, name: name, dir: dir, args: args, log: &lockedBuilder{}}
	r.t.Cleanup(func() {
		n.signal(syscall.SIGCONT)
		n.kill()
		if r.t.Failed() {
			text := n.log.String()
			r.t.Logf("%s said:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
	n.start()
	return n
}

var addresses = regexp.MustCompile(`serves (http://[0-9.:]+) \(internal ([0-9.:]+)\)`)

// start runs the process and waits until it listens; whether it serves is asked by ready.
func (n *node) start() {
	n.r.t.Helper()
	cmd := n.r.command(append([]string{"serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--node", n.name, "--work-dir", n.dir}, n.args...)...)
	cmd.Stderr = n.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when the tests end without their cleanups
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.r.t.Fatal(err)
	}
	ended := make(chan struct{})
	sc := bufio.NewScanner(out)
	var found []string
	for found == nil && sc.Scan() {
		found = addresses.FindStringSubmatch(sc.Text())
	}
	go func() {
		io.Copy(io.Discard, out)
		cmd.Wait()
		close(ended)
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd, n.ended = cmd, ended
	if found != nil {
		n.url, n.internal = found[1], found[2]
	}
}

// lockedBuilder gathers what a process says, over all its runs.
type lockedBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd.Process.Signal(s)
}

func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	<-n.ended
}

func (n *node) address() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.url
}

// exit waits for the process to end and returns its code.
func (n *node) exit(within time.Duration) int {
	n.r.t.Helper()
	select {
	case <-n.ended:
		return n.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		n.r.t.Fatalf("%s did not end within %v", n.name, within)
		return -1
	}
}

var client = &http.Client{Timeout: 30 * time.Second}

// ready waits until the node serves the deployment.
func (n *node) ready() {
	n.r.t.Helper()
	ctx, cancel := context.WithTimeout(n.r.t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if resp, err := client.Get(n.address() + "/"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return
			}
		}
	}
	n.r.t.Fatalf("%s does not serve", n.name)
}

// says waits until the process has said one of these.
func (n *node) says(t *testing.T, any ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, s := range any {
			if strings.Contains(n.log.String(), s) {
				return
			}
		}
	}
	t.Fatalf("%s said none of %q", n.name, any)
}
