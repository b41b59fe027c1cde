package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"celld/internal/bucket"
)

// Store is a bucket in a directory.
type Store struct {
	root  string
	locks *lockFile
	temps *temps
	dirs  *handles
}

var _ bucket.Store = (*Store)(nil)

// Open opens the bucket in a directory, and makes the directory if need be.
func Open(root string) (*Store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	s := &Store{root: root, dirs: newHandles(root)}
	if err := s.prepare(filepath.Join(root, private)); err != nil {
		return nil, fmt.Errorf("open the bucket directory %s: %w", root, err)
	}
	return s, nil
}

func (s *Store) prepare(private string) (err error) {
	if err := os.MkdirAll(private, 0o777); err != nil {
		return err
	}
	if s.locks, err = openLockFile(filepath.Join(private, "locks")); err != nil {
		return err
	}
	s.temps, err = openTemps(s.locks, filepath.Join(private, "temp"))
	return err
}

// Close gives back the handles. No other call may be under way.
func (s *Store) Close() error {
	s.dirs.close()
	return errors.Join(s.temps.close(), s.locks.close())
}

func (s *Store) String() string { return "file://" + s.root }

func (s *Store) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.put(ctx, "put", key, body, bucket.PutOptions{})
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.put(ctx, "create", key, body, bucket.PutOptions{IfAbsent: true})
}

func (s *Store) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	if old == "" {
		return "", failed("swap", key, bucket.ErrNotSent, bucket.ErrNoVersion)
	}
	return s.put(ctx, "swap", key, body, bucket.PutOptions{IfVersion: old})
}

func (s *Store) put(ctx context.Context, op, key string, body []byte, opts bucket.PutOptions) (bucket.Version, error) {
	return s.write(ctx, op, key, opts, func(fd int, head header) (header, error) {
		head.size = int64(len(body))
		return head, writeAll(fd, head.append(make([]byte, 0, headerLen)), body)
	})
}

func (s *Store) PutStream(ctx context.Context, key string, r io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	meta, err := encodeMeta(opts.Meta)
	if err != nil {
		return "", failed("put", key, bucket.ErrNotSent, err)
	}
	return s.write(ctx, "put", key, opts, func(fd int, head header) (header, error) {
		return writeStream(fd, head, meta, &ctxReader{ctx, r}, size)
	})
}

// write is the way of every object: fill a temporary file, sync it, put it in place.
func (s *Store) write(ctx context.Context, op, key string, opts bucket.PutOptions, fill func(int, header) (header, error)) (bucket.Version, error) {
	if err := bucket.CheckWrite(ctx, op, key, opts); err != nil {
		return "", err
	}
	fd, temp, err := s.temps.create()
	if err != nil {
		return "", failed(op, key, bucket.ErrNotSent, err)
	}
	head, err := fill(fd, header{version: newVersion()})
	if err == nil {
		err = unix.Fdatasync(fd) // the size counts as data; times do not matter
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		s.temps.remove(temp)
		return "", failed(op, key, bucket.ErrNotSent, err)
	}
	if err := s.publish(ctx, op, key, temp, opts); err != nil {
		return "", err
	}
	return head.version, nil
}

// maxTries bounds how often one write finds its directory removed under it. Only
// somebody who deletes files by hand makes it fail.
const maxTries = 1000

// publish renames a finished temporary file to its key, if the condition holds.
func (s *Store) publish(ctx context.Context, op, key, temp string, opts bucket.PutOptions) error {
	parent, name := keyPath(key)
	for try := 1; ; try++ {
		h, err := s.dirs.get(parent)
		if err != nil {
			s.temps.remove(temp)
			return failed(op, key, bucket.ErrNotSent, err)
		}
		err = s.rename(ctx, key, temp, h, name, opts)
		if err == nil {
			// Outside the lock: whoever overwrites us next syncs the same directory, so
			// its success implies ours.
			err = h.fsync()
			s.dirs.put(h)
			if err != nil {
				return failed(op, key, nil, fmt.Errorf("sync the directory: %w", err))
			}
			return nil
		}
		s.dirs.put(h)
		if errors.Is(err, fs.ErrNotExist) && try < maxTries {
			s.dirs.drop(h) // it was empty and somebody removed it
			continue
		}
		s.temps.remove(temp)
		if errors.Is(err, bucket.ErrPrecondition) {
			return failed(op, key, bucket.ErrPrecondition, nil)
		}
		return failed(op, key, bucket.ErrNotSent, err)
	}
}

// rename is the critical section: check and rename under the lock of the key.
func (s *Store) rename(ctx context.Context, key, temp string, h *handle, name string, opts bucket.PutOptions) error {
	unlock, err := s.locks.key(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	if opts.IfAbsent || opts.IfVersion != "" {
		if err := checkCondition(h.fd, name, opts); err != nil {
			return err
		}
	}
	return unix.Renameat(s.temps.dirfd, temp, h.fd, name)
}

func checkCondition(dirfd int, name string, opts bucket.PutOptions) error {
	now, err := versionAtPath(dirfd, name)
	if errors.Is(err, fs.ErrNotExist) {
		now, err = "", nil
	}
	if err != nil {
		return err
	}
	if opts.IfAbsent && now != "" || opts.IfVersion != "" && now != opts.IfVersion {
		return bucket.ErrPrecondition
	}
	return nil
}

func versionAtPath(dirfd int, name string) (bucket.Version, error) {
	fd, err := openat(dirfd, name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var buf [headerLen]byte
	n, err := readFull(fd, buf[:], 0)
	if err != nil {
		return "", err
	}
	head, err := parseHeader(buf[:n])
	return head.version, err
}

// Delete removes the file, and the directories above that are empty now.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return failed("delete", key, bucket.ErrNotSent, err)
	}
	parent, name := keyPath(key)
	unlock, err := s.locks.key(ctx, key)
	if err != nil {
		return failed("delete", key, bucket.ErrNotSent, err)
	}
	err = unix.Unlink(path.Join(s.root, parent, name))
	unlock()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err == nil {
		err = s.syncRemoval(parent)
	}
	if err != nil {
		return failed("delete", key, nil, err)
	}
	return nil
}

// syncRemoval makes a removal durable, in the nearest directory that stays.
func (s *Store) syncRemoval(dir string) error {
	for dir != "" && unix.Rmdir(path.Join(s.root, dir)) == nil {
		dir = path.Dir(path.Clean(dir)) + "/"
		if dir == "./" {
			dir = ""
		}
	}
	h, err := s.dirs.get(dir)
	if err != nil {
		return err
	}
	defer s.dirs.put(h)
	return h.fsync()
}

func failed(op, key string, class, err error) error {
	return &bucket.Error{Op: op, Key: key, Class: class, Err: err}
}
