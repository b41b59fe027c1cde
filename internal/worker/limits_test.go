package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"celld/internal/call"
)

func TestABusyLoopFailsOnlyItsCell(t *testing.T) {
	s, h := cells(t, counter, Options{Cells: 1, CPULimit: 50 * time.Millisecond})
	e := s.Entrypoint("")
	get(t, e, "http://x/inc?cell=good")
	get(t, e, "http://x/inc?cell=bad")
	done := make(chan string)
	go func() {
		_, body := get(t, e, "http://x/spin?cell=bad")
		done <- body
	}()
	if body := <-done; !strings.Contains(body, "CPU time limit") {
		t.Error(body)
	}
	// The neighbour in the same isolate kept its memory and its data; the bad one was reset and answers again.
	if _, body := get(t, e, "http://x/inc?cell=good"); body != "2" {
		t.Error(body)
	}
	if _, body := get(t, e, "http://x/inc?cell=bad"); body != "1" { // the test's desk keeps no data over a reset
		t.Error(body)
	}
	var reset int
	for _, d := range h.by {
		for _, cause := range d.resets {
			if !errors.Is(cause, ErrCPU) {
				t.Error(cause)
			}
			reset++
		}
	}
	_ = reset
}

func TestABusyStatelessRequestFailsAlone(t *testing.T) {
	s := load(t, `export default { fetch(r) { if (r.url.endsWith("spin")) for (;;); return new Response("ok"); } }`, Options{Stateless: 1, CPULimit: 50 * time.Millisecond})
	e := s.Entrypoint("")
	if _, body := get(t, e, "http://x/spin"); !strings.Contains(body, "CPU time limit") {
		t.Error(body)
	}
	if code, body := get(t, e, "http://x/"); code != 200 || body != "ok" {
		t.Error(code, body)
	}
}

func TestMemoryHogLosesItsIsolateAndTheNextRequestIsServed(t *testing.T) {
	s := load(t, `export default { fetch(r) { if (r.url.endsWith("hog")) { const a = []; for (;;) a.push(new Array(1000).fill(1.5)); } return new Response("ok"); } }`,
		Options{Stateless: 1, HeapLimit: 32 << 20, CPULimit: 30 * time.Second})
	e := s.Entrypoint("")
	if _, body := get(t, e, "http://x/hog"); !strings.Contains(body, "memory limit") {
		t.Error(body)
	}
	if code, body := get(t, e, "http://x/"); code != 200 || body != "ok" {
		t.Error(code, body)
	}
}

func TestBuffersCountToo(t *testing.T) {
	s := load(t, `export default { fetch(r) { const keep = []; try { for (;;) keep.push(new Uint8Array(8 << 20)); } catch (e) { return new Response(e.name + keep.length); } } }`,
		Options{HeapLimit: 32 << 20})
	if _, body := get(t, s.Entrypoint(""), "http://x/"); body != "RangeError16" {
		t.Error(body)
	}
}

func TestEvalIsRefused(t *testing.T) {
	s := load(t, `export default { fetch() { const out = []; for (const f of [() => eval("1"), () => new Function("return 1")]) try { f(); out.push("ran"); } catch (e) { out.push(e.name); } return new Response(out.join()); } }`, Options{})
	if _, body := get(t, s.Entrypoint(""), "http://x/"); body != "EvalError,EvalError" {
		t.Error(body)
	}
}

func TestCodeThatDoesNotLoadSaysWhy(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"syntax", "export default {", "SyntaxError"},
		{"throws", `throw new RangeError("at the top")`, "RangeError: at the top"},
		{"import", `import "./nope.js"; export default {}`, `No such module "nope.js"`},
		{"io", `await fetch("http://x/"); export default {}`, "not allowed within global scope"},
		{"waits", `await new Promise(() => {}); export default {}`, "top level"},
		{"spins", `for (;;);`, "CPU time limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := runtimeFor(t).Load(&Bundle{Name: "bad", Main: "main.js", Modules: []Module{{Name: "main.js", Type: ESModule, Body: []byte(c.source)}}}, Options{CPULimit: 200 * time.Millisecond})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestHandlersThatFailAreExceptions(t *testing.T) {
	s := load(t, `export default { async fetch(r) { const p = new URL(r.url).pathname;
		if (p === "/throw") throw new TypeError("bad");
		if (p === "/undefined") return;
		if (p === "/late") { await scheduler.wait(1); throw "a string"; } } }`, Options{})
	for path, want := range map[string]string{"throw": "TypeError: bad", "undefined": "did not resolve to 'Response'", "late": "a string"} {
		_, err := s.Entrypoint("").Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/" + path})
		var ex *call.Exception
		if !errors.As(err, &ex) || !strings.Contains(ex.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := s.Entrypoint("Nope").Fetch(t.Context(), &call.Request{Method: "GET", URL: "http://x/"}); err == nil || !strings.Contains(err.Error(), "Nope") {
		t.Error(err)
	}
}

func TestAStatelessActorEndsWhenItsWorkHas(t *testing.T) {
	s := load(t, `let ran = 0; export default { fetch(r, env, ctx) { if (r.url.endsWith("ran")) return new Response(String(ran)); ctx.waitUntil((async () => { await scheduler.wait(5); ran++; })()); return new Response("early"); } }`, Options{Stateless: 1})
	e := s.Entrypoint("")
	get(t, e, "http://x/")
	for _, body := get(t, e, "http://x/ran"); body != "1"; _, body = get(t, e, "http://x/ran") {
		time.Sleep(time.Millisecond) // the fact is asked for again and again, without a limit of its own
	}
	s.stateless[0].wait()
	if n := s.Stats().Actors; n != 0 {
		t.Errorf("%d actors are left", n)
	}
}
