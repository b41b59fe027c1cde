package bucket_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"celld/internal/bucket"
	"celld/internal/bucket/faulty"
	"celld/internal/bucket/mem"
)

// Stores that break the contract in one way each.
type (
	ignoresIfNoneMatch struct{ *mem.Store }
	ignoresIfMatch     struct{ *mem.Store }
	rejectsIfMatch     struct{ *mem.Store }
	writesAndRejects   struct{ *mem.Store }
	ignoresRange       struct{ *mem.Store }
	shiftsRange        struct{ *mem.Store }
	losesWrites        struct{ *mem.Store }
	notImplemented     struct{ *mem.Store }
)

func (s ignoresIfNoneMatch) Create(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.Put(ctx, key, body)
}

func (s ignoresIfMatch) Swap(ctx context.Context, key string, body []byte, _ bucket.Version) (bucket.Version, error) {
	return s.Put(ctx, key, body)
}

func (s rejectsIfMatch) Swap(_ context.Context, key string, _ []byte, _ bucket.Version) (bucket.Version, error) {
	return "", &bucket.Error{Op: "swap", Key: key, Class: bucket.ErrPrecondition}
}

func (s writesAndRejects) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	v, err := s.Store.Swap(ctx, key, body, old)
	if err != nil {
		s.Put(ctx, key, body)
	}
	return v, err
}

func (s ignoresRange) Open(ctx context.Context, key string, _, _ int64) (io.ReadCloser, bucket.Object, error) {
	return s.Store.Open(ctx, key, 0, -1)
}

func (s shiftsRange) Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	return s.Store.Open(ctx, key, off+1, length)
}

func (s losesWrites) Get(_ context.Context, key string) ([]byte, bucket.Version, error) {
	return nil, "", &bucket.Error{Op: "get", Key: key, Class: bucket.ErrNotFound}
}

func (s notImplemented) Create(_ context.Context, key string, _ []byte) (bucket.Version, error) {
	return "", &bucket.Error{Op: "create", Key: key, Class: bucket.ErrNotSent, Status: 501, Code: "NotImplemented"}
}

func TestProbeFindsBrokenStores(t *testing.T) {
	for _, c := range []struct {
		store   bucket.Store
		feature string
	}{
		{ignoresIfNoneMatch{mem.New()}, "If-None-Match"},
		{ignoresIfMatch{mem.New()}, "If-Match"},
		{rejectsIfMatch{mem.New()}, "If-Match"},
		{writesAndRejects{mem.New()}, "If-Match"},
		{ignoresRange{mem.New()}, "Range"},
		{shiftsRange{mem.New()}, "Range"},
		{losesWrites{mem.New()}, "read-after-write"},
		{notImplemented{mem.New()}, "If-None-Match"},
	} {
		err := bucket.Probe(t.Context(), c.store)
		if !errors.Is(err, bucket.ErrViolation) || !strings.Contains(err.Error(), c.feature) || !strings.Contains(err.Error(), "mem://") {
			t.Errorf("%T: %v, want a violation that names %s and the store", c.store, err, c.feature)
		}
		for o := range c.store.List(t.Context(), "", "") {
			t.Errorf("%T: %s was left behind", c.store, o.Key)
		}
	}
}

// Whatever fails without an answer is no verdict, at any step.
func TestProbeWithoutAnAnswerIsNoVerdict(t *testing.T) {
	for _, op := range []faulty.Op{faulty.Create, faulty.Swap, faulty.Get, faulty.Open} {
		for skip := range 2 {
			synctest.Test(t, func(t *testing.T) {
				s := faulty.New(mem.New())
				s.Add(faulty.Rule{Op: op, Skip: skip, After: faulty.ErrLost})
				err := bucket.Probe(t.Context(), s)
				if op == faulty.Open && skip == 1 {
					return // a probe reads one range
				}
				if !errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrViolation) {
					t.Errorf("%s fails after %d: %v, want unreachable", op, skip, err)
				}
			})
		}
	}
}

func TestProbeIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulty.New(mem.New())
		s.Add(faulty.Rule{Op: faulty.Swap, After: faulty.ErrLost, Times: 1})
		if err := bucket.Probe(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
}
