package gcs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

// Options say how to reach the store. Credentials are Google's application default
// ones; an endpoint over plain http (an emulator) gets none.
type Options struct {
	Bucket   string
	Prefix   string // empty or ending with a slash
	Endpoint string // empty: STORAGE_EMULATOR_HOST, else Google's own
	AppTag   string
}

const (
	ownHost  = "https://storage.googleapis.com"
	scope    = "https://www.googleapis.com/auth/devstorage.read_write"
	pageSize = 1000
)

// Store is a bucket on Google Cloud Storage.
type Store struct {
	opts   Options
	base   string
	http   *http.Client
	tokens oauth2.TokenSource // nil: none needed
}

var _ bucket.Store = (*Store)(nil)

// Open finds credentials; it does not talk to the store.
func Open(ctx context.Context, opts Options) (*Store, error) {
	s := &Store{opts: opts, base: strings.TrimSuffix(endpoint(opts.Endpoint), "/"), http: wire.NewClient()}
	if strings.HasPrefix(s.base, "http://") {
		return s, nil
	}
	credentials, err := google.FindDefaultCredentials(context.WithoutCancel(ctx), scope)
	if err != nil {
		return nil, fmt.Errorf("no Google credentials for bucket %s: set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login`: %w", opts.Bucket, err)
	}
	s.tokens = oauth2.ReuseTokenSource(nil, credentials.TokenSource)
	return s, nil
}

