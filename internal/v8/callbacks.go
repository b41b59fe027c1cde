package v8

/*
#include "binding.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

func lookup(token C.uint64_t) *Isolate { return table[uint64(token)%maxIso].Load() }

//export wvGoHost
func wvGoHost(token C.uint64_t, ctx C.int, op, promise C.uint32_t, args *C.wv_val, n C.int, ret *C.wv_val) (rc C.int) {
	iso := lookup(token)
	r := Ret{ret}
	// A Go panic must not unwind through C++ frames.
	defer func() {
		if e := recover(); e != nil {
			r.Str(fmt.Sprint("internal error: ", e))
			rc = 1
		}
	}()
	var as []Arg
	if n > 0 {
		as = unsafe.Slice((*Arg)(unsafe.Pointer(args)), int(n))
	}
	if err := iso.Host(iso, int(ctx), uint32(op), uint32(promise), as, &r); err != nil {
		r.Str(err.Error())
		return 1
	}
	return 0
}

//export wvGoResolve
func wvGoResolve(token C.uint64_t, ctx C.int, spec *C.char, n C.size_t, ref *C.char, rn C.size_t, dynamic C.int) C.int {
	iso := lookup(token)
	if iso.Resolve == nil {
		return -1
	}
	return C.int(iso.Resolve(iso, int(ctx), C.GoStringN(spec, C.int(n)), C.GoStringN(ref, C.int(rn)), dynamic != 0))
}

//export wvGoUnhandled
func wvGoUnhandled(token C.uint64_t, ctx C.int, msg *C.char, n C.size_t) {
	if iso := lookup(token); iso.Unhandled != nil {
		iso.Unhandled(int(ctx), C.GoStringN(msg, C.int(n)))
	}
}

//export wvGoWake
func wvGoWake(token C.uint64_t) {
	if iso := lookup(token); iso != nil {
		iso.Wakes.Add(1)
		if f := iso.wake.Load(); f != nil {
			(*f)()
		}
	}
}

//export wvGoInspector
func wvGoInspector(token C.uint64_t, msg *C.char, n C.size_t) {
	if iso := lookup(token); iso.Inspector != nil {
		iso.Inspector(C.GoStringN(msg, C.int(n)))
	}
}

//export wvGoFatal
func wvGoFatal(token C.uint64_t, msg *C.char, n C.size_t) {
	if iso := lookup(token); iso != nil {
		iso.Dead.Store(&JSError{C.GoStringN(msg, C.int(n))})
		if iso.Fatal != nil {
			iso.Fatal(C.GoStringN(msg, C.int(n)))
		}
	}
}

//export wvGoPause
func wvGoPause(token C.uint64_t) {
	if iso := lookup(token); iso.Pause != nil {
		iso.Pause()
	}
}
