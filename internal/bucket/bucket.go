package bucket

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Version is the token that a conditional overwrite is checked against: an
// ETag, a generation. It means something only to the store that made it.
type Version string

// Every failure of a store is one of these, or ambiguous: a write that failed
// with any other error may have landed.
var (
	// ErrNotFound: there is no object under that key.
	ErrNotFound = errors.New("no such object")
	// ErrPrecondition: the condition was evaluated and was false; nothing was written.
	ErrPrecondition = errors.New("precondition failed")
	// ErrNotSent: nothing was written, for certain. The request never left this
	// process, or the store refused it without looking at the object (credentials,
	// no such bucket).
	ErrNotSent = errors.New("nothing was sent or accepted")
)

// Object describes one object of a listing.
type Object struct {
	Key      string
	Size     int64
	Modified time.Time
	Version  Version
	Meta     map[string]string // only from Head and Open
}

// Store is a bucket, below its prefix. Implementations are safe for
// concurrent use and do not retry conditional writes.
type Store interface {
	// Get reads a whole small object.
	Get(ctx context.Context, key string) ([]byte, Version, error)
	// Open streams length bytes from off; length < 0 means to the end. A
	// range that starts behind the end is empty.
	Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, Object, error)
	Head(ctx context.Context, key string) (Object, error)
	// Put writes unconditionally.
	Put(ctx context.Context, key string, body []byte) (Version, error)
	// PutStream writes unconditionally from r, of size bytes (-1: unknown).
	// Nothing is visible before r ended without an error.
	PutStream(ctx context.Context, key string, r io.Reader, size int64, opts PutOptions) (Version, error)
	// Create writes if the key is absent, else ErrPrecondition.
	Create(ctx context.Context, key string, body []byte) (Version, error)
	// Swap writes if the object's version is still old, else ErrPrecondition
	// (also where the object is gone).
	Swap(ctx context.Context, key string, body []byte, old Version) (Version, error)
	// Delete removes the object; a missing one is no error.
	Delete(ctx context.Context, key string) error
	// List yields the objects whose key starts with prefix and is greater than
	// after ("" for all), in byte order of their keys. It ends at the first error.
	List(ctx context.Context, prefix, after string) iter.Seq2[Object, error]
	// String names the store for people, without credentials.
	String() string
}

// PutOptions are what PutStream can say beside the bytes.
type PutOptions struct {
	// Meta travels with the object. Names satisfy MetaName; values
	// are any valid UTF-8.
	Meta        map[string]string
	ContentType string // "" is application/octet-stream; not read back
	// IfAbsent and IfVersion make the write conditional.
	IfAbsent  bool
	IfVersion Version
}
