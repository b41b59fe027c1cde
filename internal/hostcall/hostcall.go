// Package hostcall is the seam between JavaScript and Go: what a host function
// sees, and the tables in which packages offer their functions. JavaScript
// calls them by name through runtime/src/host.ts.
package hostcall

import "context"

// Arg is one argument. Bytes and strings may point into V8's memory and are
// valid only until the function returns; copy what must live longer.
type Arg interface {
	Kind() Kind
	IsUndefined() bool
	IsNull() bool
	Bool() bool
	Num() float64
	Int() int
	Str() string   // a copy
	Bytes() []byte // a view of the ArrayBuffer (writable), or of a clone's wire bytes
}

// Frame is one call from JavaScript. The Set methods choose the result; without one it is undefined.
type Frame interface {
	Len() int
	Arg(i int) Arg // out of range: undefined
	SetBool(bool)
	SetNum(float64)
	SetStr(string)
	SetBytes([]byte) // copied into a new ArrayBuffer
	SetClone([]byte) // structured-clone wire bytes
	SetNull()
	SetTuple([]Value) // becomes an array; tuples do not nest here
	// Actor is whose turn this is: the cell or the request.
	Actor() any
}

// Value is the result of an asynchronous call.
type Value struct {
	Kind  Kind
	Num   float64
	Str   string
	Bytes []byte
	Items []Value // of a Tuple
}

// Short forms.
func Num(f float64) Value   { return Value{Kind: Number, Num: f} }
func Text(s string) Value   { return Value{Kind: String, Str: s} }
func Buf(b []byte) Value    { return Value{Kind: Buffer, Bytes: b} }
func Cloned(b []byte) Value { return Value{Kind: Clone, Bytes: b} }
func Bool(b bool) Value {
	if b {
		return Value{Kind: True}
	}
	return Value{Kind: False}
}

// Kind of a Value.
type Kind uint8

const (
	Undefined Kind = iota
	Null
	False
	True
	Number
	String
	Buffer // Bytes, as an ArrayBuffer
	Clone  // Bytes, in structured-clone form
	Tuple  // Items, as an array
)

// Sync runs inline on the JavaScript thread: it must not wait for another
// goroutine. A returned error becomes an exception; see Throw.
type Sync func(f Frame) error

// Async reads its arguments inline and returns the work, which runs on its
// own goroutine and settles the promise that JavaScript got.
type Async func(f Frame) (work func(ctx context.Context) (Value, error), err error)

// Op is one function that JavaScript can call. One of the two is set.
type Op struct {
	Name  string // "area.verb", such as "crypto.digest"
	Sync  Sync
	Async Async
	// Output: the work shows something of the cell to others, so it starts only
	// when everything the cell has written by then is proven.
	Output bool
}

// Throw is an error of a given JavaScript class: TypeError, RangeError,
// SyntaxError, Error, or a DOMException name such as DataError.
type Throw struct{ Class, Message string }

func (t *Throw) Error() string { return t.Message }
