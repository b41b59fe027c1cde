package faulttest

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What cannot start is refused when it is deployed, and what runs goes on.
func TestABadDeploy(t *testing.T) {
	r := onDirectory(t)
	n := r.node("one")
	n.ready()
	n.mustAdd(t, "c0", "1")
	for _, c := range []struct{ name, source, says string }{
		{"throws at start", "throw new Error('no good'); export class Ledger {}; export default {}", "no good"},
		{"has no such class", "export default { fetch() { return new Response('new') } }", "Ledger"},
		{"has a syntax error", "export default {\n  fetch( {", "ledger.js:2"},
	} {
		out, err := r.deploySource(c.source)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("a module that %s: %v, %q", c.name, err, out)
		}
		if resp, err := client.Post("http://"+n.internal+"/reload", "", nil); err == nil {
			resp.Body.Close()
		}
		n.mustAdd(t, "c0", c.says[:2])
	}
}

// A module whose bytes are not what was deployed is not run.
func TestATamperedModule(t *testing.T) {
	r := newRig(t)
	a := r.node("a")
	a.ready()
	tampered := 0
	for o, err := range r.store.List(t.Context(), "deploy-blobs/", "") {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := r.store.Get(t.Context(), o.Key)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(body, []byte("CREATE TABLE")) {
			body = bytes.Replace(body, []byte("`ok "), []byte("`ko "), 1)
			if _, err := r.store.Put(t.Context(), o.Key, body); err != nil {
				t.Fatal(err)
			}
			tampered++
		}
	}
	if tampered == 0 {
		t.Fatal("no module found")
	}
	b := r.node("b")
	b.says(t, "sha256", "SHA-256")
	if resp, err := client.Get(b.address() + "/"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("a tampered module serves")
		}
	}
	a.mustAdd(t, "c0", "1")
}

// A cell that eats memory fails alone.
func TestAMemoryHog(t *testing.T) {
	r := onDirectory(t)
	n := r.node("one")
	n.ready()
	l := write(t, 2, 2, n)
	l.progress(10)
	var wg sync.WaitGroup
	wg.Go(func() {
		resp, err := client.Get(n.address() + "/hog?cell=hog")
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode < 500 {
			t.Errorf("a memory hog answered %d", resp.StatusCode)
		}
	})
	wg.Wait()
	l.progress(10)
	n.untilAdded(t, "hog", "1", patience)
	l.check(n)
}

// A disk that fills up fails writes, never acknowledged ones.
func TestAFullDisk(t *testing.T) {
	r := onDirectory(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
		if os.Getenv("CI") != "" && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Skip("a small disk cannot be mounted here: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	n := r.nodeAt("one", dir)
	n.ready()
	n.mustAdd(t, "c0", "before")
	refused := false
	for i := 0; i < 40 && !refused; i++ {
		began := time.Now()
		resp, err := client.Get(n.address() + "/fill?cell=big")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		refused = resp.StatusCode != http.StatusOK
		t.Logf("after %d MiB: %d in %v", i, resp.StatusCode, time.Since(began))
	}
	if !refused {
		t.Error("40 MB fit on a disk of 12 MB")
	}
	for range 3 { // and neither does what follows hang
		began := time.Now()
		code, body := n.add(t, "big", "more")
		t.Logf("after that: %d %s in %v", code, body, time.Since(began))
		began = time.Now()
		code, body = n.add(t, "c0", "more")
		t.Logf("and elsewhere: %d %s in %v", code, body, time.Since(began))
	}
	n.kill()
	n = r.node("another") // with room
	n.ready()
	n.untilAdded(t, "c0", "after", ttl+patience)
	l := &ledger{t: t}
	if l.read(n, "c0")["before"].N != 1 {
		t.Error("an acknowledged write is lost")
	}
}
