package peer

import (
	"context"
	"errors"
	"fmt"

	"celld/internal/call"
)

// Refusal says why a callee did not start a call.
type Refusal byte

const (
	Stale      Refusal = iota + 1 // the callee does not own the cell at that epoch
	Fenced                        // it cannot prove its authority
	Draining                      // it is shutting down
	Overloaded                    // too much is under way
	Unknown                       // it does not know the verb, or anything else before a handler
)

func (r Refusal) String() string {
	return [...]string{"?", "stale owner", "fenced", "draining", "overloaded", "refused"}[min(int(r), 5)]
}

// RefusedError is proof from the callee that no handler ran.
type RefusedError struct {
	Reason Refusal
	Detail string
}

func (e *RefusedError) Error() string {
	return "peer refused the call (" + e.Reason.String() + "): " + e.Detail
}

func (e *RefusedError) Unwrap() error {
	if e.Reason == Overloaded {
		return call.ErrOverloaded
	}
	return call.ErrNotStarted
}

// notStarted marks an error that happened before the first byte of a call.
func notStarted(err error) error { return fmt.Errorf("%w: %w", call.ErrNotStarted, err) }

// LostError: the stream broke after the call was sent. It may have run or not.
type LostError struct{ Cause error }

func (e *LostError) Error() string {
	return "the connection to the peer was lost while the call was under way; it may have run or not: " + e.Cause.Error()
}
func (e *LostError) Unwrap() error { return e.Cause }

func encodeRefusal(err error) []byte {
	r := Unknown
	var given *RefusedError
	switch {
	case errors.As(err, &given):
		r = given.Reason
	case errors.Is(err, call.ErrOverloaded):
		r = Overloaded
	case errors.Is(err, call.ErrFenced):
		r = Fenced
	case errors.Is(err, call.ErrNotStarted):
		r = Stale
	}
	return append([]byte{byte(r)}, err.Error()...)
}

func decodeRefusal(b []byte) error {
	if len(b) == 0 {
		return errFrame
	}
	return &RefusedError{Reason: Refusal(b[0]), Detail: string(b[1:])}
}

// The errors that keep their identity across the tunnel.
const (
	failText = iota
	failException
	failFenced
	failUnproven
	failCanceled
)

func encodeFailure(err error) []byte {
	var e encoder
	var ex *call.Exception
	switch {
	case errors.As(err, &ex):
		e.uint(failException)
		e.str(ex.Name)
		e.str(ex.Message)
		e.str(ex.Stack)
		e.bool(ex.Remote)
		e.bool(ex.Retryable)
		e.bool(ex.Overloaded)
		e.bool(ex.Reset)
		e.bytes(ex.Clone)
	case errors.Is(err, call.ErrFenced):
		e.uint(failFenced)
	case errors.Is(err, call.ErrUnproven):
		e.uint(failUnproven)
	case errors.Is(err, context.Canceled):
		e.uint(failCanceled)
	default:
		e.uint(failText)
		e.str(err.Error())
	}
	return e.b
}

func decodeFailure(b []byte) error {
	d := decoder{b: b}
	var err error
	switch d.uint() {
	case failException:
		err = &call.Exception{Name: d.str(), Message: d.str(), Stack: d.str(), Remote: d.bool(), Retryable: d.bool(), Overloaded: d.bool(), Reset: d.bool(), Clone: d.bytes()}
	case failFenced:
		err = call.ErrFenced
	case failUnproven:
		err = call.ErrUnproven
	case failCanceled:
		err = context.Canceled
	case failText:
		err = errors.New(d.str())
	default:
		return errFrame
	}
	if bad := d.end(); bad != nil {
		return bad
	}
	return err
}
