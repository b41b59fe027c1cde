package v8

/*
#include <stdlib.h>
#include "binding.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"celld/internal/hostcall"
)

// Args builds the arguments of a call. Its memory is pinned until Reset, so
// that strings and bytes cross without a copy in Go.
type Args struct {
	vals []V
	pin  runtime.Pinner
}

// Reset makes a empty again and lets its memory go.
func (a *Args) Reset() {
	a.pin.Unpin()
	a.vals = a.vals[:0]
}

func (a *Args) Undefined()      { a.vals = append(a.vals, V{tag: C.WV_UNDEF}) }
func (a *Args) Null()           { a.vals = append(a.vals, V{tag: C.WV_NULL}) }
func (a *Args) Num(f float64)   { a.vals = append(a.vals, N(f)) }
func (a *Args) Handle(h uint32) { a.vals = append(a.vals, H(h)) }
func (a *Args) Str(s string)    { a.bytes(C.WV_STR, unsafe.Pointer(unsafe.StringData(s)), len(s)) }
func (a *Args) Bytes(b []byte)  { a.bytes(C.WV_BYTES, bptr(b), len(b)) }
func (a *Args) Clone(b []byte)  { a.bytes(C.WV_CLONE, bptr(b), len(b)) }
func (a *Args) Bool(b bool) {
	tag := C.uint32_t(C.WV_FALSE)
	if b {
		tag = C.WV_TRUE
	}
	a.vals = append(a.vals, V{tag: tag})
}

func (a *Args) bytes(tag C.uint32_t, p unsafe.Pointer, n int) {
	v := V{tag: tag, len: C.size_t(n)}
	if n > 0 {
		a.pin.Pin(p)
		v.ptr = C.uint64_t(uintptr(p))
	}
	a.vals = append(a.vals, v)
}

// Value appends v, whatever it is.
func (a *Args) Value(v hostcall.Value) {
	switch v.Kind {
	case hostcall.Undefined:
		a.Undefined()
	case hostcall.Null:
		a.Null()
	case hostcall.False, hostcall.True:
		a.Bool(v.Kind == hostcall.True)
	case hostcall.Number:
		a.Num(v.Num)
	case hostcall.String:
		a.Str(v.Str)
	case hostcall.Buffer:
		a.Bytes(v.Bytes)
	case hostcall.Clone:
		a.Clone(v.Bytes)
	case hostcall.Tuple:
		a.tuple(v.Items)
	}
}

// tuple builds its items behind a pointer of their own.
func (a *Args) tuple(items []hostcall.Value) {
	inner := Args{vals: make([]V, 0, len(items))}
	for _, it := range items {
		switch it.Kind {
		case hostcall.String, hostcall.Buffer, hostcall.Clone:
			// Pinned through a, which outlives the call.
			n := len(a.vals)
			a.Value(it)
			inner.vals = append(inner.vals, a.vals[n])
			a.vals = a.vals[:n]
		default:
			inner.Value(it)
		}
	}
	v := V{tag: C.WV_TUPLE, len: C.size_t(len(inner.vals))}
	if len(inner.vals) > 0 {
		a.pin.Pin(&inner.vals[0])
		v.ptr = C.uint64_t(uintptr(unsafe.Pointer(&inner.vals[0])))
	}
	a.vals = append(a.vals, v)
}

// CallArgs calls the function handle fn.
func (i *Isolate) CallArgs(ctx int, fn uint32, flags int, a *Args) (Value, error) {
	var r C.wv_val
	var p *C.wv_val
	if len(a.vals) > 0 {
		p = &a.vals[0]
	}
	rc := C.wv_call(i.p, C.int(ctx), C.uint32_t(fn), p, C.int(len(a.vals)), C.int(flags), &r)
	if rc != 0 {
		return Value{}, i.err(rc)
	}
	return out(&r), nil
}

// Settle settles host promises: ids[k] with the k-th value of a, rejected where
// reject[k] is 1. A rejection with a string "Class\x00message" makes an error of that class.
func (i *Isolate) Settle(ctx int, ids []uint32, reject []uint8, a *Args, flags int) error {
	if len(ids) == 0 {
		return nil
	}
	return i.err(C.wv_resolve_batch(i.p, C.int(ctx), C.int(len(ids)), (*C.uint32_t)(unsafe.Pointer(&ids[0])), (*C.uint8_t)(unsafe.Pointer(&reject[0])), &a.vals[0], C.int(flags)))
}

// DropResolver forgets a host promise; it stays pending for ever.
func (i *Isolate) DropResolver(id uint32) { C.wv_resolver_drop(i.p, C.uint32_t(id)) }

// SetErrorFactory names the function (class, message) that makes errors of classes V8 does not know.
func (i *Isolate) SetErrorFactory(fn uint32) { C.wv_set_error_factory(i.p, C.uint32_t(fn)) }

// What hostcall.Arg asks of an argument.

var kinds = [...]hostcall.Kind{
	C.WV_UNDEF: hostcall.Undefined, C.WV_NULL: hostcall.Null, C.WV_FALSE: hostcall.False, C.WV_TRUE: hostcall.True,
	C.WV_NUM: hostcall.Number, C.WV_STR: hostcall.String, C.WV_BYTES: hostcall.Buffer, C.WV_CLONE: hostcall.Clone,
}

// Kind of the argument; an object that is none of them is Undefined.
func (a *Arg) Kind() hostcall.Kind {
	if int(a.v.tag) < len(kinds) {
		return kinds[a.v.tag]
	}
	return hostcall.Undefined
}

func (a *Arg) IsUndefined() bool { return a.v.tag == C.WV_UNDEF }
func (a *Arg) IsNull() bool      { return a.v.tag == C.WV_NULL }
func (a *Arg) Bool() bool        { return a.v.tag == C.WV_TRUE }
func (a *Arg) Int() int          { return int(a.v.num) }
func (a *Arg) Bytes() []byte     { return a.Raw() }

// What hostcall.Frame asks of a result.

func (r *Ret) Bool(b bool) {
	r.v.tag = C.WV_FALSE
	if b {
		r.v.tag = C.WV_TRUE
	}
}
func (r *Ret) Null() { r.v.tag = C.WV_NULL }

// Throw makes the call throw an error of that class.
func (r *Ret) Throw(class, message string) { r.Str(class + "\x00" + message) }

// Tuple returns an array; its memory is C's, which frees it.
func (r *Ret) Tuple(items []hostcall.Value) {
	arr := (*C.wv_val)(C.calloc(C.size_t(max(len(items), 1)), C.size_t(unsafe.Sizeof(C.wv_val{}))))
	vals := unsafe.Slice(arr, len(items))
	for k, it := range items {
		v := &vals[k]
		switch it.Kind {
		case hostcall.Undefined:
			v.tag = C.WV_UNDEF
		case hostcall.Null:
			v.tag = C.WV_NULL
		case hostcall.False:
			v.tag = C.WV_FALSE
		case hostcall.True:
			v.tag = C.WV_TRUE
		case hostcall.Number:
			v.tag, v.num = C.WV_NUM, C.double(it.Num)
		case hostcall.String:
			v.tag, v.len, v.ptr = C.WV_STR, C.size_t(len(it.Str)), C.uint64_t(uintptr(C.CBytes([]byte(it.Str))))
		case hostcall.Buffer:
			v.tag, v.len, v.ptr = C.WV_BYTES, C.size_t(len(it.Bytes)), C.uint64_t(uintptr(C.CBytes(it.Bytes)))
		case hostcall.Clone:
			v.tag, v.len, v.ptr = C.WV_CLONE, C.size_t(len(it.Bytes)), C.uint64_t(uintptr(C.CBytes(it.Bytes)))
		default:
			panic("a tuple within a tuple cannot be returned")
		}
	}
	r.v.tag, r.v.ptr, r.v.len = C.WV_TUPLE, C.uint64_t(uintptr(unsafe.Pointer(arr))), C.size_t(len(items))
}
