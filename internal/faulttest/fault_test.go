package faulttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"celld/internal/bucket/faultproxy"
)

// weather is what a store may do on a bad day.
var weather = faultproxy.Faults{Delay: 2 * time.Millisecond, Jitter: 20 * time.Millisecond, Unavailable: 0.05, TooMany: 0.03, CutBefore: 0.03, CutAfter: 0.03}

// A node alone on a bad store, killed again and again, half of the times with its disk.
func TestOneNodeKilledOnABadStore(t *testing.T) {
	r := newRig(t)
	killedAgainAndAgain(t, r, func() { r.proxy.Set(weather) })
	t.Logf("the store: %+v", r.proxy.Counts())
}

func TestOneNodeKilledOnADirectory(t *testing.T) {
	killedAgainAndAgain(t, onDirectory(t), func() {})
}

func killedAgainAndAgain(t *testing.T, r *rig, worsen func()) {
	n := r.node("one")
	n.ready()
	worsen()
	l := write(t, 4, 8, n)
	for i := range size(5, 50) {
		l.progress(40)
		n.kill()
		if i%2 == 1 {
			if err := os.RemoveAll(n.dir); err != nil {
				t.Fatal(err)
			}
		}
		n.start()
		n.ready()
	}
	l.progress(20)
	if r.proxy != nil {
		r.proxy.Set(faultproxy.Faults{})
	}
	l.check(n)
}

// Three nodes, and everything that may happen to one of them while the others serve.
func TestThreeNodes(t *testing.T) {
	r := newRig(t)
	nodes := []*node{r.node("a"), r.node("b"), r.node("c")}
	for _, n := range nodes {
		n.ready()
	}
	l := write(t, 6, 9, nodes...)
	rnd := rand.New(rand.NewPCG(*seed, 0))
	for i := range size(7, 60) {
		l.progress(60)
		n := nodes[rnd.IntN(len(nodes))]
		what := []string{"kill", "stop and continue", "graceful restart", "bucket away", "kill with its disk", "kill of all"}[i%6]
		began := time.Now()
		switch what {
		case "kill":
			n.kill()
			l.progress(20) // the others go on, and take its cells over
			n.start()
		case "kill of all":
			for _, n := range nodes {
				n.kill()
			}
			for _, n := range nodes {
				n.start()
			}
		case "kill with its disk":
			n.kill()
			os.RemoveAll(n.dir)
			n.start()
		case "stop and continue":
			n.avoided.Store(1) // the other half has its requests there when it stops
			n.signal(syscall.SIGSTOP)
			n.avoided.Store(2)
			time.Sleep(time.Duration(size(2, 15)) * ttl) // past its lease: that is the story
			l.progress(20)
			n.signal(syscall.SIGCONT)
			if code := n.exit(3 * ttl); code != 3 {
				t.Errorf("a node that was stopped past its lease ended with code %d", code)
			}
			fencedFor(t, n, "node_lease_watchdog_fence")
			n.avoided.Store(0)
			n.start()
		case "graceful restart":
			n.signal(syscall.SIGTERM)
			if code := n.exit(time.Minute); code != 0 {
				t.Errorf("SIGTERM: exit code %d", code)
			}
			n.start()
		case "bucket away":
			r.proxy.Set(faultproxy.Faults{Hang: true})
			time.Sleep(ttl / 4)
			r.proxy.Set(faultproxy.Faults{})
		}
		n.ready()
		t.Logf("round %d: %s of %s, over after %v", i, what, n.name, time.Since(began).Round(time.Millisecond))
	}
	l.progress(20)
	l.check(nodes...)
}

func TestTheBucketIsAway(t *testing.T) {
	for _, c := range []struct {
		name string
		away time.Duration
		code int // -1: it lives
	}{{"for half a TTL nobody fences", ttl / 2, -1}, {"for two TTLs the node fences", 2 * ttl, 3}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			n := r.node("one")
			n.ready()
			l := write(t, 1, 2, n)
			l.progress(10)
			r.proxy.Set(faultproxy.Faults{Down: true})
			time.Sleep(c.away) // the story is about this length of time
			if c.code >= 0 {
				if code := n.exit(3 * ttl); code != c.code {
					t.Errorf("exit code %d", code)
				}
				fencedFor(t, n, "node_lease_watchdog_fence")
				r.proxy.Set(faultproxy.Faults{})
				n.start()
			}
			r.proxy.Set(faultproxy.Faults{})
			l.progress(10)
			l.check(n)
		})
	}
}

func fencedFor(t *testing.T, n *node, event string) {
	t.Helper()
	if log := n.log.String(); !strings.Contains(log, "SELF-FENCE: "+event) {
		t.Errorf("no fence for %s in\n%s", event, log[max(0, len(log)-1500):])
	}
}

