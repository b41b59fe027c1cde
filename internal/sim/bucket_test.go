package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"

	"celld/internal/bucket"
)

var (
	errLost = errors.New("connection lost (simulated)")
	errGone = errors.New("the node is dead (simulated)")
)

// op is one bucket operation that waits for the driver.
type op struct {
	node      *node
	verb, key string
	write     bool
	do        func() error
	reply     chan error
	abandoned bool // its caller gave up; the write may still land
}

// store is the bucket as one node sees it.
type store struct{ n *node }

func (s store) ask(ctx context.Context, verb, key string, write bool, do func() error) error {
	if err := ctx.Err(); err != nil {
		return errors.Join(bucket.ErrNotSent, err)
	}
	w := s.n.w
	o := &op{node: s.n, verb: verb, key: key, write: write, do: do, reply: make(chan error, 1)}
	w.mu.Lock()
	if s.n.dead.Load() {
		w.mu.Unlock()
		return errGone
	}
	w.pending = append(w.pending, o)
	w.mu.Unlock()
	select {
	case err := <-o.reply:
		return err
	case <-ctx.Done():
		w.mu.Lock()
		o.abandoned = true
		w.mu.Unlock()
		return context.Cause(ctx)
	}
}

// result keeps what do found apart from what the caller may read: an abandoned
// operation still runs.
type result[T any] struct {
	body T
	ver  bucket.Version
}

func (s store) Get(ctx context.Context, key string) ([]byte, bucket.Version, error) {
	r := new(result[[]byte])
	err := s.ask(ctx, "get", key, false, func() (err error) {
		r.body, r.ver, err = s.n.w.mem.Get(context.Background(), key)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return s.n.lieGet(key, r.body, r.ver)
}

func (s store) Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	r := new(result[[]byte])
	obj := new(bucket.Object)
	err := s.ask(ctx, "open", key, false, func() error {
		rc, o, err := s.n.w.mem.Open(context.Background(), key, off, length)
		if err != nil {
			return err
		}
		defer rc.Close()
		*obj = o
		r.body, err = io.ReadAll(rc)
		return err
	})
	if err != nil {
		return nil, bucket.Object{}, err
	}
	return io.NopCloser(bytes.NewReader(r.body)), *obj, nil
}

func (s store) Head(ctx context.Context, key string) (bucket.Object, error) {
	obj := new(bucket.Object)
	err := s.ask(ctx, "head", key, false, func() (err error) {
		*obj, err = s.n.w.mem.Head(context.Background(), key)
		return err
	})
	if err != nil {
		return bucket.Object{}, err
	}
	return *obj, nil
}

func (s store) put(ctx context.Context, verb, key string, body []byte, write func(context.Context) (bucket.Version, error)) (bucket.Version, error) {
	if s.n.lieDrop(key) {
		return "1", nil
	}
	r := new(result[[]byte])
	err := s.ask(ctx, verb, key, true, func() (err error) {
		if r.ver, err = write(context.Background()); err == nil {
			s.n.w.wrote(s.n, key, body)
		}
		return err
	})
	if err != nil {
		return s.n.lieWrite(key, err)
	}
	s.n.remember(key, body, r.ver)
	return r.ver, nil
}

func (s store) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	body = bytes.Clone(body) // it may land after the caller used its buffer again
	return s.put(ctx, "put", key, body, func(ctx context.Context) (bucket.Version, error) { return s.n.w.mem.Put(ctx, key, body) })
}

func (s store) PutStream(ctx context.Context, key string, rd io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	body, err := io.ReadAll(rd)
	if err != nil {
		return "", errors.Join(bucket.ErrNotSent, err)
	}
	return s.put(ctx, "put-stream", key, body, func(ctx context.Context) (bucket.Version, error) {
		return s.n.w.mem.PutStream(ctx, key, bytes.NewReader(body), size, opts)
	})
}

func (s store) Create(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	body = bytes.Clone(body)
	return s.put(ctx, "create", key, body, func(ctx context.Context) (bucket.Version, error) { return s.n.w.mem.Create(ctx, key, body) })
}

func (s store) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	body = bytes.Clone(body)
	return s.put(ctx, "swap", key, body, func(ctx context.Context) (bucket.Version, error) {
		if s.n.w.broken == "swap-unconditional" {
			return s.n.w.mem.Put(ctx, key, body)
		}
		return s.n.w.mem.Swap(ctx, key, body, old)
	})
}

func (s store) Delete(ctx context.Context, key string) error {
	return s.ask(ctx, "delete", key, true, func() error { return s.n.w.mem.Delete(context.Background(), key) })
}

func (s store) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		all := new([]bucket.Object)
		err := s.ask(ctx, "list", prefix, false, func() error {
			*all = nil
			for o, err := range s.n.w.mem.List(context.Background(), prefix, after) {
				if err != nil {
					return err
				}
				*all = append(*all, o)
			}
			return nil
		})
		if err != nil {
			yield(bucket.Object{}, err)
			return
		}
		for _, o := range s.n.lieList(prefix, *all) {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (s store) String() string { return "sim" }
