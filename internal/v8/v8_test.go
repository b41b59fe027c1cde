package v8

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Init(os.Getenv("V8FLAGS"), 1)
	os.Exit(m.Run())
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newIso(t testing.TB, o Options) *Isolate {
	iso := New(o)
	t.Cleanup(iso.Close)
	iso.Unhandled = func(ctx int, msg string) { t.Log("unhandled:", msg) }
	return iso
}

const als = `
{
const { getContinuationPreservedEmbedderData: get, setContinuationPreservedEmbedderData: set } = __host.extras;
globalThis.AsyncLocalStorage = class {
  run(v, fn, ...a) { const old = get(); const m = new Map(old); m.set(this, v); set(m); try { return fn(...a); } finally { set(old); } }
  getStore() { return get()?.get(this); }
  static snapshot() { const f = get(); return (fn, ...a) => { const old = get(); set(f); try { return fn(...a); } finally { set(old); } }; }
};
}`

func TestBasic(t *testing.T) {
	t.Log(Version())
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	v := must[Value](t)(iso.Eval(c, "1+1", "a.js", 0))
	if v.Num != 2 {
		t.Fatal(v)
	}
	_, err := iso.Eval(c, "function f(){ throw new TypeError('boom é') }\nf()", "b.js", 0)
	if err == nil || !strings.Contains(err.Error(), "boom é") {
		t.Fatal(err)
	}
	t.Log(err)
	v = must[Value](t)(iso.Eval(c, "'\\u{1F600} ok ' + typeof WebAssembly + ' ' + typeof Intl + ' '+ Object.getOwnPropertyNames(__host.extras)", "c.js", 0))
	t.Log(v)
}

func TestModules(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	var mods = map[string]int{}
	src := map[string]string{
		"lib.js":  `import { DurableObject } from "cloudflare:workers"; export class Base extends DurableObject { hi() { return "hi " + this.n; } constructor(n){ super(); this.n=n; } }`,
		"dyn.js":  `export const late = await Promise.resolve(42); export const u = import.meta.url;`,
		"main.js": `import { Base } from "./lib.js"; import * as cf from "cloudflare:workers"; export const tla = await __host.async(7, "slow"); export default { async fetch(n) { const d = await import("./dyn.js"); return new Base(n).hi() + " " + d.late + " " + d.u + " " + tla + " " + Object.keys(cf).sort() + " " + cf.env.X; } }; export class Mine extends Base {}`,
	}
	h := must[Value](t)(iso.Eval(c, `({DurableObject: class DurableObject {}, WorkerEntrypoint: class {}, env: {X: 5}})`, "host.js", WantHandle))
	mods["cloudflare:workers"] = must[int](t)(iso.SyntheticModule(c, "cloudflare:workers", h.ID()))
	iso.Resolve = func(iso *Isolate, ctx int, spec, ref string, dyn bool) int {
		name := strings.TrimPrefix(spec, "./")
		if id, ok := mods[name]; ok {
			return id
		}
		s, ok := src[name]
		if !ok {
			return -1
		}
		id, _, err := iso.CompileModule(ctx, s, name, nil)
		if err != nil {
			t.Error(err)
			return -1
		}
		mods[name] = id
		return id
	}
	var pend []uint32
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		pend = append(pend, promise)
		return nil
	}
	main, _, err := iso.CompileModule(c, src["main.js"], "main.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	mods["main.js"] = main
	if err := iso.Instantiate(c, main); err != nil {
		t.Fatal(err)
	}
	v := must[Value](t)(iso.Evaluate(c, main, 0))
	if v.Tag != Promise {
		t.Fatal("want pending TLA", v)
	}
	if err := iso.ResolveBatch(c, pend, []V{N(99)}, 0); err != nil {
		t.Fatal(err)
	}
	st, _, err := iso.PromiseState(c, v.ID(), 0)
	if st != 1 || err != nil {
		t.Fatal(st, err)
	}
	def := must[uint32](t)(iso.Export(c, main, "default"))
	iso.SetGlobal(c, "__def", H(def))
	f := must[Value](t)(iso.Eval(c, "(n)=>__def.fetch(n)", "x.js", WantHandle))
	r := must[Value](t)(iso.Call(c, f.ID(), 0, N(3)))
	if r.String() != "hi 3 42 dyn.js 99 DurableObject,WorkerEntrypoint,env 5" {
		t.Fatal(r)
	}
	// errors
	bad, _, err := iso.CompileModule(c, `import "nope";`, "bad.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := iso.Instantiate(c, bad); err == nil || !strings.Contains(err.Error(), `No such module "nope"`) {
		t.Fatal(err)
	}
	if _, _, err := iso.CompileModule(c, "let let = ;", "syn.js", nil); err == nil || !strings.Contains(err.Error(), "SyntaxError") {
		t.Fatal(err)
	}
	v, err = iso.Eval(c, `import("nope2").then(()=>"?", e=>"caught "+e.message)`, "y.js", 0)
	if err != nil || v.String() != `caught No such module "nope2".` {
		t.Fatal(v, err)
	}
}

