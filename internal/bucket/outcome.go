package bucket

import (
	"context"
	"errors"
	"fmt"
)

// Outcome is what a write came to.
type Outcome int

const (
	Applied   Outcome = iota // it stands
	Rejected                 // the condition was false; nothing was written
	Failed                   // nothing was written, and nothing was decided
	Ambiguous                // it may have landed, or may still land
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Rejected:
		return "rejected"
	case Failed:
		return "failed"
	default:
		return "ambiguous"
	}
}

// OutcomeOf reads the outcome of a write from its error.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, ErrPrecondition):
		return Rejected
	case errors.Is(err, ErrNotSent):
		return Failed
	default:
		return Ambiguous
	}
}

// Error is what an adapter makes of a failed request. Class is one of the
// sentinels, or nil where the outcome is ambiguous; Status and Code are what
// the store answered, zero if it did not.
type Error struct {
	Op, Key string
	Class   error
	Status  int
	Code    string
	Err     error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s %q: ", e.Op, e.Key)
	if e.Class != nil {
		text += e.Class.Error()
	} else {
		text += "no usable answer"
	}
	if e.Status != 0 {
		text += fmt.Sprintf(" (HTTP %d", e.Status)
		if e.Code != "" {
			text += " " + e.Code
		}
		text += ")"
	}
	if e.Err != nil && e.Err != e.Class {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap offers both the class and the cause to errors.Is.
func (e *Error) Unwrap() []error {
	var chain []error
	if e.Class != nil {
		chain = append(chain, e.Class)
	}
	if e.Err != nil {
		chain = append(chain, e.Err)
	}
	return chain
}

// MaxKey bounds a key in bytes, prefix excluded; every store takes this much.
const MaxKey = 900

var (
	// ErrNoVersion: a Swap must name the version that it replaces.
	ErrNoVersion = errors.New("the version to replace is empty")
	// ErrWrongSize: the reader of a PutStream did not hold what was announced.
	ErrWrongSize = errors.New("the stream is not as long as announced")
	// ErrNoETag: the store took a write and did not say which version it made.
	ErrNoETag = errors.New("the store answered without a version (ETag)")
	// ErrRangeIgnored: the store sent another range than it was asked for.
	ErrRangeIgnored = errors.New("the store ignored the range that was asked for")
)

// CheckWrite is what every store checks before a write: nothing that fails here
// was sent.
func CheckWrite(ctx context.Context, op, key string, opts PutOptions) error {
	var err error
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case key == "":
		err = errors.New("the key is empty")
	case len(key) > MaxKey:
		err = fmt.Errorf("a key of %d bytes is longer than %d", len(key), MaxKey)
	case opts.IfAbsent && opts.IfVersion != "":
		err = errors.New("a write is either conditional on absence or on a version")
	default:
		err = checkMeta(opts.Meta)
	}
	if err != nil {
		return &Error{Op: op, Key: key, Class: ErrNotSent, Err: err}
	}
	return nil
}

// checkMeta refuses metadata that some store could not hold.
func checkMeta(meta map[string]string) error {
	for name := range meta {
		if !MetaName(name) {
			return fmt.Errorf("metadata name %q: a lower-case letter comes first, then lower-case letters, digits or hyphens", name)
		}
	}
	return nil
}

// MetaName says whether every store takes name: a lower-case letter, then
// lower-case letters, digits and hyphens.
func MetaName(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '-')) {
			return false
		}
	}
	return name != ""
}

// ClipRange turns the range that Open was asked for into the offsets that an
// object of size bytes has. A range that starts behind the end is empty.
func ClipRange(off, length, size int64) (from, to int64) {
	from = min(max(off, 0), size)
	if length < 0 || length > size-from {
		return from, size
	}
	return from, from + length
}
