package buckettest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"celld/internal/bucket"
)

const contenders = 200

func raceCreate(t *T) {
	t.oneWins(func(i int) (bucket.Version, error) {
		return t.s.Create(t.Context(), t.prefix+"k", fmt.Appendf(nil, "writer %d", i))
	})
}

func raceSwap(t *T) {
	old := t.put("k", "old")
	t.oneWins(func(i int) (bucket.Version, error) {
		return t.s.Swap(t.Context(), t.prefix+"k", fmt.Appendf(nil, "writer %d", i), old)
	})
}

// oneWins lets everybody write at once; one may succeed, and that one must stand.
func (t *T) oneWins(write func(i int) (bucket.Version, error)) {
	var winners, others atomic.Int32
	var winner atomic.Int32
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range contenders {
		group.Go(func() {
			<-start
			switch _, err := write(i); {
			case err == nil:
				winners.Add(1)
				winner.Store(int32(i))
			case !errors.Is(err, bucket.ErrPrecondition):
				others.Add(1)
				t.Logf("writer %d: %v", i, err)
			}
		})
	}
	close(start)
	group.Wait()
	if winners.Load() != 1 || others.Load() != 0 {
		t.Fatalf("%d of %d won, %d failed otherwise", winners.Load(), contenders, others.Load())
	}
	t.wantBody("k", fmt.Sprintf("writer %d", winner.Load()))
}

func increments(t *T) {
	const writers, each = 8, 10
	t.put("n", "0")
	var group sync.WaitGroup
	errs := make(chan error, writers)
	for range writers {
		group.Go(func() {
			for range each {
				if err := increment(t.Context(), t.s, t.prefix+"n"); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	t.wantBody("n", strconv.Itoa(writers*each))
}

// increment adds one to a number by compare-and-swap.
func increment(ctx context.Context, s bucket.Store, key string) error {
	for {
		body, v, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(body))
		if err != nil {
			return err
		}
		if _, err = s.Swap(ctx, key, strconv.AppendInt(nil, int64(n+1), 10), v); !errors.Is(err, bucket.ErrPrecondition) {
			return err
		}
	}
}
