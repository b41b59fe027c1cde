package faulttest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// add writes one id and returns the answer.
func (n *node) add(t *testing.T, cell, id string) (code int, body string) {
	t.Helper()
	resp, err := client.Get(n.address() + "/add?cell=" + cell + "&id=" + id)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// mustAdd writes one id, which must be acknowledged.
func (n *node) mustAdd(t *testing.T, cell, id string) {
	t.Helper()
	if code, body := n.add(t, cell, id); code != http.StatusOK {
		t.Fatalf("%s, add %s to %s: %d %s", n.name, id, cell, code, body)
	}
}

// untilAdded writes until one write is acknowledged, and tells how long that took.
func (n *node) untilAdded(t *testing.T, cell, id string, within time.Duration) time.Duration {
	t.Helper()
	began, code, body := time.Now(), 0, ""
	for i := 0; time.Since(began) < within; i++ {
		if code, body = n.add(t, cell, fmt.Sprintf("%s-%d", id, i)); code == http.StatusOK {
			return time.Since(began)
		}
	}
	t.Fatalf("%s, %s: no write was acknowledged within %v; the last answer: %d %s", n.name, cell, within, code, body)
	return 0
}

// patience is added to what the protocol promises: the machine may be busy.
const patience = 15 * time.Second

// The cells of a killed node are served by another after its lease.
func TestTakeover(t *testing.T) {
	r := newRig(t)
	a, b := r.node("a"), r.node("b")
	a.ready()
	b.ready()
	const cells = 20
	for i := range cells {
		a.mustAdd(t, fmt.Sprint("c", i), "before")
	}
	a.kill()
	var wg sync.WaitGroup
	var took [cells]time.Duration
	for i := range cells {
		wg.Go(func() { took[i] = b.untilAdded(t, fmt.Sprint("c", i), "after", ttl+patience) })
	}
	wg.Wait()
	var last time.Duration
	for _, d := range took {
		last = max(last, d)
	}
	t.Logf("%d cells of a killed node: all served by another after %v, with a lease of %v", cells, last.Round(time.Millisecond), ttl)
}

// A node that was killed and started again on its disk takes its cells back long before its old lease ends.
func TestAKilledNodeIsBackAtOnce(t *testing.T) {
	const long = 5 * time.Minute // nothing here can have waited for it
	r := newRig(t, fmt.Sprintf("CELLD_TTL_MS=%d", long.Milliseconds()))
	n := r.node("one")
	n.ready()
	n.mustAdd(t, "c0", "before")
	n.kill()
	n.start()
	n.ready()
	t.Logf("back after %v", n.untilAdded(t, "c0", "after", patience).Round(time.Millisecond))
}

// link is the network between peers: it can be cut.
type link struct {
	ln net.Listener

	mu     sync.Mutex
	target string
	cut    bool
	conns  map[net.Conn]bool
}

func newLink(t *testing.T) *link {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{ln: ln, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go l.carry(c)
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		l.set(true)
	})
	return l
}

func (l *link) carry(c net.Conn) {
	l.mu.Lock()
	cut, target := l.cut, l.target
	l.mu.Unlock()
	if cut {
		c.Close()
		return
	}
	d, err := net.Dial("tcp", target)
	if err != nil {
		c.Close()
		return
	}
	l.mu.Lock()
	l.conns[c], l.conns[d] = true, true
	l.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(c, d); c.Close(); d.Close() })
	wg.Go(func() { io.Copy(d, c); c.Close(); d.Close() })
	wg.Wait()
	l.mu.Lock()
	delete(l.conns, c)
	delete(l.conns, d)
	l.mu.Unlock()
}

func (l *link) to(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for c := range l.conns {
			c.Close()
		}
	}
}

// Two nodes see the bucket, but not each other: the owner goes on, the other says so, and nobody takes the cell.
func TestPeersAreCutOff(t *testing.T) {
	r := newRig(t, "CELLD_OPERATION_DEADLINE_MS=2000")
	l := newLink(t)
	a := r.node("a", "--advertise", l.ln.Addr().String())
	l.to(a.internal)
	a.ready()
	b := r.node("b")
	b.ready()
	a.mustAdd(t, "c0", "1")
	b.mustAdd(t, "c0", "2")

	l.set(true)
	if code, body := b.add(t, "c0", "3"); code == http.StatusOK || code == 0 {
		t.Errorf("through a cut network: %d %s", code, body)
	}
	a.mustAdd(t, "c0", "4")

	l.set(false)
	b.untilAdded(t, "c0", "5", patience)
}

// What a client sees through a node that is not the owner is what it sees at the owner.
func TestThroughAnotherNode(t *testing.T) {
	r := newRig(t)
	a, b := r.node("a"), r.node("b")
	a.ready()
	b.ready()
	a.mustAdd(t, "c0", "1")
	for _, n := range []*node{a, b} {
		long := bytes.Repeat([]byte("0123456789"), 90_000)
		resp, err := client.Post(n.address()+"/echo?cell=c0", "", bytes.NewReader(long))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, long) {
			t.Errorf("%s: a body of %d bytes came back with %d, %v", n.name, len(long), len(got), err)
		}
		resp, err = client.Get(n.address() + "/throw?cell=c0")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s: an exception is status %d", n.name, resp.StatusCode)
		}
	}
}

// Node after node is restarted gracefully under load.
func TestRollingRestart(t *testing.T) {
	r := newRig(t)
	nodes := []*node{r.node("a"), r.node("b"), r.node("c")}
	for _, n := range nodes {
		n.ready()
	}
	l := write(t, 8, 6, nodes...)
	for _, n := range nodes {
		l.progress(30)
		n.signal(syscall.SIGTERM)
		if code := n.exit(time.Minute); code != 0 {
			t.Errorf("SIGTERM of %s: exit code %d", n.name, code)
		}
		n.start()
		n.ready()
	}
	l.progress(30)
	l.check(nodes...)
}

// A second process on a work directory refuses, and names the first.
func TestASecondProcess(t *testing.T) {
	r := onDirectory(t)
	n := r.node("one")
	n.ready()
	out, err := r.command("serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--node", "two", "--work-dir", n.dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), fmt.Sprint(n.cmd.Process.Pid)) {
		t.Errorf("want a refusal that names process %d, have %v:\n%s", n.cmd.Process.Pid, err, out)
	}
	n.mustAdd(t, "c0", "1")
}
