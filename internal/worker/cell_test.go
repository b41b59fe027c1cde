package worker

import (
	"context"
	"errors"
	"sync"
	"testing"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/storage"
)

// desk is a Seat without replication: what is committed is proven at once.
type desk struct {
	t    testing.TB
	cell id.Cell
	name string
	st   *storage.Storage

	mu     sync.Mutex
	out    []func(error)
	inTurn bool
	resets []error
	obj    cell.Object
	ended  bool
	build  sync.Once
	failed call.Service // why it could not be built
}

func (d *desk) isEnded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

func (d *desk) ID() id.Cell               { return d.cell }
func (d *desk) Name() string              { return d.name }
func (d *desk) Epoch() id.Epoch           { return 1 }
func (d *desk) Storage() *storage.Storage { return d.st }

func (d *desk) Begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return errors.New("reset")
	}
	d.inTurn = true
	return nil
}

func (d *desk) End() error {
	if _, err := d.st.Commit(); err != nil {
		d.t.Error(err)
	}
	d.mu.Lock()
	out := d.out
	d.out, d.inTurn = nil, false
	d.mu.Unlock()
	for _, f := range out {
		f(nil)
	}
	return nil
}

func (d *desk) Emit(release func(error)) {
	d.mu.Lock()
	if d.inTurn {
		d.out = append(d.out, release)
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	release(nil)
}

func (d *desk) Sync(release func(error)) { d.Emit(release) }

func (d *desk) Reset(cause error) {
	d.mu.Lock()
	d.resets = append(d.resets, cause)
	d.ended = true
	obj := d.obj
	d.mu.Unlock()
	d.st.Rollback()
	if obj != nil {
		obj.Close(cause)
	}
}

// house is a Router that builds cells of one script on first use.
type house struct {
	t  testing.TB
	mu sync.Mutex
	s  *Script
	by map[id.Cell]*desk
	// all that there ever were, also those reset
	all []*desk
}

func (h *house) Cell(ctx context.Context, c id.Cell, name string) call.Service {
	d := h.desk(c, name)
	d.build.Do(func() {
		obj, err := Engine{Current: func(string) (*Script, error) { return h.s, nil }}.Create(ctx, d)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.obj, d.ended = obj, err != nil
		if err != nil {
			d.failed = broken{err}
		}
	})
	if d.failed != nil {
		return d.failed
	}
	return d.obj
}

func (h *house) desk(c id.Cell, name string) *desk {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.by[c]; d != nil && !d.isEnded() {
		return d
	}
	d := &desk{t: h.t, cell: c, name: name, st: storage.Open(h.t.TempDir())}
	h.by[c], h.all = d, append(h.all, d)
	return d
}

type broken struct{ err error }

func (b broken) Fetch(context.Context, *call.Request) (*call.Response, error) { return nil, b.err }
func (b broken) RPC(context.Context) (call.Pipe, error)                       { return nil, b.err }

// cells loads a script with a class Cell bound as env.CELL.
func cells(t testing.TB, source string, o Options) (*Script, *house) {
	h := &house{t: t, by: map[id.Cell]*desk{}}
	o.Router = h
	s, err := runtimeFor(t).Load(&Bundle{Name: "test", Version: "1", Main: "main.js", CompatibilityDate: "2026-07-30",
		Modules:  []Module{{Name: "main.js", Type: ESModule, Body: []byte(source)}},
		Bindings: []Binding{{Name: "CELL", Type: "durable_object_namespace", Namespace: "Cell"}},
		Classes:  []Class{{Name: "Cell", Namespace: "Cell"}}}, o)
	if err != nil {
		t.Fatal(err)
	}
	h.s = s
	t.Cleanup(func() {
		s.Close(errClosed) // no turn runs after it
		for _, d := range h.all {
			d.st.Close()
		}
	})
	return s, h
}

const counter = `import { DurableObject } from "cloudflare:workers";
export class Cell extends DurableObject {
	constructor(ctx, env) { super(ctx, env); ctx.blockConcurrencyWhile(async () => { ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS c (n)"); }); }
	inc(by = 1) { this.ctx.storage.sql.exec("INSERT INTO c VALUES (?)", by); return this.ctx.storage.sql.exec("SELECT sum(n) AS n FROM c").one().n; }
	async fetch(r) { return new Response(String(this.inc(Number(new URL(r.url).searchParams.get("by") ?? 1)))); }
	async slow() { await scheduler.wait(5); return this.ctx.id.name; }
	boom() { throw new RangeError("boom"); }
	spin() { for (;;); }
	nested() { return { inc: (n) => this.inc(n) }; }
	async parallel() { const inc = () => this.ctx.blockConcurrencyWhile(async () => { const n = (await this.ctx.storage.get("n")) ?? 0; await scheduler.wait(1); await this.ctx.storage.put("n", n + 1); return n + 1; }); return Promise.all([inc(), inc(), inc()]); }
	async blockThrows() { await this.ctx.blockConcurrencyWhile(async () => { throw new RangeError("inside"); }); }
}
export default { async fetch(r, env) {
	const u = new URL(r.url);
	const stub = env.CELL.get(env.CELL.idFromName(u.searchParams.get("cell") ?? "a"));
	const m = u.pathname.slice(1);
	if (m === "fetch") return stub.fetch(r);
	try { return Response.json(await (m === "pipelined" ? stub.nested().inc(5) : stub[m]())); }
	catch (e) { return Response.json({ name: e.name, message: e.message, remote: e.remote }); }
} }`

func TestCells(t *testing.T) {
	s, _ := cells(t, counter, Options{})
	e := s.Entrypoint("")
	for _, c := range []struct{ path, want string }{
		{"fetch", "1"}, {"fetch?by=4", "5"}, {"inc", "6"}, {"fetch?cell=b", "1"}, {"slow", `"a"`}, {"pipelined", "11"},
		{"boom", `{"name":"RangeError","message":"boom","remote":true}`}, {"parallel", "[1,2,3]"},
		{"nope", `{"name":"TypeError","message":"The RPC receiver does not implement the method \"nope\".","remote":true}`},
		{"inc", "12"},
	} {
		if _, body := get(t, e, "http://x/"+c.path); body != c.want {
			t.Errorf("%s: %s, want %s", c.path, body, c.want)
		}
	}
}

func TestABlockThatThrowsResets(t *testing.T) {
	s, h := cells(t, counter, Options{})
	e := s.Entrypoint("")
	get(t, e, "http://x/inc")
	if _, body := get(t, e, "http://x/blockThrows"); body != `{"name":"RangeError","message":"inside"}` {
		t.Error(body)
	}
	for _, d := range h.by {
		if len(d.resets) != 1 {
			t.Error(d.resets)
		}
	}
}