func TestClone(t *testing.T) {
	a := newIso(t, Options{})
	b := newIso(t, Options{})
	ca, cb := a.NewContext(false), b.NewContext(false)
	v := must[Value](t)(a.Eval(ca, `{
	 const o = {m:new Map([[1,{a:2}],["k",new Set([1,2])]]), d:new Date(5), r:/x+/gi, e:new RangeError("bad", {cause: 1}), big: 2n**80n, u8:new Uint8Array([1,2,3]), f64:new Float64Array([1.5]), dv:new DataView(new ArrayBuffer(4)), s:"é\u{1F600}", n:null, u:undefined, bo:true, nan:NaN, nz:-0, sparse:[1,,3], bi: Object(1n)};
	 o.self = o; o.arr=[o.m,o.m]; o }`, "s.js", WantClone))
	f := must[Value](t)(b.Eval(cb, `(o)=>[o.self===o, o.arr[0]===o.m && o.arr[1]===o.m, o.m.get(1).a, o.m.get("k").has(2), +o.d, o.r+"", o.e instanceof RangeError, o.e.message, o.e.cause, o.big===2n**80n, o.u8.join(), o.f64[0], o.dv.byteLength, o.s, o.n, o.u, o.bo, Number.isNaN(o.nan), Object.is(o.nz,-0), 1 in o.sparse, typeof o.bi].join("|")`, "f.js", WantHandle))
	r := must[Value](t)(b.CallBytes(cb, f.ID(), 0, Clone, v.B))
	t.Log(len(v.B), r)
	if r.String() != "true|true|2|true|5|/x+/gi|true|bad|1|true|1,2,3|1.5|4|é\U0001F600|||true|true|true|false|object" {
		t.Fatal(r)
	}
	_, err := a.Eval(ca, `(()=>{}),{f(){}}.f`, "g.js", WantClone)
	if err == nil || !strings.Contains(err.Error(), "could not be cloned") {
		t.Fatal(err)
	}
	v, err = a.Eval(ca, `try{__host.serialize(()=>1)}catch(e){e.name+":"+e.message}`, "g.js", 0)
	t.Log(v, err)
	if _, err = b.CallBytes(cb, f.ID(), 0, Clone, []byte{0xff, 0x0f, 0x6f, 1, 2, 3}); err == nil {
		t.Fatal("garbage accepted")
	}
	t.Log(err)
}

