// Command bench prints the figures of docs/numbers.md: celld beside workerd, the
// same Worker, on the same machine, in the same run, in turns. Every figure is a
// ratio; the machine's own speed drops out.
//
//	make bench
//
// It needs bin/celld, workerd (tools/) and wrk (Debian's package of that name).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"celld/internal/bucket/dir"
)

var (
	rounds   = flag.Int("rounds", 5, "measurements of each side")
	duration = flag.Duration("duration", 3*time.Second, "length of one measurement")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	for _, tool := range []string{"bin/celld", "tools/node_modules/.bin/workerd"} {
		if _, err := os.Stat(tool); err != nil {
			return fmt.Errorf("%s is missing: run `make build tools`", tool)
		}
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return fmt.Errorf("wrk is missing: apt-get install wrk")
	}
	home, err := os.MkdirTemp("", "celld-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	ours, err := startCelld(filepath.Join(home, "celld"))
	if err != nil {
		return err
	}
	defer ours.stop()
	theirs, err := startWorkerd(filepath.Join(home, "workerd"))
	if err != nil {
		return err
	}
	defer theirs.stop()
	fmt.Println("| what | celld / workerd (median of pairs; min–max) | unit |")
	fmt.Println("| --- | --- | --- |")
	for _, c := range []struct{ name, path string }{
		{"Worker hello, 32 connections", "/hello"},
		{"warm cell read (SQL), 32 connections", "/get"},
		{"durable increment of one cell, 32 connections (celld: proven in a directory bucket)", "/inc"},
	} {
		if err := compare(c.name, c.path, ours, theirs); err != nil {
			return err
		}
	}
	if err := writeLatency(home, ours); err != nil {
		return err
	}
	return density(ours)
}

type server struct {
	url string
	cmd *exec.Cmd
}

func (s *server) stop() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

func startCelld(home string) (*server, error) {
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	source, err := os.ReadFile("internal/bench/testdata/worker.js")
	if err != nil {
		return nil, err
	}
	config := `{"name":"bench","main":"worker.js","no_bundle":true,"compatibility_date":"2026-07-30","durable_objects":{"bindings":[{"name":"CELL","class_name":"Cell"}]},"migrations":[{"tag":"v1","new_sqlite_classes":["Cell"]}]}`
	os.WriteFile(filepath.Join(home, "worker.js"), source, 0o644)
	os.WriteFile(filepath.Join(home, "wrangler.json"), []byte(config), 0o644)
	cmd := exec.Command("bin/celld", "dev", home, "--port", "0", "--no-watch")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	n, err := out.Read(buf)
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(string(buf[:n]))
	if url == "" {
		return nil, fmt.Errorf("celld did not start: %s %v", buf[:n], err)
	}
	go io.Copy(io.Discard, out)
	return &server{url, cmd}, nil
}

func startWorkerd(home string) (*server, error) {
	if err := os.MkdirAll(filepath.Join(home, "disk"), 0o755); err != nil {
		return nil, err
	}
	source, err := os.ReadFile("internal/bench/testdata/worker.js")
	if err != nil {
		return nil, err
	}
	os.WriteFile(filepath.Join(home, "worker.js"), source, 0o644)
	config := fmt.Sprintf(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (services = [(name = "main", worker = (modules = [(name = "worker.js", esModule = embed "worker.js")], compatibilityDate = "2026-07-30",
 durableObjectNamespaces = [(className = "Cell", uniqueKey = "cell", enableSql = true)], durableObjectStorage = (localDisk = "disk"),
 bindings = [(name = "CELL", durableObjectNamespace = "Cell")])), (name = "disk", disk = (path = %q, writable = true))],
 sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")]);`, filepath.Join(home, "disk"))
	path := filepath.Join(home, "config.capnp")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, err
	}
	control, child, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("tools/node_modules/.bin/workerd", "serve", "--experimental", "--control-fd=3", path)
	cmd.ExtraFiles = []*os.File{child}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	child.Close()
	buf := make([]byte, 4096)
	n, err := control.Read(buf)
	port := regexp.MustCompile(`"port":\s*(\d+)`).FindStringSubmatch(string(buf[:n]))
	if port == nil {
		return nil, fmt.Errorf("workerd did not start: %s %v", buf[:n], err)
	}
	return &server{"http://127.0.0.1:" + port[1], cmd}, nil
}

var rate = regexp.MustCompile(`Requests/sec:\s*([0-9.]+)`)

func load(url string) (float64, error) {
	out, err := exec.Command("wrk", "-t1", "-c32", "-d"+duration.String(), url).CombinedOutput()
	m := rate.FindSubmatch(out)
	if err != nil || m == nil || strings.Contains(string(out), "Non-2xx") {
		return 0, fmt.Errorf("wrk %s: %v\n%s", url, err, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// compare measures both in turns; each pair gives one ratio.
func compare(name, path string, ours, theirs *server) error {
	var ratios []float64
	for i := range *rounds + 1 {
		a, err := load(ours.url + path)
		if err != nil {
			return err
		}
		b, err := load(theirs.url + path)
		if err != nil {
			return err
		}
		if i > 0 { // the first pair warms both up
			ratios = append(ratios, a/b)
		}
	}
	slices.Sort(ratios)
	fmt.Printf("| %s | %.2f (%.2f–%.2f) | requests per second |\n", name, ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	return nil
}

// writeLatency compares the median of a single client's durable write with one
// raw Put and one raw Get on a directory bucket, in blocks that take turns.
func writeLatency(home string, ours *server) error {
	store, err := dir.Open(filepath.Join(home, "raw"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	body := make([]byte, 400)
	n := 0
	raw := func() error {
		n++
		key := fmt.Sprintf("x/%d", n)
		if _, err := store.Put(ctx, key, body); err != nil {
			return err
		}
		_, _, err := store.Get(ctx, key)
		return err
	}
	write := func() error {
		resp, err := http.Get(ours.url + "/inc")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	var ratios []float64
	for range *rounds {
		a, err := p50(write)
		if err != nil {
			return err
		}
		b, err := p50(raw)
		if err != nil {
			return err
		}
		ratios = append(ratios, float64(a)/float64(b))
	}
	slices.Sort(ratios)
	fmt.Printf("| durable write of a single client / one raw PUT + one raw GET, p50, directory bucket | %.2f (%.2f–%.2f) | HTTP, JavaScript and SQLite included |\n",
		ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	return nil
}

func p50(f func() error) (time.Duration, error) {
	var took []time.Duration
	for range 300 {
		began := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// density counts how many cells with a database in use fit into a gigabyte.
func density(ours *server) error {
	before, err := rss(ours.cmd.Process.Pid)
	if err != nil {
		return err
	}
	const cells = 2000
	for i := range cells {
		resp, err := http.Get(fmt.Sprintf("%s/cell/%d/inc", ours.url, i))
		if err != nil {
			return err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	after, err := rss(ours.cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("| resident cells per GB, each with an open database | %.0f | %d cells, growth of resident memory |\n", float64(1<<30)*cells/float64(after-before), cells)
	return nil
}

func rss(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
