package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ProbePrefix is where Probe works, and cleans up.
const ProbePrefix = "probe/"

var (
	// ErrViolation: the store does not do what a fleet's safety rests on.
	ErrViolation = errors.New("this store cannot be used as a bucket")
	// ErrUnreachable: the probe could not come to a verdict.
	ErrUnreachable = errors.New("the store could not be probed")
)

const (
	probeTries   = 3 // of the whole probe, before it reports ErrUnreachable
	probePause   = 200 * time.Millisecond
	probeCleanup = 5 * time.Second
)

// Probe has a store show that it keeps the contract: create, reject a second
// create, update, reject a stale update, read back, exact range. The error is
// ErrViolation (a verdict: stop) or ErrUnreachable (no verdict: warn).
func Probe(ctx context.Context, s Store) (err error) {
	for try := 0; try < probeTries; try++ {
		if err = probeOnce(ctx, s); err == nil || errors.Is(err, ErrViolation) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(probePause << try):
		}
	}
	return err
}

func probeOnce(ctx context.Context, s Store) error {
	p := &probing{s: s, key: ProbePrefix + rand.Text()}
	defer p.cleanUp(ctx)
	for _, step := range []func(context.Context) error{p.create, p.rejectCreate, p.update, p.rejectStale, p.readRange} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// probing is one pass over one key, which no other process knows.
type probing struct {
	s             Store
	key           string
	first, second Version
}

const (
	probeFirst  = "celld probe, first version"
	probeSecond = "celld probe, second version"
	probeWrong  = "celld probe, this must never be written"
)

func (p *probing) create(ctx context.Context) (err error) {
	p.first, err = p.s.Create(ctx, p.key, []byte(probeFirst))
	switch {
	case err == nil && p.first == "":
		return p.violation("version tokens (ETag)", "it took a new object without naming its version", nil)
	case OutcomeOf(err) == Rejected, answered(err, http.StatusNotFound, "NoSuchKey"):
		// MinIO RELEASE.2025-09-06 answers NoSuchKey to every create of a missing key.
		return p.violation("conditional create (If-None-Match: *)",
			"it refused to create an object that does not exist; if this is MinIO, this release has a known bug: take another one", err)
	case unsupported(err):
		return p.violation("conditional create (If-None-Match: *)", "it says that it does not implement it", err)
	case err != nil:
		return p.unreachable(err)
	}
	return p.expect(ctx, probeFirst, p.first, "read-after-write")
}

func (p *probing) rejectCreate(ctx context.Context) error {
	_, err := p.s.Create(ctx, p.key, []byte(probeWrong))
	return p.mustReject(ctx, err, probeFirst, "conditional create (If-None-Match: *)",
		"it overwrote an object that the write demanded to be absent")
}

func (p *probing) update(ctx context.Context) (err error) {
	p.second, err = p.s.Swap(ctx, p.key, []byte(probeSecond), p.first)
	switch {
	case OutcomeOf(err) == Rejected:
		return p.violation("conditional update (If-Match)", "it refused an update that named the version it had just given out", err)
	case unsupported(err):
		return p.violation("conditional update (If-Match)", "it says that it does not implement it", err)
	case err != nil:
		return p.unreachable(err)
	case p.second == p.first:
		return p.violation("version tokens (ETag)", "it gave two different contents the same version", nil)
	}
	return p.expect(ctx, probeSecond, p.second, "read-after-write")
}

func (p *probing) rejectStale(ctx context.Context) error {
	_, err := p.s.Swap(ctx, p.key, []byte(probeWrong), p.first)
	return p.mustReject(ctx, err, probeSecond, "conditional update (If-Match)",
		"it overwrote an object although the write named an older version")
}

// mustReject judges a write that had to be refused: by its answer, and by what
// stands there now.
func (p *probing) mustReject(ctx context.Context, err error, want, feature, evidence string) error {
	if err == nil {
		return p.violation(feature, evidence, nil)
	}
	if unsupported(err) {
		return p.violation(feature, "it says that it does not implement it", err)
	}
	body, _, readErr := p.s.Get(ctx, p.key)
	switch {
	case readErr == nil && string(body) == probeWrong:
		return p.violation(feature, evidence+", and answered with an error", err)
	case OutcomeOf(err) != Rejected:
		return p.unreachable(err)
	case readErr != nil:
		return p.unreachable(readErr)
	case string(body) != want:
		return p.violation("read-after-write", fmt.Sprintf("it returned %q instead of %q", clip(body), want), nil)
	}
	return nil
}

// expect reads back what was just written.
func (p *probing) expect(ctx context.Context, want string, version Version, feature string) error {
	body, v, err := p.s.Get(ctx, p.key)
	switch {
	case errors.Is(err, ErrNotFound):
		return p.violation(feature, "it did not find an object that it had just written", err)
	case err != nil:
		return p.unreachable(err)
	case string(body) != want:
		return p.violation(feature, fmt.Sprintf("it returned %q instead of %q", clip(body), want), nil)
	case v != version:
		return p.violation("version tokens (ETag)", fmt.Sprintf("the write gave version %s, the read %s", version, v), nil)
	}
	return nil
}

func (p *probing) readRange(ctx context.Context) error {
	const off, length = 6, 5
	r, _, err := p.s.Open(ctx, p.key, off, length)
	if errors.Is(err, ErrRangeIgnored) || err != nil && (errors.Is(err, ErrNotFound) || unsupported(err)) {
		return p.violation("ranged reads (Range)", "it did not give the range that was asked for", err)
	}
	if err != nil {
		return p.unreachable(err)
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, int64(len(probeSecond)+1)))
	if err != nil {
		return p.unreachable(err)
	}
	if want := probeSecond[off : off+length]; string(got) != want {
		return p.violation("ranged reads (Range)", fmt.Sprintf("bytes %d to %d came as %q instead of %q", off, off+length-1, clip(got), want), nil)
	}
	return nil
}

// cleanUp also runs after a failure, and after the caller has given up.
func (p *probing) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeCleanup)
	defer cancel()
	p.s.Delete(ctx, p.key)
}

func (p *probing) violation(feature, evidence string, cause error) error {
	err := fmt.Errorf("%w: %s lacks %s: %s. Without it two nodes could own one cell; use a store that has it", ErrViolation, p.s, feature, evidence)
	if cause != nil {
		err = fmt.Errorf("%w (it answered: %v)", err, cause)
	}
	return err
}

func (p *probing) unreachable(cause error) error {
	var e *Error
	if errors.As(cause, &e) && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
		return fmt.Errorf("%w: %s refused the credentials: check them, and that they may read, write, list and delete: %w", ErrUnreachable, p.s, cause)
	}
	if errors.As(cause, &e) && e.Code == "NoSuchBucket" {
		return fmt.Errorf("%w: %s does not exist: create it, or correct --bucket: %w", ErrUnreachable, p.s, cause)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, p.s, cause)
}

func answered(err error, status int, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status && e.Code == code
}

func unsupported(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == http.StatusNotImplemented || e.Code == "NotImplemented")
}

func clip(b []byte) []byte { return b[:min(len(b), 60)] }
