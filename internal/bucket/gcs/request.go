package gcs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

// request is one call of the API.
type request struct {
	op, key     string
	method, url string
	header      http.Header
	body        io.Reader
	length      int64 // -1: unknown
	swap        bool  // replaces a version: a missing object means a false condition
}

const (
	attempts   = 4
	firstPause = 100 * time.Millisecond // doubled for every further attempt
	errorBytes = 4 << 10                // of an error's text
)

// repeat sends a request that may be sent again: 408, 429, 5xx and lost answers are retried.
func (s *Store) repeat(ctx context.Context, req request) (res *http.Response, err error) {
	for try := 0; ; try++ {
		res, err = s.once(ctx, req)
		if err == nil || !retryable(err) || try+1 == attempts {
			return res, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(firstPause << try):
		}
	}
}

func retryable(err error) bool {
	var e *bucket.Error
	if !errors.As(err, &e) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if e.Status == 0 {
		return true
	}
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// once sends a request and turns every answer but success into an error.
func (s *Store) once(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, r.body)
	if err != nil {
		return nil, &bucket.Error{Op: r.op, Key: r.key, Class: bucket.ErrNotSent, Err: err}
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.body != nil {
		req.ContentLength = r.length
		req.GetBody = nil // no layer below may send it a second time
	}
	if err := s.authorize(req); err != nil {
		return nil, &bucket.Error{Op: r.op, Key: r.key, Class: bucket.ErrNotSent, Err: err}
	}
	ctx, sent := wire.Track(req.Context())
	res, err := s.http.Do(req.WithContext(ctx))
	if err != nil {
		return nil, &bucket.Error{Op: r.op, Key: r.key, Class: sent.Class(), Err: err}
	}
	if res.StatusCode/100 != 2 {
		return nil, r.refusal(res)
	}
	return res, nil
}

func (s *Store) authorize(req *http.Request) error {
	if s.opts.AppTag != "" {
		req.Header.Set("User-Agent", s.opts.AppTag)
	}
	if s.tokens == nil {
		return nil
	}
	token, err := s.tokens.Token()
	if err != nil {
		return fmt.Errorf("get a Google token: %w", err)
	}
	token.SetAuthHeader(req)
	return nil
}

func (r request) refusal(res *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, errorBytes))
	res.Body.Close()
	e := &bucket.Error{Op: r.op, Key: r.key, Status: res.StatusCode, Err: errors.New(string(bytes.TrimSpace(text)))}
	missing := res.StatusCode == http.StatusNotFound
	switch {
	case missing && bytes.Contains(text, []byte("bucket does not exist")):
		e.Class, e.Code = bucket.ErrNotSent, "NoSuchBucket"
	case missing && r.swap:
		e.Class = bucket.ErrPrecondition
	case missing && r.method != "POST":
		e.Class = bucket.ErrNotFound
	case res.StatusCode == http.StatusConflict:
	default:
		e.Class = wire.Answer(res.StatusCode)
	}
	return e
}

func (s *Store) repeatJSON(ctx context.Context, r request, into any) error {
	res, err := s.repeat(ctx, r)
	if err != nil {
		return err
	}
	return r.decode(res, into)
}

func (s *Store) onceJSON(ctx context.Context, r request, into any) error {
	res, err := s.once(ctx, r)
	if err != nil {
		return err
	}
	return r.decode(res, into)
}

func (r request) decode(res *http.Response, into any) error {
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return &bucket.Error{Op: r.op, Key: r.key, Status: res.StatusCode, Err: fmt.Errorf("read the answer: %w", err)}
	}
	io.Copy(io.Discard, res.Body) // so that the connection is used again
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	return err
}

// multipart frames an upload. A stream that fails, or is not as long as announced,
// fails the request before its closing boundary: the store then has half a request.
func (s *Store) multipart(key string, r io.Reader, size int64, opts bucket.PutOptions) (body io.Reader, length int64, boundary string, err error) {
	kind := opts.ContentType
	if kind == "" {
		kind = "application/octet-stream"
	}
	description, err := json.Marshal(resource{Name: s.opts.Prefix + key, Metadata: opts.Meta, ContentType: kind})
	if err != nil {
		return nil, 0, "", err
	}
	boundary = rand.Text()
	head := fmt.Sprintf("--%s\r\nContent-Type: application/json; charset=utf-8\r\n\r\n%s\r\n--%s\r\nContent-Type: %s\r\n\r\n",
		boundary, description, boundary, kind)
	tail := "\r\n--" + boundary + "--\r\n"
	length = -1
	if size >= 0 {
		r = &exactly{r: r, left: size}
		length = int64(len(head)) + size + int64(len(tail))
	}
	return io.MultiReader(bytes.NewReader([]byte(head)), r, bytes.NewReader([]byte(tail))), length, boundary, nil
}

// exactly fails a stream that is longer or shorter than announced.
type exactly struct {
	r    io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.left -= int64(n)
	if e.left < 0 || err == io.EOF && e.left > 0 {
		return 0, bucket.ErrWrongSize
	}
	return n, err
}
