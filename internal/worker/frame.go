package worker

import (
	"errors"

	"celld/internal/call"
	"celld/internal/hostcall"
	"celld/internal/v8"
)

// frame is one host call as the function that serves it sees it.
type frame struct {
	iso  *isolate
	args []v8.Arg
	ret  *v8.Ret
}

// frames are reused: host calls nest only as deep as JavaScript that calls Go
// that calls JavaScript does, which is once.
type frames struct {
	pool  [4]frame
	depth int
}

func (f *frame) Len() int { return len(f.args) }

var undefined v8.Arg

func (f *frame) Arg(i int) hostcall.Arg {
	if i >= len(f.args) {
		return &undefined
	}
	return &f.args[i]
}

func (f *frame) SetBool(b bool)              { f.ret.Bool(b) }
func (f *frame) SetNum(n float64)            { f.ret.Num(n) }
func (f *frame) SetStr(s string)             { f.ret.Str(s) }
func (f *frame) SetBytes(b []byte)           { f.ret.Bytes(b) }
func (f *frame) SetClone(b []byte)           { f.ret.CloneOf(b) }
func (f *frame) SetNull()                    { f.ret.Null() }
func (f *frame) SetTuple(v []hostcall.Value) { f.ret.Tuple(v) }
func (f *frame) Actor() any {
	if f.iso.cur == nil {
		return nil
	}
	return f.iso.cur
}

// host serves one call of JavaScript. promise is 0 for a synchronous one.
func (i *isolate) host(_ *v8.Isolate, _ int, op, promise uint32, args []v8.Arg, ret *v8.Ret) error {
	t := i.script.rt.table
	if op == 0 || int(op) >= len(t.ops) {
		return throwError{"Error", "no such host function"}
	}
	f := i.frames.push()
	defer i.frames.pop()
	f.iso, f.args, f.ret = i, args, ret
	o := &t.ops[op]
	var err error
	switch {
	case promise != 0 && o.Async != nil:
		err = i.begin(o, promise, f)
	case promise == 0 && o.Sync != nil:
		err = o.Sync(f)
	default:
		err = throwError{"Error", "host function " + o.Name + " was called the wrong way"}
	}
	if err != nil {
		return asThrow(err)
	}
	return nil
}

func (f *frames) push() *frame {
	f.depth++
	if f.depth <= len(f.pool) {
		return &f.pool[f.depth-1]
	}
	return new(frame)
}

func (f *frames) pop() { f.depth-- }

// throwError crosses to V8 as "Class\0message".
type throwError struct{ class, message string }

func (e throwError) Error() string { return e.class + "\x00" + e.message }

// asThrow says which class of error JavaScript sees.
func asThrow(err error) throwError {
	var t *hostcall.Throw
	var te throwError
	var ex *call.Exception
	switch {
	case errors.As(err, &te):
		return te
	case errors.As(err, &t):
		return throwError{t.Class, t.Message}
	case errors.As(err, &ex):
		return throwError{ex.Name, ex.Message}
	}
	return throwError{"Error", err.Error()}
}
