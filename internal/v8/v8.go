package v8

/*
#include <stdlib.h>
#include "binding.h"
#cgo noescape wv_call
#cgo noescape wv_resolve_batch
#cgo noescape wv_last_error
#cgo nocallback wv_last_error
#cgo nocallback wv_nop
#cgo nocallback wv_terminate
#cgo nocallback wv_iso_running_cpu_ns
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ---- process ---------------------------------------------------------------

// SafeFlags: TurboFan's loop unrolling (13.6) can drop the stack check of an outer infinite
// loop, which makes it immune to TerminateExecution.
var SafeFlags = "--no-turboshaft-loop-unrolling "

var initOnce sync.Once

// Init starts V8. flags are V8 flags; workers is the size of V8's own thread pool.
func Init(flags string, workers int) {
	initOnce.Do(func() {
		f := C.CString(SafeFlags + flags)
		defer C.free(unsafe.Pointer(f))
		C.wv_init(f, C.int(workers))
	})
}

func Version() string          { return C.GoString(C.wv_version()) }
func TrapHandler(mode int) int { return int(C.wv_trap_handler(C.int(mode))) }
func Nop(i int) int            { return int(C.wv_nop(C.int(i))) }
func ThreadsSeen() int         { return int(C.wv_threads_created()) }

// Blob is C memory holding a snapshot or a code cache.
type Blob struct{ b C.wv_blob }

func (b *Blob) Len() int { return int(b.b.len) }
func (b *Blob) Bytes() []byte {
	return C.GoBytes(unsafe.Pointer(b.b.data), b.b.len)
}
func BlobFrom(p []byte) *Blob {
	return &Blob{C.wv_blob{data: (*C.char)(C.CBytes(p)), len: C.int(len(p))}}
}
func (b *Blob) Free() { C.wv_free(unsafe.Pointer(b.b.data)); b.b = C.wv_blob{} }

func CreateSnapshot(src, warm string, keepCode bool) (*Blob, error) {
	var b Blob
	k := 0
	if keepCode {
		k = 1
	}
	if C.wv_snapshot_create(sptr(src), C.size_t(len(src)), sptr(warm), C.size_t(len(warm)), C.int(k), &b.b) == 0 {
		return nil, errors.New("snapshot failed")
	}
	return &b, nil
}

// ---- isolate ---------------------------------------------------------------

const maxIso = 1 << 16

var table [maxIso]atomic.Pointer[Isolate]
var nextIso atomic.Uint64

type Isolate struct {
	mu    sync.Mutex // owner of the isolate; the only way into C
	p     *C.wv_iso
	token uint64
	snap  *Blob

	Host      func(iso *Isolate, ctx int, op, promise uint32, args []Arg, ret *Ret) error
	Resolve   func(iso *Isolate, ctx int, spec, referrer string, dynamic bool) int
	Unhandled func(ctx int, msg string)
	Inspector func(msg string)
	Pause     func()           // paused in the debugger: deliver one inspector message
	Fatal     func(msg string) // the isolate is lost and its thread parked
	Dead      atomic.Pointer[JSError]
	wake      atomic.Pointer[func()]
	Wakes     atomic.Int64
}

type Options struct {
	HeapLimit, YoungLimit, InitHeap, BufferLimit int
	Snapshot                                     *Blob
}

func New(o Options) *Isolate {
	Init("", 0)
	tok := nextIso.Add(1)
	iso := &Isolate{token: tok, snap: o.Snapshot}
	table[tok%maxIso].Store(iso)
	co := C.wv_iso_opts{token: C.uint64_t(tok), heap_limit: C.size_t(o.HeapLimit), young_limit: C.size_t(o.YoungLimit), init_heap: C.size_t(o.InitHeap), buffer_limit: C.size_t(o.BufferLimit)}
	var pin runtime.Pinner
	if o.Snapshot != nil {
		pin.Pin(&o.Snapshot.b)
		co.snapshot = &o.Snapshot.b
	}
	iso.p = C.wv_iso_new(&co)
	pin.Unpin()
	return iso
}

func (i *Isolate) OnWake(f func()) { i.wake.Store(&f) }

func (i *Isolate) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.p != nil {
		C.wv_iso_free(i.p)
		i.p = nil
		table[i.token%maxIso].Store(nil)
	}
}

// Lock/Unlock let a caller run several operations as one turn.
func (i *Isolate) Lock()   { i.mu.Lock() }
func (i *Isolate) Unlock() { i.mu.Unlock() }

// Hold enters the isolate on the current OS thread (which the caller has locked).
func (i *Isolate) Hold()    { C.wv_lock(i.p) }
func (i *Isolate) Release() { C.wv_unlock(i.p) }

func (i *Isolate) Terminate()        { C.wv_terminate(i.p) }
func (i *Isolate) RunningCPU() int64 { return int64(C.wv_iso_running_cpu_ns(i.p)) }
func (i *Isolate) SetStack(n int)    { C.wv_iso_set_stack(i.p, C.size_t(n)) }
func (i *Isolate) GC(level int)      { C.wv_iso_gc(i.p, C.int(level)) }
func (i *Isolate) Pump() (int, float64) {
	var d C.double
	n := C.wv_iso_pump(i.p, &d)
	return int(n), float64(d)
}

type Stats struct {
	Used, Total, Physical, Limit, External, Malloced, Contexts, Detached uint64
	OOMHits, PendingTasks                                                uint32
}

func (i *Isolate) Stats() Stats {
	var s C.wv_stats
	C.wv_iso_stats(i.p, &s)
	return Stats{uint64(s.used), uint64(s.total), uint64(s.physical), uint64(s.limit), uint64(s.external), uint64(s.malloced), uint64(s.contexts), uint64(s.detached), uint32(s.oom_hits), uint32(s.pending_tasks)}
}

// ---- values ------------------------------------------------------------------

const (
	Undef   = C.WV_UNDEF
	Null    = C.WV_NULL
	False   = C.WV_FALSE
	True    = C.WV_TRUE
	Num     = C.WV_NUM
	Str     = C.WV_STR
	Bytes   = C.WV_BYTES
	Clone   = C.WV_CLONE
	Handle  = C.WV_HANDLE
	Promise = C.WV_PROMISE
	Tuple   = C.WV_TUPLE

	NoMicro    = C.WV_F_NOMICRO
	WantClone  = C.WV_F_CLONE
	WantHandle = C.WV_F_HANDLE
)

// Value is a copied result.
type Value struct {
	Tag int
	Num float64
	B   []byte
}

func (v Value) String() string {
	switch v.Tag {
	case Str:
		return string(v.B)
	case Num:
		return fmt.Sprint(v.Num)
	case Undef:
		return "undefined"
	case Null:
		return "null"
	case True:
		return "true"
	case False:
		return "false"
	}
	return fmt.Sprintf("tag%d:%v", v.Tag, v.Num)
}
func (v Value) ID() uint32 { return uint32(v.Num) }

// Arg is a host call argument; its bytes alias V8 memory until the callback returns.
type Arg struct{ v C.wv_val }

func (a *Arg) Tag() int     { return int(a.v.tag) }
func (a *Arg) Num() float64 { return float64(a.v.num) }
func (a *Arg) Raw() []byte {
	if a.v.len == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(cptr(a.v.ptr)), int(a.v.len))
}
func (a *Arg) Str() string { return string(a.Raw()) }

// cptr turns an address of C memory back into a pointer.
func cptr(a C.uint64_t) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

type Ret struct{ v *C.wv_val }

func (r *Ret) Num(f float64) { r.v.tag = C.WV_NUM; r.v.num = C.double(f) }
func (r *Ret) put(tag C.uint32_t, p []byte) {
	if len(p) > int(r.v.cap) {
		r.v.ptr = C.uint64_t(uintptr(C.CBytes(p)))
	} else if len(p) > 0 {
		copy(unsafe.Slice((*byte)(cptr(r.v.ptr)), len(p)), p)
	}
	r.v.tag = tag
	r.v.len = C.size_t(len(p))
}
func (r *Ret) Bytes(p []byte)   { r.put(C.WV_BYTES, p) }
func (r *Ret) CloneOf(p []byte) { r.put(C.WV_CLONE, p) }
func (r *Ret) Str(s string)     { r.put(C.WV_STR, unsafe.Slice(unsafe.StringData(s), len(s))) }

func sptr(s string) *C.char {
	if len(s) == 0 {
		return nil
	}
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s)))
}
func bptr(p []byte) unsafe.Pointer {
	if len(p) == 0 {
		return nil
	}
	return unsafe.Pointer(&p[0])
}

// ---- errors ------------------------------------------------------------------

var (
	ErrTerminated = errors.New("execution terminated")
	ErrOOM        = errors.New("memory limit exceeded")
)

type JSError struct{ Msg string }

func (e *JSError) Error() string { return e.Msg }

func (i *Isolate) err(rc C.int) error {
	switch rc {
	case C.WV_OK:
		return nil
	case C.WV_TERMINATED:
		return ErrTerminated
	case C.WV_OOM:
		return ErrOOM
	}
	return i.lastErr()
}

func (i *Isolate) lastErr() error {
	var p *C.char
	var n C.size_t
	C.wv_last_error(i.p, &p, &n)
	return &JSError{C.GoStringN(p, C.int(n))}
}

func out(v *C.wv_val) Value {
	r := Value{Tag: int(v.tag), Num: float64(v.num)}
	if v.len > 0 {
		r.B = C.GoBytes(cptr(v.ptr), C.int(v.len))
	}
	return r
}

// ---- contexts and code ------------------------------------------------------
// The caller owns the isolate (Lock) while using these.

func (i *Isolate) NewContext(ownQueue bool) int {
	q := 0
	if ownQueue {
		q = 1
	}
	return int(C.wv_ctx_new(i.p, C.int(q)))
}
func (i *Isolate) FreeContext(c int) { C.wv_ctx_free(i.p, C.int(c)) }

func (i *Isolate) Eval(ctx int, src, name string, flags int) (Value, error) {
	var r C.wv_val
	rc := C.wv_eval(i.p, C.int(ctx), sptr(src), C.size_t(len(src)), sptr(name), C.size_t(len(name)), C.int(flags), nil, nil, &r)
	if rc != 0 {
		return Value{}, i.err(rc)
	}
	return out(&r), nil
}

func (i *Isolate) EvalCached(ctx int, src, name string, in *Blob, wantCache bool) (Value, *Blob, error) {
	var r C.wv_val
	var cin, cout *C.wv_blob
	var pin runtime.Pinner
	defer pin.Unpin()
	if in != nil {
		pin.Pin(&in.b)
		cin = &in.b
	}
	var ob Blob
	if wantCache {
		pin.Pin(&ob.b)
		cout = &ob.b
	}
	rc := C.wv_eval(i.p, C.int(ctx), sptr(src), C.size_t(len(src)), sptr(name), C.size_t(len(name)), 0, cin, cout, &r)
	if rc != 0 {
		return Value{}, nil, i.err(rc)
	}
	return out(&r), &ob, nil
}

type V = C.wv_val

func N(f float64) V { return V{tag: C.WV_NUM, num: C.double(f)} }
func H(h uint32) V  { return V{tag: C.WV_HANDLE, num: C.double(h)} }

// Call calls the function handle fn. Byte arguments are pinned for the call.
func (i *Isolate) Call(ctx int, fn uint32, flags int, args ...V) (Value, error) {
	var r C.wv_val
	var p *C.wv_val
	if len(args) > 0 {
		p = &args[0]
	}
	rc := C.wv_call(i.p, C.int(ctx), C.uint32_t(fn), p, C.int(len(args)), C.int(flags), &r)
	if rc != 0 {
		return Value{}, i.err(rc)
	}
	return out(&r), nil
}

// CallBytes calls fn with one byte argument of the given tag.
func (i *Isolate) CallBytes(ctx int, fn uint32, flags int, tag int, b []byte) (Value, error) {
	var r C.wv_val
	var pin runtime.Pinner
	a := V{tag: C.uint32_t(tag), ptr: C.uint64_t(uintptr(bptr(b))), len: C.size_t(len(b))}
	if len(b) > 0 {
		pin.Pin(&b[0])
	}
	rc := C.wv_call(i.p, C.int(ctx), C.uint32_t(fn), &a, 1, C.int(flags), &r)
	pin.Unpin()
	if rc != 0 {
		return Value{}, i.err(rc)
	}
	return out(&r), nil
}

// Call2 calls fn(number, bytes).
func (i *Isolate) Call2(ctx int, fn uint32, flags int, n float64, tag int, b []byte) (Value, error) {
	var r C.wv_val
	var pin runtime.Pinner
	a := [2]V{N(n), {tag: C.uint32_t(tag), ptr: C.uint64_t(uintptr(bptr(b))), len: C.size_t(len(b))}}
	if len(b) > 0 {
		pin.Pin(&b[0])
	}
	rc := C.wv_call(i.p, C.int(ctx), C.uint32_t(fn), &a[0], 2, C.int(flags), &r)
	pin.Unpin()
	if rc != 0 {
		return Value{}, i.err(rc)
	}
	return out(&r), nil
}

func (i *Isolate) Microtasks(ctx int) error { return i.err(C.wv_microtasks(i.p, C.int(ctx))) }

// PromiseState: 0 pending, 1 fulfilled, 2 rejected.
func (i *Isolate) PromiseState(ctx int, h uint32, flags int) (int, Value, error) {
	var r C.wv_val
	st := C.wv_promise_state(i.p, C.int(ctx), C.uint32_t(h), C.int(flags), &r)
	switch st {
	case 1:
		return 1, out(&r), nil
	case 2:
		return 2, Value{}, i.lastErr()
	}
	return 0, Value{}, nil
}

// ResolveBatch settles host promises; all vals must be scalars here.
func (i *Isolate) ResolveBatch(ctx int, ids []uint32, vals []V, flags int) error {
	return i.err(C.wv_resolve_batch(i.p, C.int(ctx), C.int(len(ids)), (*C.uint32_t)(unsafe.Pointer(&ids[0])), nil, &vals[0], C.int(flags)))
}

func (i *Isolate) FreeHandle(h uint32) { C.wv_handle_free(i.p, C.uint32_t(h)) }
func (i *Isolate) SetGlobal(ctx int, name string, v V) error {
	return i.err(C.wv_set_global(i.p, C.int(ctx), sptr(name), C.size_t(len(name)), &v))
}

// ---- modules --------------------------------------------------------------------

func (i *Isolate) CompileModule(ctx int, src, name string, cache *Blob) (id int, rejected bool, err error) {
	var rej C.int
	var cin *C.wv_blob
	var pin runtime.Pinner
	if cache != nil {
		pin.Pin(&cache.b)
		cin = &cache.b
	}
	m := C.wv_mod_compile(i.p, C.int(ctx), sptr(src), C.size_t(len(src)), sptr(name), C.size_t(len(name)), cin, &rej)
	pin.Unpin()
	if m < 0 {
		return -1, false, i.lastErr()
	}
	return int(m), rej != 0, nil
}
func (i *Isolate) SyntheticModule(ctx int, name string, exports uint32) (int, error) {
	m := C.wv_mod_synthetic(i.p, C.int(ctx), sptr(name), C.size_t(len(name)), C.uint32_t(exports))
	if m < 0 {
		return -1, i.lastErr()
	}
	return int(m), nil
}
func (i *Isolate) Instantiate(ctx, mod int) error {
	return i.err(C.wv_mod_instantiate(i.p, C.int(ctx), C.int(mod)))
}
func (i *Isolate) Evaluate(ctx, mod, flags int) (Value, error) {
	var r C.wv_val
	rc := C.wv_mod_evaluate(i.p, C.int(ctx), C.int(mod), C.int(flags), &r)
	if rc != 0 {
		return Value{}, i.err(rc)
	}
	return out(&r), nil
}
func (i *Isolate) Export(ctx, mod int, name string) (uint32, error) {
	var r C.wv_val
	rc := C.wv_mod_namespace(i.p, C.int(ctx), C.int(mod), sptr(name), C.size_t(len(name)), &r)
	if rc != 0 {
		return 0, i.err(rc)
	}
	return uint32(r.num), nil
}
func (i *Isolate) ModuleCache(ctx, mod int) *Blob {
	var b Blob
	if C.wv_mod_cache(i.p, C.int(ctx), C.int(mod), &b.b) != 0 {
		return nil
	}
	return &b
}

// ---- wasm ----------------------------------------------------------------------

type Wasm struct{ p *C.wv_wasm }

func (i *Isolate) CompileWasm(ctx int, b []byte) (*Wasm, error) {
	w := C.wv_wasm_compile(i.p, C.int(ctx), bptr(b), C.size_t(len(b)))
	if w == nil {
		return nil, i.lastErr()
	}
	return &Wasm{w}, nil
}
func (i *Isolate) WasmHandle(ctx int, w *Wasm) (uint32, error) {
	var r C.wv_val
	rc := C.wv_wasm_handle(i.p, C.int(ctx), w.p, &r)
	return uint32(r.num), i.err(rc)
}
func (w *Wasm) Serialize() []byte {
	var b Blob
	C.wv_wasm_serialize(w.p, &b.b)
	defer b.Free()
	return b.Bytes()
}
func (w *Wasm) Free() { C.wv_wasm_free(w.p); w.p = nil }

// ---- inspector -------------------------------------------------------------------

func (i *Isolate) InspectorOpen(ctx int) { C.wv_insp_open(i.p, C.int(ctx)) }
func (i *Isolate) InspectorSend(m string) {
	C.wv_insp_send(i.p, sptr(m), C.size_t(len(m)))
}
func (i *Isolate) InspectorClose() { C.wv_insp_close(i.p) }

func (i *Isolate) NaiveCall(ctx int, fn uint32) int {
	return int(C.wv_naive_call(i.p, C.int(ctx), C.uint32_t(fn)))
}