func TestALS(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	var ids []uint32
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		ids = append(ids, promise)
		return nil
	}
	must[Value](t)(iso.Eval(c, als, "als.js", 0))
	v := must[Value](t)(iso.Eval(c, `
	const s = new AsyncLocalStorage(), log=[];
	async function work(n){ log.push(s.getStore()); await null; log.push(s.getStore()); await __host.async(1); log.push(s.getStore()); await new Promise(r=>__host.async(1).then(r)); log.push(s.getStore()); }
	const all = Promise.all([s.run("a",work), s.run("b",work), work()]); log.push("out:"+s.getStore());
	all.then(()=>log.join())`, "a.js", 0))
	for k := 0; k < 10 && len(ids) > 0; k++ {
		for len(ids) > 0 {
			id := ids[len(ids)-1]
			ids = ids[:len(ids)-1]
			if err := iso.ResolveBatch(c, []uint32{id}, []V{N(0)}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	st, r, err := iso.PromiseState(c, v.ID(), 0)
	t.Log(st, r, err)
	counts := map[string]int{}
	for _, x := range strings.Split(r.String(), ",") {
		counts[x]++
	}
	if st != 1 || counts["a"] != 4 || counts["b"] != 4 || counts[""] != 4 || counts["out:undefined"] != 1 {
		t.Fatal(counts)
	}
}

func TestUnhandledAndMicrotasks(t *testing.T) {
	iso := newIso(t, Options{})
	var un []string
	iso.Unhandled = func(ctx int, msg string) { un = append(un, msg) }
	c := iso.NewContext(false)
	v := must[Value](t)(iso.Eval(c, `globalThis.x=0; Promise.resolve().then(()=>{x=1}); x`, "a.js", NoMicro))
	if v.Num != 0 {
		t.Fatal(v)
	}
	if v = must[Value](t)(iso.Eval(c, `x`, "a.js", NoMicro)); v.Num != 0 {
		t.Fatal("microtasks ran implicitly")
	}
	iso.Microtasks(c)
	if v = must[Value](t)(iso.Eval(c, `x`, "a.js", NoMicro)); v.Num != 1 {
		t.Fatal("microtasks did not run")
	}
	must[Value](t)(iso.Eval(c, `const p = Promise.reject(new Error("handled later")); Promise.resolve().then(()=>p.catch(()=>{})); (async()=>{ await null; throw new Error("lost") })(); 0`, "b.js", 0))
	if len(un) != 1 || !strings.Contains(un[0], "lost") {
		t.Fatal(un)
	}
	// per-context microtask queues are independent
	c2 := iso.NewContext(true)
	must[Value](t)(iso.Eval(c2, `globalThis.y=0; Promise.resolve().then(()=>{y=1}); 0`, "a.js", NoMicro))
	iso.Microtasks(c)
	if v = must[Value](t)(iso.Eval(c2, `y`, "a.js", NoMicro)); v.Num != 0 {
		t.Fatal("queue shared")
	}
	iso.Microtasks(c2)
	if v = must[Value](t)(iso.Eval(c2, `y`, "a.js", NoMicro)); v.Num != 1 {
		t.Fatal("own queue did not run")
	}
}

func TestTerminate(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	for _, src := range []string{`for(;;);`, `try { for(;;); } finally { for(;;); }`, `Promise.resolve().then(()=>{for(;;);}); 0`, `/(a+)+$/.test("a".repeat(40)+"b")`, `[...Array(1e7).keys()].sort(()=>Math.random()-0.5); for(;;);`, `new Promise(r=>{ (async function f(){ for(;;) await null })() })`} {
		go func() { time.Sleep(50 * time.Millisecond); iso.Terminate() }()
		t0 := time.Now()
		_, err := iso.Eval(c, src, "loop.js", 0)
		if !errors.Is(err, ErrTerminated) {
			t.Fatal(src, err)
		}
		d := time.Since(t0)
		if d > 3*time.Second {
			t.Error("slow", src, d)
		}
		t.Log(src, d)
		if v := must[Value](t)(iso.Eval(c, "1+1", "a.js", 0)); v.Num != 2 {
			t.Fatal("unusable")
		}
	}
	// what happens to other pending microtasks of the same queue
	must[Value](t)(iso.Eval(c, `globalThis.other=0; 0`, "a.js", 0))
	go func() { time.Sleep(20 * time.Millisecond); iso.Terminate() }()
	_, err := iso.Eval(c, `Promise.resolve().then(()=>{for(;;);}); Promise.resolve().then(()=>{other=1}); 0`, "a.js", 0)
	iso.Microtasks(c)
	v := must[Value](t)(iso.Eval(c, `other`, "a.js", 0))
	t.Log("after termination inside a checkpoint, the queue's other jobs ran:", v.Num == 1, err)
	// terminate while nested: JS -> Go -> JS
	f := must[Value](t)(iso.Eval(c, `()=>{for(;;);}`, "f.js", WantHandle))
	var inner error
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		_, inner = iso.Call(c, f.ID(), 0)
		return nil
	}
	go func() { time.Sleep(50 * time.Millisecond); iso.Terminate() }()
	_, err = iso.Eval(c, `try { __host.call(1) } catch(e) {} for(;;);`, "n.js", 0)
	if inner != ErrTerminated || err != ErrTerminated {
		t.Fatal(inner, err)
	}
}

func TestCPULimit(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		time.Sleep(300 * time.Millisecond) // blocking host call must not count
		return nil
	}
	limit := int64(100e6)
	stop := make(chan bool)
	var fired atomic.Int64
	go func() {
		start := int64(-1)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			cpu := iso.RunningCPU()
			if cpu < 0 {
				start = -1
				continue
			}
			if start < 0 {
				start = cpu
			}
			if cpu-start > limit {
				fired.Add(1)
				iso.Terminate()
				start = -1
			}
		}
	}()
	t0 := time.Now()
	if _, err := iso.Eval(c, `__host.call(1); 1`, "a.js", 0); err != nil {
		t.Fatal(err)
	}
	t.Log("blocked call", time.Since(t0), "fired", fired.Load())
	t0 = time.Now()
	_, err := iso.Eval(c, `for(;;);`, "a.js", 0)
	if err != ErrTerminated {
		t.Fatal(err)
	}
	t.Log("cpu limit hit after", time.Since(t0))
	close(stop)
}

