package worker

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"celld/internal/call"
)

// pause keeps an isolate busy, so that what arrives meanwhile has to queue.
func pause(t *testing.T, i *isolate) (resume func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	if err := i.later(func() { close(held); <-free }); err != nil {
		t.Fatal(err)
	}
	<-held
	return sync.OnceFunc(func() { close(free) })
}

// until waits for a fact that another goroutine makes true.
func until(fact func() bool) {
	for !fact() {
		runtime.Gosched()
	}
}

func (i *isolate) queued() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.queue) - i.head
}

const gated = `import { DurableObject } from "cloudflare:workers";
let leaked;
export class Cell extends DurableObject {
	order = [];
	constructor(ctx, env) {
		super(ctx, env);
		if (ctx.id.name === "asks") ctx.blockConcurrencyWhile(async () => { this.answer = await env.CELL.getByName("answers").answers(); });
	}
	answers() { return 42; }
	async fetch(r) {
		const p = new URL(r.url).pathname;
		if (p === "/block") await this.ctx.blockConcurrencyWhile(async () => { this.order.push("opens"); await scheduler.wait(1); this.order.push("closes"); });
		else if (p === "/event") this.order.push("event");
		else if (p === "/answer") return new Response(this.answer);
		else if (p === "/later") return new Response(await this.ctx.blockConcurrencyWhile(async () => this.env.CELL.getByName("answers").answers()));
		else if (p === "/clear") clearTimeout(setTimeout(() => {}, 3600_000));
		else if (p === "/leak") { leaked = { storage: this.ctx.storage, ctx: this.ctx, cursor: this.ctx.storage.sql.exec("SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4") }; }
		else if (p === "/use") {
			const said = [];
			for (const f of [() => leaked.storage.kv.put("a", 1), () => leaked.storage.sql.exec("SELECT 1"), () => leaked.storage.put("a", 1),
				() => leaked.storage.transaction(async () => {}), () => leaked.ctx.blockConcurrencyWhile(async () => {}), () => leaked.cursor.toArray(), () => leaked.storage.sync()])
				try { await f(); said.push("let"); } catch (e) { said.push(e.message.includes("on behalf of a different Durable Object") ? "refused" : e.message); }
			return new Response(said.join());
		}
		return new Response(this.order.join());
	}
}
export default { fetch(r, env) { return env.CELL.getByName(new URL(r.url).searchParams.get("cell") ?? "a").fetch(r); } }`

// An event that was already on its way when the one before it opened a critical
// section waits for the end of that section.
func TestASectionHoldsEventsThatCameBeforeIt(t *testing.T) {
	s, h := cells(t, gated, Options{Cells: 1})
	get(t, s.Entrypoint(""), "http://x/nothing")
	o := h.only().(*object)
	resume := pause(t, o.iso)
	inbox := func() int { o.mu.Lock(); defer o.mu.Unlock(); return len(o.inbox) }
	var all sync.WaitGroup
	for k, path := range []string{"block", "event"} {
		all.Go(func() { get(t, o, "http://x/"+path) })
		until(func() bool { return inbox() == k+1 })
	}
	resume()
	all.Wait()
	if _, body := get(t, o, "http://x/order"); body != "opens,closes,event" {
		t.Error(body)
	}
}

func (h *house) only() call.Service {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.by {
		return d.obj
	}
	return nil
}

