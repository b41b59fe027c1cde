package worker

import (
	"io"
	"strings"
	"sync"
	"testing"

	"celld/internal/call"
)

var shared = sync.OnceValues(NewRuntime)

func runtimeFor(t testing.TB) *Runtime {
	t.Helper()
	rt, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func load(t testing.TB, source string, o Options) *Script {
	t.Helper()
	s, err := runtimeFor(t).Load(&Bundle{Name: "test", Version: "1", Main: "main.js", CompatibilityDate: "2026-07-30",
		Modules: []Module{{Name: "main.js", Type: ESModule, Body: []byte(source)}}}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(errClosed) })
	return s
}

func get(t testing.TB, s call.Service, url string) (int, string) {
	t.Helper()
	return fetch(t, s, &call.Request{Method: "GET", URL: url})
}

func fetch(t testing.TB, s call.Service, r *call.Request) (int, string) {
	t.Helper()
	resp, err := s.Fetch(t.Context(), r)
	if err != nil {
		return 0, err.Error()
	}
	if resp.Body == nil {
		return resp.Status, ""
	}
	if resp.Body.Stream == nil {
		return resp.Status, string(resp.Body.Bytes)
	}
	defer resp.Body.Stream.Close()
	b, err := io.ReadAll(resp.Body.Stream)
	if err != nil {
		return resp.Status, string(b) + " error: " + err.Error()
	}
	return resp.Status, string(b)
}

func TestHello(t *testing.T) {
	s := load(t, `export default { fetch(r) { return new Response("hello " + new URL(r.url).pathname, {status: 201}); } }`, Options{})
	if code, body := get(t, s.Entrypoint(""), "http://x/y"); code != 201 || body != "hello /y" {
		t.Error(code, body)
	}
}

func TestAwaitsTimersAndStreams(t *testing.T) {
	s := load(t, `export default { async fetch(r) {
		const parts = [];
		await new Promise((f) => setTimeout(f, 1));
		const body = await r.text();
		const { readable, writable } = new TransformStream();
		const w = writable.getWriter();
		(async () => { for (const p of [body, "-", "end"]) await w.write(new TextEncoder().encode(p)); await w.close(); })();
		return new Response(readable);
	} }`, Options{})
	code, body := fetch(t, s.Entrypoint(""), &call.Request{Method: "POST", URL: "http://x/", Body: call.StreamBody(io.NopCloser(strings.NewReader("streamed")), -1)})
	if code != 200 || body != "streamed-end" {
		t.Error(code, body)
	}
	code, body = fetch(t, s.Entrypoint(""), &call.Request{Method: "POST", URL: "http://x/", Body: call.BytesBody([]byte("bytes"))})
	if code != 200 || body != "bytes-end" {
		t.Error(code, body)
	}
}

func BenchmarkHello(b *testing.B) {
	s := load(b, `export default { fetch(r) { return new Response("hello"); } }`, Options{})
	e := s.Entrypoint("")
	r := &call.Request{Method: "GET", URL: "http://localhost:8080/", Header: []call.Field{{Name: "Host", Value: "localhost:8080"}, {Name: "Accept", Value: "*/*"}, {Name: "User-Agent", Value: "wrk"}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Fetch(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