func endpoint(set string) string {
	if set == "" {
		set = os.Getenv("STORAGE_EMULATOR_HOST")
	}
	switch {
	case set == "":
		return ownHost
	case !strings.Contains(set, "://"):
		return "http://" + set
	default:
		return set
	}
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

func (s *Store) String() string {
	name := "gs://" + s.opts.Bucket
	if s.opts.Prefix != "" {
		name += "/" + strings.TrimSuffix(s.opts.Prefix, "/")
	}
	if s.base != ownHost {
		name += " at " + s.base
	}
	return name
}

// objectURL is the address of one object.
func (s *Store) objectURL(key string, query url.Values) string {
	return s.base + "/storage/v1/b/" + url.PathEscape(s.opts.Bucket) + "/o/" + url.PathEscape(s.opts.Prefix+key) + "?" + query.Encode()
}

// resource is an object as the API describes it.
type resource struct {
	Name        string            `json:"name"`
	Size        string            `json:"size,omitempty"`
	Updated     time.Time         `json:"updated,omitzero"`
	Generation  string            `json:"generation,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	ContentType string            `json:"contentType,omitempty"`
}

const fields = "name,size,updated,generation,metadata"

func (s *Store) object(r resource) bucket.Object {
	size, _ := strconv.ParseInt(r.Size, 10, 64)
	return bucket.Object{Key: strings.TrimPrefix(r.Name, s.opts.Prefix), Size: size,
		Modified: r.Updated, Version: bucket.Version(r.Generation), Meta: r.Metadata}
}

func (s *Store) Get(ctx context.Context, key string) ([]byte, bucket.Version, error) {
	res, err := s.repeat(ctx, request{op: "get", key: key, method: "GET", url: s.objectURL(key, url.Values{"alt": {"media"}})})
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	version := bucket.Version(res.Header.Get("X-Goog-Generation"))
	if err == nil && version == "" {
		err = bucket.ErrNoETag
	}
	if err != nil {
		return nil, "", &bucket.Error{Op: "get", Key: key, Err: err}
	}
	return body, version, nil
}

// Open asks for the description first, because the media answer lacks the
// metadata, and then for the bytes of that very generation.
func (s *Store) Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	info, err := s.Head(ctx, key)
	if err != nil {
		return nil, bucket.Object{}, err
	}
	from, to := bucket.ClipRange(off, length, info.Size)
	if from == to {
		return http.NoBody, info, nil
	}
	req := request{op: "open", key: key, method: "GET", header: http.Header{},
		url: s.objectURL(key, url.Values{"alt": {"media"}, "generation": {string(info.Version)}})}
	if from > 0 || to < info.Size {
		req.header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	}
	res, err := s.repeat(ctx, req)
	if err != nil {
		return nil, bucket.Object{}, err
	}
	if req.header.Get("Range") != "" && res.StatusCode != http.StatusPartialContent {
		res.Body.Close()
		return nil, bucket.Object{}, &bucket.Error{Op: "open", Key: key, Status: res.StatusCode, Err: bucket.ErrRangeIgnored}
	}
	return res.Body, info, nil
}

func (s *Store) Head(ctx context.Context, key string) (bucket.Object, error) {
	var r resource
	err := s.repeatJSON(ctx, request{op: "head", key: key, method: "GET", url: s.objectURL(key, url.Values{"fields": {fields}})}, &r)
	if err != nil {
		return bucket.Object{}, err
	}
	return s.object(r), nil
}

func (s *Store) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.upload(ctx, "put", key, bytes.NewReader(body), int64(len(body)), bucket.PutOptions{})
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.upload(ctx, "create", key, bytes.NewReader(body), int64(len(body)), bucket.PutOptions{IfAbsent: true})
}

func (s *Store) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	if old == "" {
		return "", &bucket.Error{Op: "swap", Key: key, Class: bucket.ErrNotSent, Err: bucket.ErrNoVersion}
	}
	return s.upload(ctx, "swap", key, bytes.NewReader(body), int64(len(body)), bucket.PutOptions{IfVersion: old})
}

func (s *Store) PutStream(ctx context.Context, key string, r io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	return s.upload(ctx, "put", key, r, size, opts)
}

// upload sends metadata and bytes as the two parts of one request.
func (s *Store) upload(ctx context.Context, op, key string, r io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	if err := bucket.CheckWrite(ctx, op, key, opts); err != nil {
		return "", err
	}
	body, length, boundary, err := s.multipart(key, r, size, opts)
	if err != nil {
		return "", &bucket.Error{Op: op, Key: key, Class: bucket.ErrNotSent, Err: err}
	}
	query := url.Values{"uploadType": {"multipart"}, "fields": {"generation"}}
	switch {
	case opts.IfAbsent:
		query.Set("ifGenerationMatch", "0")
	case opts.IfVersion != "":
		query.Set("ifGenerationMatch", string(opts.IfVersion))
	}
	var out resource
	err = s.onceJSON(ctx, request{
		op: op, key: key, method: "POST", body: body, length: length, swap: opts.IfVersion != "",
		url:    s.base + "/upload/storage/v1/b/" + url.PathEscape(s.opts.Bucket) + "/o?" + query.Encode(),
		header: http.Header{"Content-Type": {"multipart/related; boundary=" + boundary}},
	}, &out)
	if err == nil && out.Generation == "" {
		err = &bucket.Error{Op: op, Key: key, Err: bucket.ErrNoETag}
	}
	return bucket.Version(out.Generation), err
}

// Delete is repeated on failure; then a missing object is our own work.
func (s *Store) Delete(ctx context.Context, key string) error {
	res, err := s.repeat(ctx, request{op: "delete", key: key, method: "DELETE", url: s.objectURL(key, nil)})
	if err == nil {
		return res.Body.Close()
	}
	return ignoreMissing(err)
}

// List pages from after on. startOffset is inclusive; the key itself is skipped.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		query := url.Values{"prefix": {s.opts.Prefix + prefix}, "maxResults": {strconv.Itoa(pageSize)},
			"fields": {"nextPageToken,items(name,size,updated,generation)"}}
		if after != "" {
			query.Set("startOffset", s.opts.Prefix+after)
		}
		for {
			var page struct {
				Items []resource `json:"items"`
				Next  string     `json:"nextPageToken"`
			}
			err := s.repeatJSON(ctx, request{op: "list", key: prefix, method: "GET",
				url: s.base + "/storage/v1/b/" + url.PathEscape(s.opts.Bucket) + "/o?" + query.Encode()}, &page)
			if err != nil {
				yield(bucket.Object{}, err)
				return
			}
			for _, item := range page.Items {
				if o := s.object(item); o.Key > after && !yield(o, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("pageToken", page.Next)
		}
	}
}
