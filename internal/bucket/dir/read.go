package dir

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"celld/internal/bucket"
)

// firstRead is enough for nearly every record: header and body in one read.
const firstRead = 8 << 10

var buffers = sync.Pool{New: func() any { return new([firstRead]byte) }}

// Get is open, read, close; a larger object costs one more read.
func (s *Store) Get(ctx context.Context, key string) ([]byte, bucket.Version, error) {
	fd, err := s.openKey(ctx, "get", key)
	if err != nil {
		return nil, "", err
	}
	defer unix.Close(fd)
	body, head, err := readObject(fd)
	if err != nil {
		return nil, "", failed("get", key, nil, err)
	}
	return body, head.version, nil
}

func readObject(fd int) ([]byte, header, error) {
	buf := buffers.Get().(*[firstRead]byte)
	defer buffers.Put(buf)
	n, err := pread(fd, buf[:], 0)
	if err != nil {
		return nil, header{}, err
	}
	head, err := parseHeader(buf[:n])
	if err != nil {
		return nil, header{}, err
	}
	if err := checkSize(fd, head, n); err != nil {
		return nil, header{}, err
	}
	body := make([]byte, head.size)
	had := 0
	if from := head.bodyAt(); from < int64(n) {
		had = copy(body, buf[from:n])
	}
	if had < len(body) {
		if n, err = readFull(fd, body[had:], head.bodyAt()+int64(had)); err == nil && had+n < len(body) {
			err = errCorrupt
		}
	}
	return body, head, err
}

// checkSize refuses a header that promises more than the file holds, before
// anything of that size is allocated. n bytes were seen already.
func checkSize(fd int, head header, n int) error {
	if head.bodyAt()+head.size <= int64(n) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if head.size > st.Size-head.bodyAt() {
		return errCorrupt
	}
	return nil
}

func pread(fd int, p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, p, off)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Open streams a range of an object; what was opened stays as it is while it is read.
func (s *Store) Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	fd, err := s.openKey(ctx, "open", key)
	if err != nil {
		return nil, bucket.Object{}, err
	}
	info, head, err := describe(fd, key)
	if err != nil {
		unix.Close(fd)
		return nil, bucket.Object{}, failed("open", key, nil, err)
	}
	from, to := bucket.ClipRange(off, length, head.size)
	f := os.NewFile(uintptr(fd), key)
	return &rangeReader{io.NewSectionReader(f, head.bodyAt()+from, to-from), f}, info, nil
}

type rangeReader struct {
	*io.SectionReader
	io.Closer
}

func (s *Store) Head(ctx context.Context, key string) (bucket.Object, error) {
	fd, err := s.openKey(ctx, "head", key)
	if err != nil {
		return bucket.Object{}, err
	}
	defer unix.Close(fd)
	info, _, err := describe(fd, key)
	if err != nil {
		return bucket.Object{}, failed("head", key, nil, err)
	}
	return info, nil
}

// describe reads what is known about an open object.
func describe(fd int, key string) (info bucket.Object, head header, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return info, head, err
	}
	var buf [headerLen]byte
	n, err := readFull(fd, buf[:], 0)
	if err != nil {
		return info, head, err
	}
	if head, err = parseHeader(buf[:n]); err != nil {
		return info, head, err
	}
	if head.size > st.Size-head.bodyAt() {
		return info, head, errCorrupt
	}
	raw := make([]byte, head.metaLen)
	if _, err := readFull(fd, raw, int64(headerLen)); err != nil {
		return info, head, err
	}
	meta, err := decodeMeta(raw)
	info = bucket.Object{Key: key, Size: head.size, Modified: time.Unix(st.Mtim.Unix()), Version: head.version, Meta: meta}
	return info, head, err
}

func (s *Store) openKey(ctx context.Context, op, key string) (int, error) {
	if err := ctx.Err(); err != nil {
		return -1, failed(op, key, bucket.ErrNotSent, err)
	}
	parent, name := keyPath(key)
	fd, err := openat(unix.AT_FDCWD, s.root+"/"+parent+name, unix.O_RDONLY)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG):
		return -1, failed(op, key, bucket.ErrNotFound, nil)
	default:
		return -1, failed(op, key, nil, err)
	}
}
