package dir

import (
	"context"
	"io"

	"golang.org/x/sys/unix"

	"celld/internal/bucket"
)

// writeAll writes the parts one behind the other.
func writeAll(fd int, parts ...[]byte) error {
	for len(parts) > 0 {
		n, err := unix.Writev(fd, parts)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if len(parts) > 0 {
			parts[0] = parts[0][n:]
		}
	}
	return nil
}

// writeStream copies a stream behind room for the header, which is written last
// because only then the size is known.
func writeStream(fd int, head header, meta []byte, r io.Reader, size int64) (header, error) {
	head.metaLen = int64(len(meta))
	if err := writeAll(fd, make([]byte, headerLen), meta); err != nil {
		return head, err
	}
	n, err := io.Copy(fdWriter(fd), r)
	if err != nil {
		return head, err
	}
	if size >= 0 && n != size {
		return head, bucket.ErrWrongSize
	}
	head.size = n
	_, err = unix.Pwrite(fd, head.append(nil), 0)
	return head, err
}

type fdWriter int

func (fd fdWriter) Write(p []byte) (int, error) {
	if err := writeAll(int(fd), p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ctxReader ends a copy when its context does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// readFull reads until p is full or the file ends.
func readFull(fd int, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := unix.Pread(fd, p[n:], off+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			return n, err
		}
		n += m
	}
	return n, nil
}
