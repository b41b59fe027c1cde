// Package mem is a bucket in memory, for tests. It keeps the whole contract of
// bucket.Store.
package mem

import (
	"bytes"
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"celld/internal/bucket"
)

// Store is safe for concurrent use. The zero value is not ready; see New.
type Store struct {
	mu      sync.RWMutex
	objects map[string]stored
	writes  uint64 // numbers every write, so that versions never come back
}

type stored struct {
	body []byte // never changed in place
	info bucket.Object
}

// New makes an empty store.
func New() *Store { return &Store{objects: map[string]stored{}} }

var _ bucket.Store = (*Store)(nil)

func (s *Store) String() string { return "mem://" }

func (s *Store) Get(ctx context.Context, key string) ([]byte, bucket.Version, error) {
	o, err := s.read(ctx, "get", key)
	return bytes.Clone(o.body), o.info.Version, err
}

func (s *Store) Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	o, err := s.read(ctx, "open", key)
	if err != nil {
		return nil, bucket.Object{}, err
	}
	from, to := bucket.ClipRange(off, length, int64(len(o.body)))
	return io.NopCloser(bytes.NewReader(o.body[from:to])), o.described(), nil
}

func (s *Store) Head(ctx context.Context, key string) (bucket.Object, error) {
	o, err := s.read(ctx, "head", key)
	if err != nil {
		return bucket.Object{}, err
	}
	return o.described(), nil
}

func (s *Store) read(ctx context.Context, op, key string) (stored, error) {
	if err := ctx.Err(); err != nil {
		return stored{}, &bucket.Error{Op: op, Key: key, Class: bucket.ErrNotSent, Err: err}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key]
	if !ok {
		return stored{}, &bucket.Error{Op: op, Key: key, Class: bucket.ErrNotFound}
	}
	return o, nil
}

func (s *Store) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.write(ctx, "put", key, body, bucket.PutOptions{})
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.write(ctx, "create", key, body, bucket.PutOptions{IfAbsent: true})
}

func (s *Store) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	if old == "" {
		return "", &bucket.Error{Op: "swap", Key: key, Class: bucket.ErrNotSent, Err: bucket.ErrNoVersion}
	}
	return s.write(ctx, "swap", key, body, bucket.PutOptions{IfVersion: old})
}

func (s *Store) PutStream(ctx context.Context, key string, r io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	body, err := io.ReadAll(r)
	if err == nil && size >= 0 && int64(len(body)) != size {
		err = bucket.ErrWrongSize
	}
	if err != nil {
		return "", &bucket.Error{Op: "put", Key: key, Class: bucket.ErrNotSent, Err: err}
	}
	return s.write(ctx, "put", key, body, opts)
}

func (s *Store) write(ctx context.Context, op, key string, body []byte, opts bucket.PutOptions) (bucket.Version, error) {
	if err := bucket.CheckWrite(ctx, op, key, opts); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, exists := s.objects[key]
	if opts.IfAbsent && exists || opts.IfVersion != "" && now.info.Version != opts.IfVersion {
		return "", &bucket.Error{Op: op, Key: key, Class: bucket.ErrPrecondition}
	}
	s.writes++
	version := bucket.Version(strconv.FormatUint(s.writes, 10))
	s.objects[key] = stored{bytes.Clone(body), bucket.Object{
		Key: key, Size: int64(len(body)), Modified: time.Now(), Version: version, Meta: maps.Clone(opts.Meta),
	}}
	return version, nil
}

func (s *Store) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: "delete", Key: key, Class: bucket.ErrNotSent, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return nil
}

// List yields what was there when it was called.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(bucket.Object{}, &bucket.Error{Op: "list", Key: prefix, Class: bucket.ErrNotSent, Err: err})
			return
		}
		for _, o := range s.matching(prefix, after) {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (s *Store) matching(prefix, after string) []bucket.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []bucket.Object
	for key, o := range s.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			info := o.info
			info.Meta = nil
			found = append(found, info)
		}
	}
	slices.SortFunc(found, func(a, b bucket.Object) int { return strings.Compare(a.Key, b.Key) })
	return found
}

func (o stored) described() bucket.Object {
	info := o.info
	info.Meta = maps.Clone(info.Meta)
	return info
}
