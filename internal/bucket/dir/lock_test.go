package dir

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"celld/internal/bucket"
)

// A process that was stopped inside the critical section holds up its key only,
// and only until the caller's patience ends.
func TestAHeldLockIsWaitedForWithPatience(t *testing.T) {
	root := t.TempDir()
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := openLockFile(filepath.Join(root, private, "locks"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	unlock, err := other.key(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "another", nil); err != nil {
		t.Errorf("another key: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := s.Create(ctx, "k", nil)
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, bucket.ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("a writer that gave up: %v", err)
	}
	created := make(chan error)
	go func() {
		_, err := s.Create(t.Context(), "k", nil)
		created <- err
	}()
	unlock()
	if err := <-created; err != nil {
		t.Errorf("a writer that waited: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

func TestSharedSyncsStartAfterTheirCallers(t *testing.T) {
	var s shared
	var runs int
	inside, leave := make(chan struct{}), make(chan struct{})
	op := func() error {
		runs++
		inside <- struct{}{}
		<-leave
		return nil
	}
	done := make(chan error)
	call := func() { done <- s.do(op) }
	go call()
	<-inside // the first run has begun: later callers need another
	for range 5 {
		go call()
	}
	waitForBatch(t, &s)
	leave <- struct{}{}
	for served := 1; served < 6; {
		select {
		case <-inside:
			leave <- struct{}{}
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			served++
		}
	}
	<-done
	if runs < 2 || runs > 6 {
		t.Errorf("%d runs for six callers", runs)
	}
}

// waitForBatch returns when somebody waits for a run that has not begun.
func waitForBatch(t *testing.T, s *shared) {
	for t.Context().Err() == nil {
		s.mu.Lock()
		waiting := s.waiting != nil
		s.mu.Unlock()
		if waiting {
			return
		}
	}
}
