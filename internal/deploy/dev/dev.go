package dev

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"celld/internal/deploy"
	"celld/internal/wrangler"
)

const (
	// settle gathers the events of one save into one look. Correctness does not
	// hang on it.
	settle = 20 * time.Millisecond
	// lookEvery is how often the files are looked at where the system gives no events.
	lookEvery = time.Second
	// maxWatched bounds the files that a directory of sources contributes.
	maxWatched = 20000
)

// Options say what to watch.
type Options struct {
	Configs []string // configuration files or directories; the first is the default Worker
	Env     string
	Once    bool // build and publish once (--no-watch)
	Output  io.Writer
}

// Run builds and publishes until ctx ends. It returns an error only if
// it cannot go on; a build that fails is reported and waited out, except with
// Once.
func Run(ctx context.Context, opts Options, publish func(context.Context, *deploy.Deployment) error, report func(Event)) error {
	l := &loop{opts: opts, publish: publish, report: report}
	if opts.Once {
		return l.once(ctx)
	}
	w, err := newWaiter(report)
	if err != nil {
		return err
	}
	defer w.close()
	for {
		// The fingerprint is taken before the build: what changes during the build
		// is seen afterwards.
		_ = l.once(ctx) // reported
		if ctx.Err() != nil {
			return nil
		}
		if err := l.wait(ctx, w); err != nil {
			return nil
		}
	}
}

// Event is what a person wants to hear.
type Event struct {
	Published *deploy.Deployment // new code serves
	Unchanged bool               // a build came to the same version
	Err       error              // the build or the publication failed; the old code serves
	Notice    string
}

type loop struct {
	opts    Options
	publish func(context.Context, *deploy.Deployment) error
	report  func(Event)

	inputs  []string
	dirs    []string
	print   [sha256.Size]byte // of the inputs as they were before the build
	version string            // published
	failed  bool
	last    string          // the failure that was reported last
	makes   bool            // a build command writes files
	doubted bool            // the last build failed, and that was doubted
	said    map[string]bool // notices
}