func TestHeapLimit(t *testing.T) {
	for name, src := range map[string]string{
		"array":      `const a=[]; for(;;) a.push({x:1,y:[1,2,3]});`,
		"strings":    `let s="x"; const a=[]; for(let i=0;;i++) a.push(s.repeat(1000)+i+"é");`,
		"concatflat": `let s="0123456789".repeat(100); const a=[]; for(let i=0;;i++){ let q=s+i; q+=q; q+=q; q[5]; JSON.stringify(q); a.push(q+q) }`,
		"map":        `const m=new Map(); for(let i=0;;i++) m.set(i,{i});`,
		"bigarray":   `const a=[]; for(;;) a.push(new Array(1000000).fill(1.5));`,
		"join":       `const a=new Array(2000000).fill("abcdefghij"); const k=[]; for(;;) k.push(a.join("")+k.length);`,
		"json":       `const o=[]; for(let i=0;i<100000;i++) o.push({a:i,b:"x"+i}); const k=[]; for(;;) k.push(JSON.parse(JSON.stringify(o)));`,
		"closure":    `let f=()=>0; for(;;){ const g=f; const b=new Array(100).fill({}); f=()=>g(b); }`,
		"microtasks": `function g(){ for(let i=0;i<10;i++) Promise.resolve().then(g) } g(); 0`,
		"regex":      `const a=[]; for(let i=0;;i++) a.push(("abc"+i).match(/(a)(b)(c)(\d+)/));`,
		"bigint":     `let b=1n; const a=[]; for(;;){ b=(b<<100000n)|1n; a.push(b) }`,
		"hugealloc":  `const a=[]; for(;;) a.push(new Array(30*1024*1024/8).fill(0.5))`,
		"spread":     `let a=[1.5]; for(;;) a=[...a,...a];`,
		"typedarray": `const a=[]; for(;;) a.push(new Uint8Array(1<<20).fill(1));`,
		"flat256":    `let a="a".repeat(1<<28); const b=[]; for(let i=0;;i++){ const s=a+i; s.charCodeAt(5); b.push(s) }`,
		"sab":        `const a=[]; for(;;) a.push(new SharedArrayBuffer(1<<20));`,
		"wasmmem":    `const a=[]; for(;;) a.push(new WebAssembly.Memory({initial:160}));`,
	} {
		t.Run(name, func(t *testing.T) {
			iso := newIso(t, Options{HeapLimit: 64 << 20, BufferLimit: 64 << 20})
			c := iso.NewContext(false)
			must[Value](t)(iso.Eval(c, `globalThis.keep={v:7}; 0`, "k.js", 0))
			t0 := time.Now()
			tm := time.AfterFunc(20*time.Second, iso.Terminate)
			_, err := iso.Eval(c, "{"+src+"}", "oom.js", 0)
			tm.Stop()
			st := iso.Stats()
			t.Logf("%v in %v; after: used %dMB limit %dMB external %dMB hits %d", err, time.Since(t0).Round(time.Millisecond), st.Used>>20, st.Limit>>20, st.External>>20, st.OOMHits)
			if err == nil {
				t.Fatal("no error")
			}
			v, err := iso.Eval(c, `keep.v + [...Array(100000).keys()].length`, "after.js", 0)
			if err != nil || v.Num != 100007 {
				t.Fatal("isolate unusable afterwards", v, err)
			}
		})
	}
}

