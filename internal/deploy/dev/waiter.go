package dev

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// waiter says when to look at the files again.
type waiter struct {
	events *fsnotify.Watcher // nil: the system gives no events
	dirs   map[string]bool
	report func(Event)
	lame   bool // some directory could not be watched
}

func newWaiter(report func(Event)) (*waiter, error) {
	w := &waiter{dirs: map[string]bool{}, report: report}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		w.limp(err)
		return w, nil
	}
	w.events = events
	return w, nil
}

func (w *waiter) close() {
	if w.events != nil {
		_ = w.events.Close()
	}
}

// limp falls back to looking on a timer, and says so once.
func (w *waiter) limp(err error) {
	if !w.lame {
		w.lame = true
		w.report(Event{Notice: fmt.Sprintf("changes are looked for every %s, because the system gives no events: %v", lookEvery, err)})
	}
}

// watch makes the directories of the files, and the trees below dirs, be
// watched. Directories and not files: editors replace files.
func (w *waiter) watch(files, dirs []string) {
	if w.events == nil {
		return
	}
	want := map[string]bool{}
	for _, f := range files {
		want[filepath.Dir(f)] = true
	}
	for _, d := range dirs {
		want[d] = true
		_ = filepath.WalkDir(d, func(dir string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil
			}
			if dir != d && (e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".")) {
				return filepath.SkipDir
			}
			want[dir] = true
			return nil
		})
	}
	for dir := range w.dirs {
		if !want[dir] {
			_ = w.events.Remove(dir)
			delete(w.dirs, dir)
		}
	}
	for dir := range want {
		if !w.dirs[dir] {
			w.add(dir)
		}
	}
}

func (w *waiter) add(dir string) {
	err := w.events.Add(dir)
	if err == nil {
		w.dirs[dir] = true
		return
	}
	if !exists(dir) { // it may come to be: watch for it from the nearest that is there
		if up := filepath.Dir(dir); up != dir && !w.dirs[up] {
			w.add(up)
		}
		return
	}
	w.limp(err)
}

// next waits for the events of one change. It tells whether something
// appeared: a file or directory that was not there before.
func (w *waiter) next(ctx context.Context) (appeared bool, err error) {
	var timer <-chan time.Time
	if w.events == nil || w.lame {
		t := time.NewTimer(lookEvery)
		defer t.Stop()
		timer = t.C
	}
	var events chan fsnotify.Event
	var faults chan error
	if w.events != nil {
		events, faults = w.events.Events, w.events.Errors
	}
	select {
	case e := <-events:
		appeared = e.Has(fsnotify.Create)
		w.drain(&appeared)
		return appeared, nil
	case <-faults: // an overflow: something was missed, so look
		return true, nil
	case <-timer:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// drain takes the events of the same save.
func (w *waiter) drain(appeared *bool) {
	t := time.NewTimer(settle)
	defer t.Stop()
	for {
		select {
		case e := <-w.events.Events:
			*appeared = *appeared || e.Has(fsnotify.Create)
		case <-t.C:
			return
		}
	}
}
