package replica

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/superfly/ltx"

	"celld/internal/bucket"
)

const (
	// fanout is how many objects of one level make one of the next. 40,000 raw
	// objects then restore through at most 9 of each of five levels.
	fanout = 10
	// backlog is how many objects of one level may stand before uploads wait for
	// compaction: it bounds what a restore has to walk.
	backlog = 3 * fanout
	// compactTimeout bounds one compaction; one that fails is asked for again by a later upload.
	compactTimeout = 2 * time.Minute
	// maxLevel is the highest level below snapshots.
	maxLevel = LevelSnapshot - 1
)

// uploaded counts an object of this epoch, and sees to it that compaction keeps
// up: where too many stand the upload waits for a job to end.
func (s *Stream) uploaded(ctx context.Context, r Range) {
	s.mu.Lock()
	s.add(LevelRaw, r)
	s.work()
	for s.backlog() && s.done != nil && ctx.Err() == nil {
		done := s.done
		s.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.work()
	}
	s.mu.Unlock()
}

// backlog: some level holds far more than it should.
func (s *Stream) backlog() bool {
	for level, l := range s.levels {
		if len(l) >= backlog && level < maxLevel {
			return true
		}
	}
	return false
}

// work starts the next job if one is due and none runs; s.mu is held.
func (s *Stream) work() {
	if s.done != nil {
		return
	}
	if s.wants {
		s.background("snapshot", s.Snapshot, func() { s.wants = false })
		return
	}
	for level := len(s.levels) - 1; level >= 0; level-- {
		if len(s.levels[level]) >= fanout && level < maxLevel {
			s.start(level)
			return
		}
	}
}

func (s *Stream) add(level int, r Range) {
	for len(s.levels) <= level {
		s.levels = append(s.levels, nil)
	}
	l := s.levels[level]
	if n := len(l); n > 0 && (l[n-1] == r || r.Min <= l[n-1].Max) {
		return // uploaded again
	}
	s.levels[level] = append(l, r)
}

// start raises the oldest objects of a level; s.mu is held.
func (s *Stream) start(level int) {
	inputs := append([]Range(nil), s.levels[level][:fanout]...)
	s.background("compaction", func(ctx context.Context) error { return s.raise(ctx, level, inputs) }, func() {
		s.levels[level] = s.levels[level][len(inputs):]
		s.add(level+1, Range{inputs[0].Min, inputs[len(inputs)-1].Max})
	})
}

// background runs a job if one more may run in this process; else the next
// upload asks again. s.mu is held here, and when done runs.
func (s *Stream) background(what string, job func(context.Context) error, done func()) {
	select {
	case s.r.compact <- struct{}{}:
	default:
		return
	}
	finished := make(chan struct{})
	s.done = finished
	s.r.jobs.Go(func() {
		defer close(finished)
		defer func() { <-s.r.compact }()
		ctx, cancel := context.WithTimeout(s.r.ctx, compactTimeout)
		defer cancel()
		err := job(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done = nil
		if err != nil {
			s.r.log.Warn(what+" failed", "event", "ltx_compaction", "cell", s.cell, "err", err)
			return
		}
		done()
		if s.r.ctx.Err() == nil {
			s.r.jobs.Go(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.work()
			})
		}
	})
}

// raise writes one object of the next level that holds what inputs hold.
func (s *Stream) raise(ctx context.Context, level int, inputs []Range) error {
	readers := make([]io.Reader, 0, len(inputs))
	for _, r := range inputs {
		k := Key{s.cell, s.epoch, level, r}
		body, _, err := s.r.store.Open(ctx, k.String(), 0, -1)
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		defer body.Close()
		readers = append(readers, body)
	}
	out := Key{s.cell, s.epoch, level + 1, Range{inputs[0].Min, inputs[len(inputs)-1].Max}}
	return s.r.putCompacted(ctx, out, readers)
}

// putCompacted streams a merge into the bucket; nothing is visible before it is whole.
func (r *Replicator) putCompacted(ctx context.Context, k Key, readers []io.Reader) error {
	pr, pw := io.Pipe()
	r.jobs.Go(func() { pw.CloseWithError(compactTo(ctx, pw, readers)) })
	defer pr.Close()
	if _, err := r.store.PutStream(ctx, k.String(), pr, -1, bucket.PutOptions{}); err != nil {
		return fmt.Errorf("write %s: %w", k, err)
	}
	return nil
}

// compactTo merges LTX files that follow each other.
func compactTo(ctx context.Context, w io.Writer, readers []io.Reader) error {
	c, err := ltx.NewCompactor(w, readers)
	if err != nil {
		return err
	}
	return c.Compact(ctx)
}

// Snapshot writes everything up to the newest uploaded object as one, so that
// the next restore is short. It streams what lies in the bucket.
func (s *Stream) Snapshot(ctx context.Context) error {
	keys, err := s.r.list(ctx, s.cell)
	if err != nil {
		return err
	}
	chain, err := plan(s.cell, keys, s.epoch+1)
	if err != nil || len(chain) < 2 {
		return err
	}
	readers := make([]io.Reader, len(chain))
	for i, k := range chain {
		readers[i] = &lazy{ctx: ctx, r: s.r, key: k.String()}
		defer readers[i].(*lazy).Close()
	}
	return s.r.putCompacted(ctx, Key{s.cell, s.epoch, LevelSnapshot, Range{1, chain[len(chain)-1].Max}}, readers)
}

// lazy opens an object when it is first read.
type lazy struct {
	ctx  context.Context
	r    *Replicator
	key  string
	body io.ReadCloser
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.body == nil {
		body, _, err := l.r.store.Open(l.ctx, l.key, 0, -1)
		if err != nil {
			return 0, err
		}
		l.body = body
	}
	return l.body.Read(p)
}

func (l *lazy) Close() error {
	if l.body == nil {
		return nil
	}
	return l.body.Close()
}
