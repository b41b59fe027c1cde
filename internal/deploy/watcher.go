package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"celld/internal/bucket"
)

// Watcher keeps one node at the active deployment.
type Watcher struct {
	store bucket.Store
	adopt func(context.Context, *Deployment) error
	log   *slog.Logger

	turn  chan struct{} // holds one token: who has it, looks
	state State
	nonce string // of the pointer that state is about
}

// State is how the node stands to the deployments.
type State struct {
	Active    *Deployment // adopted; nil: none yet
	Pointer   Pointer     // as it was last read; zero: none
	Refused   string      // version that could not be adopted, or ""
	RefusedBy error       // why
}

// NewWatcher makes a watcher. adopt builds d beside the active deployment and
// switches to it; if it returns an error, the old one must still be serving.
func NewWatcher(store bucket.Store, adopt func(context.Context, *Deployment) error, log *slog.Logger) *Watcher {
	w := &Watcher{store: store, adopt: adopt, log: log, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// Run looks at the pointer now and then every poll, until ctx ends. A pointer
// that cannot be read is tried again at the next look; a deployment that was
// refused waits for another one, or for Reload.
func (w *Watcher) Run(ctx context.Context, poll time.Duration) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if err := w.look(ctx, false); err != nil && ctx.Err() == nil {
			w.log.Warn("deployment not adopted", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Reload looks at the pointer at once, and tries a refused deployment again.
// The error says why the node does not run the active deployment.
func (w *Watcher) Reload(ctx context.Context) error { return w.look(ctx, true) }

// State is what the node runs, and what it refused. It waits for an adoption
// that is under way.
func (w *Watcher) State(ctx context.Context) (State, error) {
	if err := w.take(ctx); err != nil {
		return State{}, err
	}
	defer w.give()
	return w.state, nil
}

func (w *Watcher) take(ctx context.Context) error {
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Watcher) give() { w.turn <- struct{}{} }

func (w *Watcher) look(ctx context.Context, again bool) error {
	if err := w.take(ctx); err != nil {
		return err
	}
	defer w.give()
	rec, err := bucket.ReadRecord[Pointer](ctx, w.store, pointerKey)
	if errors.Is(err, bucket.ErrNotFound) {
		if again {
			return fmt.Errorf("nothing was deployed to %s yet: run celld deploy", w.store)
		}
		return nil // a new fleet
	}
	if err != nil {
		return err
	}
	if rec.Nonce == w.nonce && !again {
		return nil // adopted, or refused and said
	}
	w.state.Pointer = rec.Value
	if w.state.Active != nil && w.state.Active.Version == rec.Value.Version {
		w.settle(rec.Nonce, nil)
		return nil
	}
	return w.change(ctx, rec)
}

// change loads the deployment and offers it to the node.
func (w *Watcher) change(ctx context.Context, rec *bucket.Record[Pointer]) error {
	v := rec.Value.Version
	d, err := LoadVersion(ctx, w.store, v)
	if err != nil {
		if permanent(err) {
			w.settle(rec.Nonce, err)
		}
		return w.kept(v, err)
	}
	if err := w.adopt(ctx, d); err != nil {
		if ctx.Err() == nil {
			w.settle(rec.Nonce, err)
		}
		return w.kept(v, err)
	}
	before := ""
	if w.state.Active != nil {
		before = w.state.Active.Version
	}
	w.state.Active = d
	w.settle(rec.Nonce, nil)
	w.log.Info("deployment adopted", "version", v, "before", before)
	return nil
}

// settle ends the matter of one pointer.
func (w *Watcher) settle(nonce string, refused error) {
	w.nonce, w.state.Refused, w.state.RefusedBy = nonce, "", nil
	if refused != nil {
		w.state.Refused, w.state.RefusedBy = w.state.Pointer.Version, refused
	}
}

// permanent tells a deployment that is bad from a bucket that did not answer.
// Missing objects count as the latter: listings and reads may lag behind.
func permanent(err error) bool {
	var t *Tampered
	return errors.As(err, &t) || errors.Is(err, ErrUnfit)
}

func (w *Watcher) kept(v string, err error) error {
	return fmt.Errorf("deployment %s is not adopted, %s: %w", v, w.running(), err)
}

func (w *Watcher) running() string {
	if w.state.Active == nil {
		return "no deployment is running"
	}
	return w.state.Active.Version + " keeps running"
}
