package replica

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/superfly/ltx"

	"celld/internal/bucket"
	"celld/internal/id"
)

const (
	// fanout is how many objects of one level make one of the next. 40,000 raw
	// objects then restore through at most 9 of each of five levels.
	fanout = 10
	// backlog is how many objects of one level may stand before uploads slow down
	// for compaction: it bounds what a restore has to walk.
	backlog = 3 * fanout
	// backlogWait is how much slower an upload gets. It is far below the time that an
	// output may wait for its proof: compaction that is slow or fails loses no write.
	backlogWait = 250 * time.Millisecond
	// compactTimeout bounds one compaction; one that fails is tried again some uploads later.
	compactTimeout = 2 * time.Minute
	// maxLevel is the highest level below snapshots.
	maxLevel = LevelSnapshot - 1
)

// uploaded counts an object of this epoch, and sees to it that compaction keeps
// up: where too many stand, the upload gives a job some time to end. It never
// fails because of compaction.
func (s *Stream) uploaded(ctx context.Context, r Range) {
	s.mu.Lock()
	if r.Min != s.landed+1 { // uploaded again, or something before it is missing
		s.mu.Unlock()
		return
	}
	s.landed = r.Max
	s.add(LevelRaw, r)
	if s.pause--; s.pause < 0 {
		s.work()
	}
	done := s.done
	wait := done != nil && s.backlog()
	s.mu.Unlock()
	if !wait {
		return
	}
	t := time.NewTimer(backlogWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
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
		var upTo id.TXID
		s.background("snapshot", func(ctx context.Context) (err error) {
			upTo, err = s.Snapshot(ctx)
			return err
		}, func() { s.covered(upTo) })
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
	s.levels[level] = append(s.levels[level], r)
}

// covered takes note of a snapshot: objects that it holds need no raising; s.mu is held.
func (s *Stream) covered(upTo id.TXID) {
	s.wants, s.before = false, 1
	for level, l := range s.levels {
		s.levels[level] = slices.DeleteFunc(l, func(r Range) bool { return r.Max <= upTo })
	}
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
			s.pause = fanout
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
		readers = append(readers, newSource(body))
	}
	out := Key{s.cell, s.epoch, level + 1, Range{inputs[0].Min, inputs[len(inputs)-1].Max}}
	return s.r.putCompacted(ctx, out, readers)
}

// putCompacted streams a merge into the bucket; nothing is visible before it is whole.
func (r *Replicator) putCompacted(ctx context.Context, k Key, readers []io.Reader) error {
	pr, pw := io.Pipe()
	r.jobs.Go(func() {
		w := bufio.NewWriterSize(pw, readBuffer)
		err := compactTo(ctx, w, readers)
		if err == nil {
			err = w.Flush()
		}
		pw.CloseWithError(err)
	})
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
// the next restore is short, and tells how far it goes. It streams what lies in
// the bucket. An object of this epoch must be there: alone, a snapshot that ends
// before the epoch begins would look like a gap.
func (s *Stream) Snapshot(ctx context.Context) (id.TXID, error) {
	keys, err := s.r.list(ctx, s.cell)
	if err != nil {
		return 0, err
	}
	chain, err := plan(s.cell, keys, s.epoch+1)
	if err != nil || len(chain) == 0 {
		return 0, err
	}
	last := chain[len(chain)-1]
	switch {
	case len(chain) == 1:
		return last.Max, nil
	case last.Epoch != s.epoch:
		return 0, fmt.Errorf("epoch %d of cell %s has nothing in the bucket yet", s.epoch, s.cell)
	}
	readers := make([]io.Reader, len(chain))
	for i, k := range chain {
		l := &lazy{ctx: ctx, r: s.r, key: k.String()}
		defer l.Close()
		readers[i] = newSource(l)
	}
	return last.Max, s.r.putCompacted(ctx, Key{s.cell, s.epoch, LevelSnapshot, Range{1, last.Max}}, readers)
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
