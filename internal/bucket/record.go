package bucket

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// RecordVersion is the newest record format this build knows.
const RecordVersion = 1

// MaxRecord bounds a record's JSON. A larger one is refused, both ways.
const MaxRecord = 1 << 20

var (
	// ErrNewerRecord: a newer build wrote the record; this one must not touch it.
	ErrNewerRecord = errors.New("the record was written by a newer version of celld; upgrade this node")
	// ErrCorruptRecord: the object is not a record.
	ErrCorruptRecord = errors.New("the record is not valid")
)

// Record is one JSON record as it stood in the bucket. T holds the fields that
// the caller knows, without `v` and `nonce`: those belong to this package.
type Record[T any] struct {
	Value   T
	Version Version
	Nonce   string

	unknown *leftover // kept for the next write
}

// ReadRecord reads and checks a record. The error is ErrNotFound if there is none.
func ReadRecord[T any](ctx context.Context, s Store, key string) (*Record[T], error) {
	body, version, err := s.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", key, err)
	}
	rec, err := decodeRecord[T](body)
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", key, err)
	}
	rec.Version = version
	return rec, nil
}

// CreateRecord writes a record that must not exist yet. See SwapRecord for the
// results.
func CreateRecord[T any](ctx context.Context, s Store, key string, value T) (*Record[T], error) {
	return writeRecord(ctx, s, key, nil, value)
}

// SwapRecord replaces the record that old was read from. The result is settled:
//
//	nil              our write stands (or stood: it may have been replaced since);
//	                 the result is the new record
//	ErrPrecondition  our write did not and never will land; the result is the
//	                 record that stands there now, nil if there is none or it could not be read
//	ErrNotSent       nothing was written
//	anything else    still unknown: the record could not be read back, or is
//	                 unchanged while our write may be under way. Trying again
//	                 against the same old record is safe: at most one of the two lands.
//	                 The result is what was written, without a Version, so that the caller
//	                 knows its nonce again if it lands after all
func SwapRecord[T any](ctx context.Context, s Store, key string, old *Record[T], value T) (*Record[T], error) {
	return writeRecord(ctx, s, key, old, value)
}

func writeRecord[T any](ctx context.Context, s Store, key string, old *Record[T], value T) (*Record[T], error) {
	next := &Record[T]{Value: value, Nonce: rand.Text()}
	if old != nil {
		next.unknown = old.unknown
	}
	body, err := next.encode()
	if err != nil {
		return nil, fmt.Errorf("write record %s: %w: %w", key, ErrNotSent, err)
	}
	if old == nil {
		next.Version, err = s.Create(ctx, key, body)
	} else {
		next.Version, err = s.Swap(ctx, key, body, old.Version)
	}
	switch OutcomeOf(err) {
	case Applied:
		return next, nil
	case Failed:
		return nil, fmt.Errorf("write record %s: %w", key, err)
	default:
		return settle(ctx, s, key, old, next, err)
	}
}

// settle finds out by reading what a write came to. It also runs after a
// rejection: the caller wants to see who won, and a layer we do not control (a
// proxy that retries) may have rejected our own write after applying it.
func settle[T any](ctx context.Context, s Store, key string, old, next *Record[T], cause error) (*Record[T], error) {
	now, err := rereadRecord[T](ctx, s, key)
	gone := errors.Is(err, ErrNotFound)
	switch {
	case err == nil && now.Nonce == next.Nonce:
		return now, nil
	case OutcomeOf(cause) == Rejected:
		return now, fmt.Errorf("write record %s: %w", key, cause)
	case err == nil && (old == nil || now.Version != old.Version), gone && old != nil:
		// The condition can never be true again: versions do not come back.
		return now, fmt.Errorf("write record %s: %w (seen by reading it back after: %w)", key, ErrPrecondition, cause)
	case err == nil || gone:
		return next, fmt.Errorf("write record %s: still unknown, it may be under way: %w", key, cause)
	default:
		// The class of the read's failure must not pass for the write's: hence %v.
		return next, fmt.Errorf("write record %s: still unknown: %w; reading it back: %v", key, cause, err)
	}
}

const (
	settleReads = 4                     // after that the caller hears "still unknown"
	settlePause = 50 * time.Millisecond // doubled after each failed read
)

// rereadRecord reads a record back, patiently: the store has just failed once.
func rereadRecord[T any](ctx context.Context, s Store, key string) (rec *Record[T], err error) {
	for try := 0; ; try++ {
		rec, err = ReadRecord[T](ctx, s, key)
		final := err == nil || errors.Is(err, ErrNotFound) ||
			errors.Is(err, ErrNewerRecord) || errors.Is(err, ErrCorruptRecord)
		if final || try+1 == settleReads {
			return rec, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(settlePause << try):
		}
	}
}

// header is what every record carries.
type header struct {
	V     *int   `json:"v"`
	Nonce string `json:"nonce"`
}

func decodeRecord[T any](body []byte) (*Record[T], error) {
	if len(body) > MaxRecord {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorruptRecord, len(body))
	}
	var h header
	if err := json.Unmarshal(body, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorruptRecord, err)
	}
	switch {
	case h.V == nil || *h.V < 1 || h.Nonce == "":
		return nil, fmt.Errorf("%w: it lacks `v` or `nonce`", ErrCorruptRecord)
	case *h.V > RecordVersion:
		return nil, fmt.Errorf("%w (it has v %d, this node knows up to %d)", ErrNewerRecord, *h.V, RecordVersion)
	}
	rec := &Record[T]{Nonce: h.Nonce}
	if err := json.Unmarshal(body, &rec.Value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorruptRecord, err)
	}
	var err error
	if rec.unknown, err = leftoverOf[T](body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorruptRecord, err)
	}
	return rec, nil
}

func (r *Record[T]) encode() ([]byte, error) {
	known, err := json.Marshal(r.Value)
	if err != nil {
		return nil, err
	}
	fields, err := parseObject(known)
	if err != nil {
		return nil, fmt.Errorf("a record is a JSON object: %w", err)
	}
	if err := r.unknown.addTo(fields); err != nil {
		return nil, err
	}
	fields["v"], _ = json.Marshal(RecordVersion)
	fields["nonce"], _ = json.Marshal(r.Nonce)
	body, err := json.Marshal(fields)
	if err == nil && len(body) > MaxRecord {
		err = fmt.Errorf("a record of %d bytes is larger than %d", len(body), MaxRecord)
	}
	return body, err
}