func TestMigrate(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	f := must[Value](t)(iso.Eval(c, `let n=0; (function rec(d){ return d? rec(d-1)+1 : (n++, 0) })`, "f.js", WantHandle))
	var wg sync.WaitGroup
	var so atomic.Int64
	over := must[Value](t)(iso.Eval(c, `()=>{ let d=0; (function g(){ d++; g() ; return 1})(); }`, "g.js", WantHandle))
	for g := 0; g < 16; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // force many threads
			defer runtime.UnlockOSThread()
			for k := 0; k < 200; k++ {
				iso.Lock()
				v, err := iso.Call(c, f.ID(), 0, N(1000))
				if err != nil || v.Num != 1000 {
					t.Error(v, err)
				}
				if k%50 == 0 {
					if _, err := iso.Call(c, over.ID(), 0); err != nil && strings.Contains(err.Error(), "Maximum call stack") {
						so.Add(1)
					} else {
						t.Error("no stack overflow", err)
					}
				}
				iso.Unlock()
			}
		}()
	}
	wg.Wait()
	t.Log("threads that entered:", ThreadsSeen(), "stack overflows caught:", so.Load())
}

func TestHostCalls(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		switch op {
		case 1:
			ret.Str(strings.ToUpper(args[0].Str()))
		case 2:
			ret.Bytes(bytes.Repeat(args[0].Raw(), 2))
		case 3:
			return errors.New("nope")
		case 4:
			panic("go panic")
		case 5:
			ret.Bytes(make([]byte, 1<<20))
		case 6:
			v, err := iso.Eval(ctx, "1+2", "nested.js", NoMicro)
			ret.Num(v.Num)
			return err
		}
		return nil
	}
	v := must[Value](t)(iso.Eval(c, `
	const r=[__host.call(1,"héllo\u{1F600}"), new Uint8Array(__host.call(2,new Uint8Array([1,2,3]))).join(), new Uint8Array(__host.call(2,new Uint8Array(300).subarray(0,2))).length, __host.call(5).byteLength, __host.call(6)];
	try{__host.call(3)}catch(e){r.push(e.message)} try{__host.call(4)}catch(e){r.push(e.message)} try{__host.async(3)}catch(e){r.push(e.message)} r.join("|")`, "h.js", 0))
	if v.String() != "HÉLLO\U0001F600|1,2,3,1,2,3|4|1048576|3|nope|internal error: go panic|nope" {
		t.Fatal(v)
	}
}

