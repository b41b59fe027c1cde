package dir

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"celld/internal/bucket"
)

// List walks the directory that the prefix names, in the order of what each entry
// adds to the key. Entries that appear or vanish meanwhile may be missed or seen.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		w := walk{ctx: ctx, root: s.root + "/", prefix: prefix, after: after, yield: yield}
		at := prefix[:strings.LastIndexByte(prefix, '/')+1]
		if err := w.dir(dirPath(at), at); err != nil && err != errStopped {
			yield(bucket.Object{}, failed("list", prefix, nil, err))
		}
	}
}

// errStopped: the caller has seen enough.
var errStopped = errors.New("stopped")

type walk struct {
	ctx           context.Context
	root          string
	prefix, after string
	yield         func(bucket.Object, error) bool
}

// dir visits one directory, whose keys all start with base.
func (w *walk) dir(path, base string) error {
	entries, err := w.entries(path, base)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.file {
			err = w.file(path+e.name, base+e.text)
		} else {
			err = w.dir(path+e.name+"/", base+e.text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entries reads the entries of a directory that can hold keys we want, in order.
func (w *walk) entries(path, base string) ([]entry, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	all, err := readDir(w.root + path)
	if err != nil {
		return nil, err
	}
	var wanted []entry
	for _, d := range all {
		e, ok := parseEntry(d.Name(), d.IsDir())
		if ok && w.wants(base+e.text, e.file) {
			wanted = append(wanted, e)
		}
	}
	slices.SortFunc(wanted, func(a, b entry) int { return strings.Compare(a.text, b.text) })
	return wanted, nil
}

// readDir reads a directory that may be gone, unsorted.
func readDir(path string) ([]fs.DirEntry, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.ReadDir(-1)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // removed while we read
	}
	return all, err
}

// wants says whether a key, or any key that starts with it, is asked for.
func (w *walk) wants(key string, file bool) bool {
	if file {
		return strings.HasPrefix(key, w.prefix) && key > w.after
	}
	below := strings.HasPrefix(key, w.prefix) || strings.HasPrefix(w.prefix, key)
	return below && (key > w.after || strings.HasPrefix(w.after, key))
}

func (w *walk) file(path, key string) error {
	fd, err := openat(unix.AT_FDCWD, w.root+path, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	info, _, err := describe(fd, key)
	unix.Close(fd)
	if err != nil {
		return &bucket.Error{Op: "list", Key: key, Err: err}
	}
	info.Meta = nil
	if !w.yield(info, nil) {
		return errStopped
	}
	return nil
}
