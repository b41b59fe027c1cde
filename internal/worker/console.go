package worker

import (
	"context"
	"errors"
	"log/slog"

	"celld/internal/call"
	"celld/internal/hostcall"
)

// consoleLog is console.log(level, text).
func consoleLog(f hostcall.Frame) error {
	i := frameIsolate(f)
	level := map[string]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}[f.Arg(0).Str()]
	log := i.script.opts.Log
	if !log.Enabled(context.Background(), level) {
		return nil
	}
	log.Log(context.Background(), level, f.Arg(1).Str(), "event", "console", "script", i.script.bundle.Name, "actor", i.actorLabel())
	return nil
}

func (i *isolate) actorLabel() string {
	if i.cur == nil {
		return ""
	}
	return i.cur.label
}

// unhandled reports a rejection that nobody handled, or an exception of a timer.
func (i *isolate) unhandled(msg string) {
	i.script.opts.Log.Error("Uncaught (in promise) "+i.script.mapStack(msg), "event", "uncaught", "script", i.script.bundle.Name, "actor", i.actorLabel())
}

// outgoingError is what JavaScript sees of a call that failed outside of the handler called.
func outgoingError(err error) error {
	var ex *call.Exception
	switch {
	case errors.As(err, &ex):
		return ex
	case errors.Is(err, call.ErrOverloaded):
		return &call.Exception{Name: "Error", Message: "Durable Object is overloaded. Too many requests queued.", Overloaded: true, Retryable: true}
	case errors.Is(err, call.ErrUnproven):
		return &call.Exception{Name: "Error", Message: err.Error(), Remote: true}
	case errors.Is(err, context.Canceled):
		return throwError{"AbortError", "The operation was aborted"}
	case errors.Is(err, context.DeadlineExceeded):
		return throwError{"TimeoutError", "The operation was aborted due to timeout"}
	}
	return err
}