func TestAHandAtTheLease(t *testing.T) {
	for _, c := range []struct {
		name, event string
		do          func(r *rig, key string)
	}{
		{"deleted", "node_lease_record_missing_fence", func(r *rig, key string) { r.store.Delete(t.Context(), key) }},
		{"overwritten", "node_lease_record_mismatch_fence", func(r *rig, key string) { r.store.Put(t.Context(), key, []byte("hello")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			n := r.node("one")
			n.ready()
			for o, err := range r.store.List(t.Context(), "nodes/", "") {
				if err != nil {
					t.Fatal(err)
				}
				c.do(r, o.Key)
			}
			if code := n.exit(3 * ttl); code != 3 {
				t.Errorf("exit code %d", code)
			}
			fencedFor(t, n, c.event)
		})
	}
}

// Many claim one cell through three nodes, while it is sent away again and again.
func TestManyClaimants(t *testing.T) {
	r := newRig(t, "CELLD_MAX_CELL_REQUESTS=1000")
	nodes := []*node{r.node("a"), r.node("b"), r.node("c")}
	for _, n := range nodes {
		n.ready()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var evictors sync.WaitGroup
	var evicted atomic.Int32
	cell := cellName(t, r)
	for _, n := range nodes {
		evictors.Go(func() {
			for ctx.Err() == nil {
				resp, err := client.Post("http://"+n.internal+"/evict/"+cell, "", nil)
				if err == nil {
					resp.Body.Close()
					if resp.StatusCode < 300 {
						evicted.Add(1)
					}
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	l := write(t, 1, size(60, 200), nodes...)
	l.progress(size(1500, 5000))
	cancel()
	evictors.Wait()
	t.Logf("the cell was sent away %d times", evicted.Load())
	if evicted.Load() < 3 {
		t.Error("the cell hardly moved: nothing was shown")
	}
	l.check(nodes...)
}

// cellName is the full name of cell c0, as operators know it.
func cellName(t *testing.T, r *rig) string {
	t.Helper()
	n := r.node("namer")
	n.ready()
	resp, err := client.Get(n.address() + "/?cell=c0&read")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	out, err := r.command("cell", "list", "--bucket", r.url).Output()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(string(out), " ")
	n.signal(syscall.SIGTERM)
	n.exit(time.Minute)
	return name
}

func TestBadGuests(t *testing.T) {
	r := newRig(t)
	n := r.node("one")
	n.ready()
	post := func(path string, body []byte) (int, string) {
		resp, err := client.Post(n.address()+path, "", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	l := write(t, 2, 2, n) // neighbours, in the same isolates
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if code, _ := post(fmt.Sprintf("/spin?cell=wild%d", i), nil); code != 500 {
				t.Errorf("a busy loop answered %d", code)
			}
		})
	}
	l.progress(20)
	wg.Wait()
	if code, _ := post("/big?cell=big", nil); code != 500 {
		t.Errorf("a row over the limit: %d", code)
	}
	if code, body := post("/body?cell=big", make([]byte, 1_000_000)); code != 200 || body != "1000000" {
		t.Errorf("a body at the limit: %d %s", code, body)
	}
	if code, _ := post("/body?cell=big", make([]byte, 1_000_001)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d", code)
	}
	if code, _ := post("/add?cell=wild0&id=x", nil); code != 200 {
		t.Errorf("a cell that ran wild does not come back: %d", code)
	}
	l.check(n)
}

// Damaged data is an error for its cell, names the object, and stops nobody else.
func TestADamagedObject(t *testing.T) {
	r := newRig(t, "CELLD_OPERATION_DEADLINE_MS=3000")
	n := r.node("one")
	n.ready()
	for _, c := range []string{"c0", "c1"} {
		if resp, err := client.Get(n.address() + "/add?cell=" + c + "&id=1"); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
	}
	n.signal(syscall.SIGTERM)
	if code := n.exit(time.Minute); code != 0 {
		t.Errorf("SIGTERM: exit code %d", code)
	}
	var damaged string
	for o, err := range r.store.List(t.Context(), "cells/", "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(o.Key, ".ltx") {
			body, _, err := r.store.Get(t.Context(), o.Key)
			if err != nil {
				t.Fatal(err)
			}
			body = bytes.Clone(body)
			body[len(body)/2] ^= 1
			if _, err := r.store.Put(t.Context(), o.Key, body); err != nil {
				t.Fatal(err)
			}
			damaged = o.Key
			break
		}
	}
	os.RemoveAll(n.dir)
	n.start()
	n.ready()
	codes := map[int]int{}
	for _, c := range []string{"c0", "c1"} {
		resp, err := client.Get(n.address() + "/?cell=" + c + "&read")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		codes[resp.StatusCode]++
	}
	if codes[200] != 1 || len(codes) != 2 {
		t.Errorf("one of two cells is damaged: %v", codes)
	}
	n.says(t, damaged[strings.LastIndex(damaged, "/ltx/"):])
}
