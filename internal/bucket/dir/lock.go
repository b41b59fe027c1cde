package dir

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile holds every lock of a bucket as byte ranges of one file. A lock of an
// open file description belongs to the process's one handle, so goroutines are
// kept apart by stripes first.
type lockFile struct {
	fd      int
	stripes [64]sync.Mutex
}

// Offsets of the lock file. Keys hash to the range from keyLocks up.
const (
	registryLock = 0 // the set of temporary directories
	keyLocks     = 1 << 16
)

const (
	firstPause = 20 * time.Microsecond // a critical section is two system calls
	maxPause   = 5 * time.Millisecond  // its holder was stopped, or the machine is busy
)

func openLockFile(path string) (*lockFile, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, err
	}
	return &lockFile{fd: fd}, nil
}

// key locks one key against every process; call the result to unlock.
func (l *lockFile) key(ctx context.Context, key string) (unlock func(), err error) {
	// FNV-1a: every process must find the same offset.
	hash := uint64(14695981039346656037)
	for i := 0; i < len(key); i++ {
		hash = (hash ^ uint64(key[i])) * 1099511628211
	}
	return l.at(ctx, keyLocks+int64(hash>>8))
}

func (l *lockFile) at(ctx context.Context, offset int64) (unlock func(), err error) {
	stripe := &l.stripes[offset%int64(len(l.stripes))]
	stripe.Lock()
	if err := l.acquire(ctx, offset); err != nil {
		stripe.Unlock()
		return nil, err
	}
	return func() {
		fcntl(l.fd, unix.F_UNLCK, offset) // cannot fail on an open file
		stripe.Unlock()
	}, nil
}

// acquire polls, because a blocking request could not be cancelled, and because a
// process that was stopped inside the section must not hang the others for ever.
func (l *lockFile) acquire(ctx context.Context, offset int64) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := fcntl(l.fd, unix.F_WRLCK, offset)
		if err != unix.EAGAIN && err != unix.EACCES {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// tryLock takes the lock of a whole file without waiting.
func tryLock(fd int) error { return fcntl(fd, unix.F_WRLCK, 0) }

func fcntl(fd int, kind int16, offset int64) error {
	lock := unix.Flock_t{Type: kind, Start: offset, Len: 1}
	for {
		if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock); err != unix.EINTR {
			return err
		}
	}
}

func (l *lockFile) close() error { return unix.Close(l.fd) }