// once builds and publishes.
func (l *loop) once(ctx context.Context) error {
	before := fingerprint(l.inputs, l.dirs)
	d, err := l.build(ctx)
	// Files that are new among the inputs had no fingerprint before; take the whole
	// anew unless an old one changed meanwhile.
	l.print = l.settled(before)
	l.failed = err != nil
	if err == nil && d.Version == l.version {
		l.last = ""
		l.report(Event{Unchanged: true})
		return nil
	}
	if err == nil {
		if err = l.publish(ctx, d); err == nil {
			l.version = d.Version
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && !l.opts.Once && l.doubtful() {
		return err // the next build follows at once
	}
	if err != nil {
		l.failed = true
		if l.last != err.Error() { // a file that came and did not help is no news
			l.report(Event{Err: err})
		}
		l.last = err.Error()
		return err
	}
	l.last, l.doubted = "", false
	l.report(Event{Published: d})
	return nil
}

// changed is the fingerprint of no files at all.
var changed [sha256.Size]byte

// doubtful tells whether a build failed only because it saw files in the middle
// of a change: then it is repeated. That is done once for files that are empty, which
// they may be for good.
func (l *loop) doubtful() bool {
	if l.print == changed {
		return true
	}
	l.doubted = !l.doubted && slices.ContainsFunc(l.inputs, halfway)
	if l.doubted {
		l.print = changed
	}
	return l.doubted
}

type snapshot struct {
	inputs, dirs []string
	print        [sha256.Size]byte
}

func fingerprint(inputs, dirs []string) snapshot {
	return snapshot{inputs, dirs, sum(inputs, dirs)}
}

// settled is the fingerprint to compare with from now on. If one of the former
// inputs changed while the build ran, it is one that nothing equals. A build
// command changes files itself; its changes must not call for another build.
func (l *loop) settled(before snapshot) [sha256.Size]byte {
	if !l.makes && sum(before.inputs, before.dirs) != before.print {
		return changed
	}
	return sum(l.inputs, l.dirs)
}

func (l *loop) build(ctx context.Context) (*deploy.Deployment, error) {
	var cfgs []*wrangler.Config
	l.inputs, l.dirs, l.makes = nil, nil, false
	for _, path := range l.opts.Configs {
		file, err := wrangler.Find(path)
		if err != nil {
			l.dirs = append(l.dirs, path)
			return nil, err
		}
		l.inputs = append(l.inputs, file)
		cfg, err := wrangler.Load(file, wrangler.Options{Env: l.opts.Env})
		if err != nil {
			return nil, err
		}
		if cfg.Assets != nil && cfg.Assets.Directory != "" {
			l.dirs = append(l.dirs, filepath.Join(cfg.Dir, cfg.Assets.Directory))
		}
		l.makes = l.makes || cfg.Build.Command != ""
		cfgs = append(cfgs, cfg)
	}
	b, err := deploy.Build(ctx, cfgs, deploy.Options{Dev: true, Output: l.opts.Output})
	l.inputs, l.dirs = append(l.inputs, b.Inputs...), append(l.dirs, b.Dirs...)
	l.say(b.Notices)
	return b.Deployment, err
}

// say repeats no notice.
func (l *loop) say(notices []string) {
	if l.said == nil {
		l.said = map[string]bool{}
	}
	for _, n := range notices {
		if !l.said[n] {
			l.said[n] = true
			l.report(Event{Notice: n})
		}
	}
}

// wait returns when the inputs are not what was built. After a failure a file
// that appears beside the inputs counts as well: it may be the missing one.
func (l *loop) wait(ctx context.Context, w *waiter) error {
	w.watch(l.inputs, l.dirs)
	for {
		// Look before waiting: the change may have come before the watch stood.
		if sum(l.inputs, l.dirs) != l.print && l.complete(ctx, w) {
			return ctx.Err()
		}
		appeared, err := w.next(ctx)
		if err != nil {
			return err
		}
		if l.failed && appeared {
			return nil
		}
	}
}

// complete waits out the moment in which a file was moved away or emptied and
// its new contents are not there yet. One that stays so is a change too, after
// a while.
func (l *loop) complete(ctx context.Context, w *waiter) bool {
	if !slices.ContainsFunc(l.inputs, halfway) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 10*settle)
	defer cancel()
	for ctx.Err() == nil {
		_, _ = w.next(ctx)
		if !slices.ContainsFunc(l.inputs, halfway) {
			return sum(l.inputs, l.dirs) != l.print
		}
	}
	return true
}

// halfway is a file that somebody may be about to write.
func halfway(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Size() == 0 || err != nil && !optional(file)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// optional files may be away for good.
func optional(file string) bool {
	base := filepath.Base(file)
	return strings.HasPrefix(base, ".dev.vars") || base == "package.json" || base == "tsconfig.json"
}

// sum is one hash over the contents of all files, and of those in dirs.
func sum(inputs, dirs []string) (out [sha256.Size]byte) {
	files := map[string]bool{}
	for _, f := range inputs {
		files[f] = true
	}
	for _, dir := range dirs {
		below(dir, func(f string) { files[f] = true })
	}
	h := sha256.New()
	for _, f := range slices.Sorted(maps.Keys(files)) {
		sumFile(h, f)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func sumFile(h hash.Hash, file string) {
	fmt.Fprintf(h, "%d:%s", len(file), file)
	f, err := os.Open(file)
	if err != nil {
		fmt.Fprintf(h, "absent %v", errors.Is(err, fs.ErrNotExist))
		return
	}
	defer f.Close()
	one := sha256.New()
	_, _ = io.Copy(one, f)
	h.Write(one.Sum(nil))
}

// below calls visit for the files below dir, but for packages and hidden ones.
func below(dir string, visit func(string)) {
	n := 0
	_ = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case e.IsDir() && file != dir && (e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".")):
			return filepath.SkipDir
		case e.Type().IsRegular():
			if n++; n > maxWatched {
				return filepath.SkipAll
			}
			visit(file)
		}
		return nil
	})
}