// A critical section may call another cell and wait for it.
func TestASectionHearsTheAnswersItAskedFor(t *testing.T) {
	s, _ := cells(t, gated, Options{})
	for _, path := range []string{"answer?cell=asks", "later?cell=b"} {
		if _, body := get(t, s.Entrypoint(""), "http://x/"+path); body != "42" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestAClearedTimerLeavesNothingBehind(t *testing.T) {
	s, h := cells(t, gated, Options{})
	get(t, s.Entrypoint(""), "http://x/clear")
	o := h.only().(*object)
	until(func() bool { return !o.Busy() })
}

func TestACellCannotUseAnothersStorage(t *testing.T) {
	s, _ := cells(t, gated, Options{Cells: 1})
	get(t, s.Entrypoint(""), "http://x/leak?cell=a")
	if _, body := get(t, s.Entrypoint(""), "http://x/use?cell=b"); body != strings.TrimSuffix(strings.Repeat("refused,", 7), ",") {
		t.Error(body)
	}
	if _, body := get(t, s.Entrypoint(""), "http://x/use?cell=a"); body != strings.TrimSuffix(strings.Repeat("let,", 7), ",") {
		t.Error(body)
	}
}

// A request that had not begun when its isolate died is served by another one.
func TestRequestsBehindAMemoryHogAreServed(t *testing.T) {
	s := load(t, `export default { fetch(r) { if (r.url.endsWith("hog")) { const a = []; for (;;) a.push(new Array(1000).fill(1.5)); } return new Response("ok"); } }`,
		Options{Stateless: 1, HeapLimit: 32 << 20, CPULimit: 30 * time.Second})
	e, i := s.Entrypoint(""), s.stateless[0]
	resume := pause(t, i)
	var all sync.WaitGroup
	for k, c := range []struct{ path, want string }{{"hog", "memory limit"}, {"a", "ok"}, {"b", "ok"}} {
		all.Go(func() {
			if _, body := get(t, e, "http://x/"+c.path); !strings.Contains(body, c.want) {
				t.Errorf("%s: %s", c.path, body)
			}
		})
		until(func() bool { return i.queued() == k+1 })
	}
	resume()
	all.Wait()
}

func TestAKilledRequestGivesItsPlaceBack(t *testing.T) {
	s := load(t, `export default { fetch(r) { if (r.url.endsWith("spin")) for (;;); return new Response("ok"); } }`,
		Options{MaxRequests: 1, AdmissionWait: time.Minute, CPULimit: 20 * time.Millisecond})
	for _, c := range []struct{ path, want string }{{"spin", "CPU time limit"}, {"a", "ok"}} {
		if _, body := get(t, s.Entrypoint(""), "http://x/"+c.path); !strings.Contains(body, c.want) {
			t.Errorf("%s: %s", c.path, body)
		}
	}
}

// A stub of env is shared by all requests of an isolate; each has its own session.
func TestRequestsShareAServiceStub(t *testing.T) {
	s, err := runtimeFor(t).Load(&Bundle{Name: "test", Version: "1", Main: "main.js", CompatibilityDate: "2026-07-30",
		Modules: []Module{{Name: "main.js", Type: ESModule, Body: []byte(`import { WorkerEntrypoint } from "cloudflare:workers";
			export class Echo extends WorkerEntrypoint { async echo(x) { await scheduler.wait(1); return x; } }
			export default { async fetch(r, env) { const x = new URL(r.url).pathname; return new Response(await env.ECHO.echo(x) + await env.ECHO.echo(x)); } }`)}},
		Bindings: []Binding{{Name: "ECHO", Type: "service", Entrypoint: "Echo"}}}, Options{Stateless: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(errClosed) })
	var all sync.WaitGroup
	for _, p := range []string{"/a", "/b", "/c", "/d"} {
		all.Go(func() {
			if _, body := get(t, s.Entrypoint(""), "http://x"+p); body != p+p {
				t.Errorf("%s: %s", p, body)
			}
		})
	}
	all.Wait()
}

func TestACellThatRunsWildAgainIsLeftAlone(t *testing.T) {
	s, _ := cells(t, counter, Options{Cells: 1, CPULimit: 20 * time.Millisecond})
	e := s.Entrypoint("")
	for range strikesAlone {
		get(t, e, "http://x/spin?cell=bad")
	}
	if _, body := get(t, e, "http://x/fetch?cell=bad"); !strings.Contains(body, "overloaded") {
		t.Error(body)
	}
	if _, body := get(t, e, "http://x/fetch?cell=good"); body != "1" {
		t.Error(body)
	}
	c := s.bundle
	_, _, err := s.seatFor(namespaceOf(c.Classes[0].Namespace).cell(namespaceOf(c.Classes[0].Namespace).fromName("bad")))
	if !errors.Is(err, call.ErrOverloaded) {
		t.Error(err)
	}
}
