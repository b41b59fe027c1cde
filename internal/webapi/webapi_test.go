package webapi_test

import (
	"strings"
	"testing"

	"celld/internal/webapi/webtest"
)

// TestPlatform asks what the differential fixtures do not: each expression is a boolean.
func TestPlatform(t *testing.T) {
	e := webtest.New(t, "", tables()...)
	for _, expr := range []string{
		// Bodies that never become streams.
		`http.responseForHost(new Response("hi")).body === "hi"`,
		`http.responseForHost(new Response(new Uint8Array([1, 2]))).body instanceof Uint8Array`,
		`http.isStream(http.responseForHost(new Response(new ReadableStream())).body)`,
		`http.responseForHost(new Response(new Response("x").body)).body instanceof Uint8Array`,
		`await http.requestFromHost("POST", "http://x/", [], new TextEncoder().encode("all").buffer).text() === "all"`,
		`(() => { const r = http.requestFromHost("GET", "http://x/", ["a", "1", "A", "2"], 0); return r.headers.get("a") === "1, 2" && r.signal.aborted === false; })()`,
		`(() => { const r = http.requestFromHost("GET", "http://x/", [], 0); http.abortRequest(r); return r.signal.aborted && r.signal.reason.name === "AbortError"; })()`,
		// Text.
		`new TextDecoder("iso-2022-jp").decode(new Uint8Array([0x1b, 0x24, 0x42, 0x24, 0x22, 0x1b, 0x28, 0x42])) === "あ"`,
		`(() => { const d = new TextDecoder("iso-2022-jp"); const b = [0x1b, 0x24, 0x42, 0x24, 0x22, 0x24, 0x24, 0x1b, 0x28, 0x42, 0x61]; return b.map((x) => d.decode(Uint8Array.of(x), { stream: true })).join("") + d.decode() === "あいa"; })()`,
		`(() => { const d = new TextDecoder("shift_jis"); return d.decode(Uint8Array.of(0x82), { stream: true }) + d.decode(Uint8Array.of(0xa0)) === "あ"; })()`,
		`new TextDecoder("utf-16le").decode(new Uint8Array([0xff, 0xfe, 0x61, 0])) === "a"`,
		`new TextDecoder("gb18030").encoding === "gb18030"`,
		`(() => { const d = new TextDecoder(); let s = ""; for (const b of new TextEncoder().encode("é€😀")) s += d.decode(Uint8Array.of(b), { stream: true }); return s + d.decode() === "é€😀"; })()`,
		`new TextDecoder().decode(Uint8Array.of(0xf0, 0x9f, 0x98)) === "\ufffd"`,
		`atob(btoa(String.fromCharCode(...Array.from({ length: 256 }, (_, i) => i)))).length === 256`,
		// URLs: what is quick and what is parsed agree.
		`["http://a/b/../c", "http://a/./b", "http://a.b:81/x?y#z", "https://a.example", "http://127.0.0.1:8080/p?q=1", "HTTP://A.Example:80/ü/ x?ü= #ü y", "https://a:443/..", "http://a/b/..", "http://a/b/../", "http://a/./../..b/.", "http://a/.b/..c/...",
			"http://a?x/../y", "http://a#é", "http://a/%41%zz?%", "http://a//b//../c", "http://1.2.3.4/", "http://0x7f.1/", "http://a.0/", "http://XN--FA-HIA.example/", "http://a/\u{1F600}?\u{1F600}", "http://a-.b/", "http://-a/"].filter((u) => URL.parse(u)?.href !== URL.parse(" " + u)?.href).join(" ") === ""`,
		`new URL("http://a/^|?^|#^|").href === "http://a/%5E|?^|#^|"`,
		`new URL("/p/q?x=1", "https://a.example/z").href === "https://a.example/p/q?x=1"`,
		`new URL("//p/q", "https://a.example/z").href === "https://p/q"`,
		`(() => { const u = new URL("http://h/p?a=1#f"); u.searchParams.set("a", "ü&"); return u.href === "http://h/p?a=%C3%BC%26#f"; })()`,
		`(() => { const u = new URL("http://h/?a=1"); const p = u.searchParams; u.search = "?b=2"; return p.get("b") === "2" && p.get("a") === null; })()`,
		`new URL("web+demo:/.//not-a-host/").pathname === "//not-a-host/"`,
		// Streams.
		`(await new Response(new Response("x".repeat(100000)).body.pipeThrough(new CompressionStream("brotli")).pipeThrough(new DecompressionStream("brotli"))).text()).length === 100000`,
		`await (async () => { const z = await new Response(new Response("abc").body.pipeThrough(new CompressionStream("gzip"))).bytes(); const two = new Uint8Array(z.length + 1); two.set(z); try { await new Response(new Response(two).body.pipeThrough(new DecompressionStream("gzip"))).text(); } catch (e) { return e instanceof TypeError; } })()`,
		`await (async () => { const s = new Response("abcdef").body; const r = s.getReader({ mode: "byob" }); const a = await r.readAtLeast(3, new Uint8Array(4)); const b = await r.read(new Uint8Array(8)); const c = await r.read(new Uint8Array(8)); return a.value.length === 4 && b.value.length === 2 && c.done; })()`,
		`await (async () => { const [a, b] = new Response("abc").body.tee(); return await new Response(a).text() + await new Response(b).text() === "abcabc"; })()`,
		`await (async () => { const { readable, writable } = new IdentityTransformStream(); const w = writable.getWriter(); let done = false; w.write(new Uint8Array(3)).then(() => { done = true; }); await scheduler.wait(5); const before = done; await readable.getReader().read(); await scheduler.wait(5); return !before && done; })()`,
		`await (async () => { const d = new TextDecoderStream(); const w = d.writable.getWriter(); w.write(Uint8Array.of(0xe2, 0x82)); w.write(Uint8Array.of(0xac)); w.close(); return (await d.readable.getReader().read()).value === "€"; })()`,
		// Forms.
		`(await new Response(new URLSearchParams("a=%zz&b=%C3%A9")).formData()).get("a") === "%zz"`,
		`await (async () => { const f = new FormData(); f.append('q"\n', new File(["x\r\n--y"], 'a"b.txt')); const back = await new Response(f).formData(); const [k, v] = [...back][0]; return k === 'q"\n' && v.name === 'a"b.txt' && await v.text() === "x\r\n--y"; })()`,
		`await new Response("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--b--", { headers: { "content-type": "multipart/form-data; boundary=b" } }).formData().then((f) => f.get("a") === "")`,
		// Blobs, events, messages.
		`await new Blob(["abc", "def"]).slice(2, -2).text() === "cd"`,
		`await new Promise((done) => { const { port1, port2 } = new MessageChannel(); port2.onmessage = (e) => done(e.data.x === 1); port1.postMessage({ x: 1 }); })`,
		`await new Promise((done) => { const s = EventSource.from(new Response("id: 7\nevent: e\ndata: 1\r\ndata: 2\n\n").body); s.addEventListener("e", (m) => done(m.data === "1\n2" && m.lastEventId === "7")); })`,
		`(() => { const c = new AbortController(); const s = AbortSignal.any([AbortSignal.any([c.signal])]); let n = 0; s.onabort = () => n++; c.abort(1); return n === 1 && s.reason === 1; })()`,
		`await scheduler.wait(1).then(() => true)`,
		`typeof Symbol.dispose === "symbol" && typeof Symbol.asyncDispose === "symbol"`,
		`await caches.default.match("http://x/").catch((e) => e.message.includes("not supported"))`,
		`(() => { try { new HTMLRewriter(); } catch (e) { return e.message.includes("HTMLRewriter is not supported"); } })()`,
	} {
		if got, err := e.Run(expr); err != nil || got != "true" {
			t.Errorf("%s\n\tgave %s %v", expr, got, err)
		}
	}
}

