// Package faulty wraps any bucket so that a test can make it fail on command.
//
// Rules are tried in the order in which they were added; the first that matches
// an operation applies, and is used up after Times. A rule's After error is a
// lost reply: the operation happened, the caller hears otherwise.
package faulty

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"celld/internal/bucket"
)

// Op names a verb of bucket.Store.
type Op string

const (
	Any       Op = ""
	Get       Op = "get"
	Open      Op = "open"
	Head      Op = "head"
	Put       Op = "put"
	PutStream Op = "put-stream"
	Create    Op = "create"
	Swap      Op = "swap"
	Delete    Op = "delete"
	List      Op = "list"
)

// ErrLost is an ambiguous failure, as a cut connection gives.
var ErrLost = errors.New("connection lost (injected)")

// Rule is one fault.
type Rule struct {
	Op     Op
	Prefix string // of the key
	Times  int    // 0: until Clear
	Skip   int    // let that many matching operations pass first
	Delay  time.Duration
	Block  <-chan struct{} // waits until it is closed, or the context ends
	Before error           // fail without doing it
	After  error           // do it, then fail: the reply is lost
	Hook   func(key string)
}

// Store is a bucket.Store that obeys rules. Clear, Add and Count may be called
// at any time.
type Store struct {
	inner bucket.Store
	mu    sync.Mutex
	rules []*Rule
	count map[Op]int
}

// New wraps a store; without rules it changes nothing.
func New(inner bucket.Store) *Store { return &Store{inner: inner, count: map[Op]int{}} }

var _ bucket.Store = (*Store)(nil)

// Add appends a rule.
func (s *Store) Add(r Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, &r)
}

// Clear removes every rule.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Count tells how often op was called, failed calls included; Any counts all.
func (s *Store) Count(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op != Any {
		return s.count[op]
	}
	sum := 0
	for _, n := range s.count {
		sum += n
	}
	return sum
}

// pick finds the rule for an operation and uses it up.
func (s *Store) pick(op Op, key string) Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[op]++
	for i, r := range s.rules {
		if r.Op != Any && r.Op != op || !strings.HasPrefix(key, r.Prefix) {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		if r.Times > 0 {
			if r.Times--; r.Times == 0 {
				s.rules = slices.Delete(s.rules, i, i+1)
			}
		}
		return *r
	}
	return Rule{}
}

// around runs do under the rule that matches.
func (s *Store) around(ctx context.Context, op Op, key string, do func() error) error {
	r := s.pick(op, key)
	if err := r.wait(ctx); err != nil {
		return wrap(op, key, err)
	}
	if r.Before != nil {
		r.hook(key)
		return wrap(op, key, r.Before)
	}
	err := do()
	r.hook(key)
	if r.After != nil {
		return wrap(op, key, r.After)
	}
	return err
}

func (r *Rule) hook(key string) {
	if r.Hook != nil {
		r.Hook(key)
	}
}

// wait delays; a context that ends meanwhile leaves the outcome ambiguous, as
// with a real request that hangs.
func (r *Rule) wait(ctx context.Context) error {
	if r.Delay > 0 {
		timer := time.NewTimer(r.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.Block != nil {
		select {
		case <-r.Block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func wrap(op Op, key string, err error) error {
	class := err
	if !errors.Is(err, bucket.ErrNotSent) && !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrNotFound) {
		class = nil
	}
	return &bucket.Error{Op: string(op), Key: key, Class: class, Err: err}
}

func (s *Store) String() string { return s.inner.String() }

func (s *Store) Get(ctx context.Context, key string) (body []byte, v bucket.Version, err error) {
	err = s.around(ctx, Get, key, func() (err error) {
		body, v, err = s.inner.Get(ctx, key)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return body, v, nil
}

func (s *Store) Open(ctx context.Context, key string, off, length int64) (r io.ReadCloser, o bucket.Object, err error) {
	err = s.around(ctx, Open, key, func() (err error) {
		r, o, err = s.inner.Open(ctx, key, off, length)
		return err
	})
	if err != nil {
		if r != nil {
			r.Close()
		}
		return nil, bucket.Object{}, err
	}
	return r, o, nil
}

func (s *Store) Head(ctx context.Context, key string) (o bucket.Object, err error) {
	err = s.around(ctx, Head, key, func() (err error) {
		o, err = s.inner.Head(ctx, key)
		return err
	})
	return o, err
}

func (s *Store) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.write(ctx, Put, key, func() (bucket.Version, error) { return s.inner.Put(ctx, key, body) })
}

func (s *Store) PutStream(ctx context.Context, key string, r io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	return s.write(ctx, PutStream, key, func() (bucket.Version, error) { return s.inner.PutStream(ctx, key, r, size, opts) })
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.write(ctx, Create, key, func() (bucket.Version, error) { return s.inner.Create(ctx, key, body) })
}

func (s *Store) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	return s.write(ctx, Swap, key, func() (bucket.Version, error) { return s.inner.Swap(ctx, key, body, old) })
}

func (s *Store) write(ctx context.Context, op Op, key string, do func() (bucket.Version, error)) (v bucket.Version, err error) {
	err = s.around(ctx, op, key, func() (err error) {
		v, err = do()
		return err
	})
	if err != nil {
		return "", err
	}
	return v, nil
}

func (s *Store) Delete(ctx context.Context, key string) error {
	return s.around(ctx, Delete, key, func() error { return s.inner.Delete(ctx, key) })
}

// List fails before the first object, or (After) behind the last.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		stopped := false
		err := s.around(ctx, List, prefix, func() error {
			for o, err := range s.inner.List(ctx, prefix, after) {
				if !yield(o, err) || err != nil {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(bucket.Object{}, err)
		}
	}
}
