package dir

import (
	"container/list"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"
)

// maxHandles bounds the directory handles kept open; the one used longest ago is
// closed for a new one, once nobody works with it.
const maxHandles = 128

// handles keeps directories open that were written to lately. A handle in here
// is of a directory that is durable: it and its parents have been synced.
type handles struct {
	root string
	mu   sync.Mutex
	open map[string]*handle
	lru  list.List // of *handle, newest first
}

type handle struct {
	path string
	fd   int
	uses int // one is the table's own
	at   *list.Element
	sync shared
}

func newHandles(root string) *handles {
	return &handles{root: root, open: map[string]*handle{}}
}

// get returns the handle of a directory below the root ("" or "a/b/"), and makes
// the directory if need be. Call put when done.
func (t *handles) get(dir string) (*handle, error) {
	t.mu.Lock()
	h := t.open[dir]
	if h != nil {
		h.uses++
		t.lru.MoveToFront(h.at)
	}
	t.mu.Unlock()
	if h != nil {
		return h, nil
	}
	fd, err := t.openDurably(dir)
	if err != nil {
		return nil, err
	}
	return t.add(dir, fd), nil
}

// openDurably opens a directory and makes sure that its entry in the parent
// survives a power cut, whoever made it.
func (t *handles) openDurably(dir string) (int, error) {
	if dir == "" {
		return openat(unix.AT_FDCWD, t.root, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	parentPath := path.Dir(path.Clean(dir)) + "/"
	if parentPath == "./" {
		parentPath = ""
	}
	for {
		parent, err := t.get(parentPath)
		if err != nil {
			return -1, err
		}
		fd, err := t.openChild(parent, path.Base(dir))
		t.put(parent)
		if err == nil || !os.IsNotExist(err) {
			return fd, err
		}
		t.drop(parent) // somebody removed it because it was empty
	}
}

func (t *handles) openChild(parent *handle, name string) (int, error) {
	if err := unix.Mkdirat(parent.fd, name, 0o777); err != nil && err != unix.EEXIST {
		return -1, err
	}
	fd, err := openat(parent.fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	if err := parent.fsync(); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (t *handles) add(dir string, fd int) *handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.open[dir]; h != nil { // another goroutine was faster
		t.unlink(h)
	}
	h := &handle{path: dir, fd: fd, uses: 2}
	h.at = t.lru.PushFront(h)
	t.open[dir] = h
	for t.lru.Len() > maxHandles {
		t.unlink(t.lru.Back().Value.(*handle))
	}
	return h
}

func (t *handles) put(h *handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release(h)
}

// drop forgets a handle whose directory is gone.
func (t *handles) drop(h *handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[h.path] == h {
		t.unlink(h)
	}
}

func (t *handles) unlink(h *handle) {
	delete(t.open, h.path)
	t.lru.Remove(h.at)
	t.release(h)
}

func (t *handles) release(h *handle) {
	if h.uses--; h.uses == 0 {
		unix.Close(h.fd)
	}
}

func (t *handles) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.open {
		t.unlink(h)
	}
}

// fsync makes every change to the directory durable that was made before the call.
func (h *handle) fsync() error {
	return h.sync.do(func() error { return unix.Fsync(h.fd) })
}

// shared lets callers that wait at the same time share one run of an operation
// that starts after all of them have called.
type shared struct {
	mu      sync.Mutex
	waiting *batch
	running sync.Mutex
}

type batch struct {
	done chan struct{}
	err  error
}

func (s *shared) do(op func() error) error {
	s.mu.Lock()
	b, leads := s.waiting, false
	if b == nil {
		b, leads = &batch{done: make(chan struct{})}, true
		s.waiting = b
	}
	s.mu.Unlock()
	if !leads {
		<-b.done
		return b.err
	}
	s.running.Lock() // while the previous run lasts, others join
	s.mu.Lock()
	s.waiting = nil
	s.mu.Unlock()
	b.err = op()
	s.running.Unlock()
	close(b.done)
	return b.err
}
