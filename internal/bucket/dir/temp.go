package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// temps is this process's directory of unfinished writes.
type temps struct {
	path  string
	dirfd int
	alive int // holds the lock that says the directory is in use
	next  atomic.Uint64
}

// aliveName is locked as long as the owner of a temporary directory runs.
const aliveName = "alive"

// openTemps removes what dead processes left behind and makes a directory of our
// own. Both happen under the registry lock: a directory that is not locked yet
// must not look dead.
func openTemps(locks *lockFile, root string) (*temps, error) {
	unlock, err := locks.at(context.Background(), registryLock)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := os.MkdirAll(root, 0o777); err != nil {
		return nil, err
	}
	if err := sweep(root); err != nil {
		return nil, err
	}
	t := &temps{path: filepath.Join(root, rand.Text())}
	if err := os.Mkdir(t.path, 0o777); err != nil {
		return nil, err
	}
	if t.dirfd, err = unix.Open(t.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	t.alive, err = unix.Open(filepath.Join(t.path, aliveName), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, err
	}
	return t, tryLock(t.alive)
}

// sweep removes the temporary directories whose process is gone.
func sweep(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		if dead(path) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func dead(path string) bool {
	fd, err := unix.Open(filepath.Join(path, aliveName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return true // killed between making the directory and making the file
	}
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return tryLock(fd) == nil
}

// create opens a new temporary file.
func (t *temps) create() (fd int, name string, err error) {
	name = strconv.FormatUint(t.next.Add(1), 36)
	fd, err = openat(t.dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	return fd, name, err
}

func (t *temps) remove(name string) { unix.Unlinkat(t.dirfd, name, 0) }

func (t *temps) close() error {
	err := errors.Join(unix.Close(t.dirfd), os.RemoveAll(t.path))
	return errors.Join(err, unix.Close(t.alive))
}

func openat(dirfd int, name string, flags int) (fd int, err error) {
	for {
		fd, err = unix.Openat(dirfd, name, flags|unix.O_CLOEXEC, 0o666)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