func TestConsole(t *testing.T) {
	e := webtest.New(t, "", tables()...)
	for _, c := range []struct{ call, want string }{
		{`console.log("a", 1, -0, 2n, null, undefined, Symbol("s"))`, `log a 1 -0 2n null undefined Symbol(s)`},
		{`console.warn("%s is %d%%", "x", 5, { a: [1, "b"] })`, `warn x is 5% { a: [ 1, 'b' ] }`},
		{`console.log({ a: { b: { c: { d: 1 } } } })`, `log { a: { b: { c: [Object] } } }`},
		{`console.log(new Map([["k", new Set([1])]]), new Uint8Array(2), [,1], new Date(0), /x/g)`, `log Map(1) { 'k' => Set(1) { 1 } } Uint8Array(2) [ 0, 0 ] [ <1 empty item>, 1 ] 1970-01-01T00:00:00.000Z /x/g`},
		{`console.log(class A {}, function f() {}, () => {}, Object.create(null))`, `log [class A] [Function: f] [Function (anonymous)] [Object: null prototype] {}`},
		{`(() => { const o = {}; o.self = o; console.log(o); })()`, `log <ref *1> { self: [Circular *1] }`},
		{`console.assert(false, "why")`, `error Assertion failed: why`},
		{`console.log(new Headers({ a: "1" }))`, `log Headers { a: '1' }`},
	} {
		e.Log = nil
		if _, err := e.Run(c.call); err != nil {
			t.Error(c.call, err)
		} else if got := strings.Join(e.Log, "|"); got != c.want {
			t.Errorf("%s\n\tgot  %s\n\twant %s", c.call, got, c.want)
		}
	}
	e.Log = nil
	if _, err := e.Run(`console.error(new TypeError("no"))`); err != nil || !strings.HasPrefix(e.Log[0], "error TypeError: no\n    at ") {
		t.Error(e.Log, err)
	}
}
