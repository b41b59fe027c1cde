package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"celld/internal/bucket"
	"celld/internal/id"
	"celld/internal/logfilter"
)

// wireLog has one line for each request that is about a lease. While its target
// is off such a line costs one atomic load.
func wireLog() *slog.Logger { return logfilter.Logger("store") }

func logRead(log *slog.Logger, s id.Session, began time.Time, err error) {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		logRequest(log, "node_lease_read", readOutcome(err), s, began, err)
	}
}

func logWrite(log *slog.Logger, s id.Session, generation uint64, began time.Time, err error) {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		logRequest(log, "node_lease_write", writeOutcome(err), s, began, err, "generation", generation)
	}
}

func logRequest(log *slog.Logger, event, outcome string, s id.Session, began time.Time, err error, more ...any) {
	args := append(more, "event", event, "outcome", outcome, "key", Key(s), "duration_us", time.Since(began).Microseconds())
	if err != nil {
		args = append(args, "err", err)
	}
	log.Debug(event, args...)
}

func readOutcome(err error) string {
	switch {
	case err == nil:
		return "found"
	case errors.Is(err, bucket.ErrNotFound):
		return "missing"
	}
	return "error"
}

func writeOutcome(err error) string {
	switch {
	case err == nil:
		return "applied"
	case errors.Is(err, bucket.ErrPrecondition):
		return "rejected"
	}
	return "error"
}