func TestCodeCache(t *testing.T) {
	src := prelude(400)
	a := newIso(t, Options{})
	ca := a.NewContext(false)
	t0 := time.Now()
	_, cache, err := a.EvalCached(ca, src, "p.js", nil, true)
	if err != nil {
		t.Fatal(err)
	}
	cold := time.Since(t0)
	b := newIso(t, Options{})
	cb := b.NewContext(false)
	t0 = time.Now()
	if _, _, err = b.EvalCached(cb, src, "p.js", cache, false); err != nil {
		t.Fatal(err)
	}
	t.Logf("prelude %dKB: cold %v, with code cache (%dKB) %v", len(src)>>10, cold, cache.Len()>>10, time.Since(t0))
	// modules
	id, _, err := a.CompileModule(ca, "export const a=1; export function f(x){return x+a}", "m.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	mc := a.ModuleCache(ca, id)
	_, rej, err := b.CompileModule(cb, "export const a=1; export function f(x){return x+a}", "m.js", mc)
	if err != nil || rej {
		t.Fatal(rej, err)
	}
	_, rej, err = b.CompileModule(cb, "export const a=1; export function f(x){return x+a+1111}", "m.js", mc)
	t.Log("changed source rejected:", rej, err)
}

func TestSnapshot(t *testing.T) {
	snap, err := CreateSnapshot(prelude(400)+als, "", true)
	if err != nil {
		t.Fatal(err)
	}
	iso := newIso(t, Options{Snapshot: snap})
	iso.Host = func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error {
		ret.Num(float64(op))
		return nil
	}
	c := iso.NewContext(false)
	v := must[Value](t)(iso.Eval(c, `__prelude.count + " " + new __prelude.Class1(4).sum() + " " + __host.call(9)+ " " + new AsyncLocalStorage().run(5, ()=>1)`, "a.js", 0))
	t.Log(snap.Len()>>10, "KB snapshot;", v)
	c2 := iso.NewContext(true)
	v = must[Value](t)(iso.Eval(c2, `__host.call(10)`, "a.js", 0))
	if v.Num != 10 {
		t.Fatal(v)
	}
}

// (module (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add) (memory (export "m") 1) (func (export "peek") (param i32) (result i32) local.get 0 i32.load))
var wasmBytes = []byte{0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
	1, 12, 2, 0x60, 2, 0x7f, 0x7f, 1, 0x7f, 0x60, 1, 0x7f, 1, 0x7f,
	3, 3, 2, 0, 1,
	5, 3, 1, 0, 1,
	7, 18, 3, 3, 'a', 'd', 'd', 0, 0, 4, 'p', 'e', 'e', 'k', 0, 1, 1, 'm', 2, 0,
	10, 16, 2, 7, 0, 0x20, 0, 0x20, 1, 0x6a, 0x0b, 6 + 0, 0, 0x20, 0, 0x28, 2, 0, 0x0b}

func init() { // fix the code section sizes of the hand-assembled module above
	body1 := []byte{0, 0x20, 0, 0x20, 1, 0x6a, 0x0b}
	body2 := []byte{0, 0x20, 0, 0x28, 2, 0, 0x0b}
	code := []byte{2, byte(len(body1))}
	code = append(code, body1...)
	code = append(code, byte(len(body2)))
	code = append(code, body2...)
	i := bytes.LastIndex(wasmBytes, []byte{10, 16})
	exp := []byte{3, 3, 'a', 'd', 'd', 0, 0, 4, 'p', 'e', 'e', 'k', 0, 1, 1, 'm', 2, 0}
	j := bytes.Index(wasmBytes, []byte{7, 18})
	w := append([]byte{}, wasmBytes[:j]...)
	w = append(w, 7, byte(len(exp)))
	w = append(w, exp...)
	w = append(w, 10, byte(len(code)))
	w = append(w, code...)
	_ = i
	wasmBytes = w
}

func TestWasm(t *testing.T) {
	a, b := newIso(t, Options{}), newIso(t, Options{})
	ca, cb := a.NewContext(false), b.NewContext(false)
	w, err := a.CompileWasm(ca, wasmBytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		i *Isolate
		c int
	}{{a, ca}, {b, cb}} {
		h := must[uint32](t)(x.i.WasmHandle(x.c, w))
		x.i.SetGlobal(x.c, "mod", H(h))
		v := must[Value](t)(x.i.Eval(x.c, `const ins=new WebAssembly.Instance(mod); let e=""; try{ins.exports.peek(1<<20)}catch(x){e=x.message} ins.exports.add(40,2)+" "+(mod instanceof WebAssembly.Module)+" "+e`, "w.js", 0))
		if v.String() != "42 true memory access out of bounds" {
			t.Fatal(v)
		}
	}
	t.Log("serialized wasm", len(w.Serialize()))
	// Bytes that came in at run time are never compiled.
	f := must[Value](t)(a.Eval(ca, `(b)=>{try{new WebAssembly.Module(b)}catch(e){return e.name}}`, "w2.js", WantHandle))
	if v := must[Value](t)(a.CallBytes(ca, f.ID(), 0, Bytes, wasmBytes)); v.String() != "CompileError" {
		t.Fatal(v)
	}
}

func TestInspector(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	var got []string
	iso.Inspector = func(m string) { got = append(got, m) }
	iso.InspectorOpen(c)
	iso.InspectorSend(`{"id":1,"method":"Runtime.enable"}`)
	iso.InspectorSend(`{"id":2,"method":"Debugger.enable"}`)
	iso.InspectorSend(`{"id":3,"method":"Runtime.evaluate","params":{"expression":"6*7"}}`)
	ok := false
	for _, g := range got {
		if strings.Contains(g, `"id":3`) && strings.Contains(g, "42") {
			ok = true
		}
	}
	if !ok {
		t.Fatal(got)
	}
	t.Log(len(got), "messages; e.g.", got[len(got)-1])
}

func TestParallelIsolates(t *testing.T) {
	var wg sync.WaitGroup
	for g := 0; g < 8; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			iso := New(Options{})
			defer iso.Close()
			c := iso.NewContext(false)
			for k := 0; k < 20; k++ {
				v, err := iso.Eval(c, fmt.Sprintf(`let s%d=0; for(let i=0;i<100000;i++) s%d+=i; s%d`, k, k, k), "a.js", 0)
				if err != nil || v.Num != 4999950000 {
					t.Error(v, err)
				}
				runtime.GC()
			}
		}()
	}
	wg.Wait()
}
