package azure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

// Options say how to reach the store. Credentials: AZURE_STORAGE_CONNECTION_STRING,
// or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or
// with Azure's default chain (environment, workload and managed identity, CLI).
type Options struct {
	Container string
	Prefix    string // empty or ending with a slash
	Endpoint  string // of the account; empty: https://ACCOUNT.blob.core.windows.net
	AppTag    string
}

// Store is a bucket on Azure Blob Storage.
type Store struct {
	opts  Options
	http  *http.Client
	where string
	retry *container.Client // for what may be repeated
	once  *container.Client // for what must not
}

var _ bucket.Store = (*Store)(nil)

const (
	retries  = 3 // after the first attempt of a read, listing or block
	maxPause = 2 * time.Second
)

// Open finds credentials; it does not talk to the store.
func Open(_ context.Context, opts Options) (*Store, error) {
	s := &Store{opts: opts, http: wire.NewClient()}
	connect, err := s.connector()
	if err != nil {
		return nil, fmt.Errorf("open az://%s: %w", opts.Container, err)
	}
	if s.retry, err = connect(s.clientOptions(retries)); err != nil {
		return nil, fmt.Errorf("open az://%s: %w", opts.Container, err)
	}
	if s.once, err = connect(s.clientOptions(-1)); err != nil {
		return nil, fmt.Errorf("open az://%s: %w", opts.Container, err)
	}
	s.where = s.retry.URL()
	return s, nil
}

func (s *Store) clientOptions(retries int32) *container.ClientOptions {
	return &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: s.http,
		Retry:     policy.RetryOptions{MaxRetries: retries, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: maxPause},
		Telemetry: policy.TelemetryOptions{ApplicationID: s.opts.AppTag},
	}}
}

// connector chooses how to authenticate, from what is set.
func (s *Store) connector() (func(*container.ClientOptions) (*container.Client, error), error) {
	if text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); text != "" {
		return func(o *container.ClientOptions) (*container.Client, error) {
			return container.NewClientFromConnectionString(text, s.opts.Container, o)
		}, nil
	}
	account := os.Getenv("AZURE_STORAGE_ACCOUNT")
	address := strings.TrimSuffix(s.opts.Endpoint, "/")
	switch {
	case address == "" && account == "":
		return nil, fmt.Errorf("the storage account is unknown: set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING")
	case address == "":
		address = "https://" + account + ".blob.core.windows.net"
	}
	address += "/" + s.opts.Container
	if key := os.Getenv("AZURE_STORAGE_KEY"); key != "" {
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, fmt.Errorf("AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY: %w", err)
		}
		return func(o *container.ClientOptions) (*container.Client, error) {
			return container.NewClientWithSharedKeyCredential(address, shared, o)
		}, nil
	}
	if sas := os.Getenv("AZURE_STORAGE_SAS_TOKEN"); sas != "" {
		return func(o *container.ClientOptions) (*container.Client, error) {
			return container.NewClientWithNoCredential(address+"?"+strings.TrimPrefix(sas, "?"), o)
		}, nil
	}
	chain, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("no Azure credentials: set AZURE_STORAGE_KEY, or sign in: %w", err)
	}
	return func(o *container.ClientOptions) (*container.Client, error) {
		return container.NewClient(address, chain, o)
	}, nil
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

func (s *Store) String() string {
	name := "az://" + s.opts.Container
	if s.opts.Prefix != "" {
		name += "/" + strings.TrimSuffix(s.opts.Prefix, "/")
	}
	address, _, _ := strings.Cut(s.where, "?") // a SAS token is a credential
	return name + " at " + address
}

func (s *Store) Get(ctx context.Context, key string) ([]byte, bucket.Version, error) {
	r, info, err := s.open(ctx, "get", key, blob.HTTPRange{})
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, "", &bucket.Error{Op: "get", Key: key, Err: err}
	}
	return body, info.Version, nil
}

func (s *Store) Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	if length == 0 {
		info, err := s.Head(ctx, key) // a range of no bytes cannot be asked for
		return http.NoBody, info, err
	}
	r := blob.HTTPRange{Offset: max(off, 0), Count: max(length, blob.CountToEnd)}
	body, info, err := s.open(ctx, "open", key, r)
	if status(err) == http.StatusRequestedRangeNotSatisfiable {
		info, err = s.Head(ctx, key) // the range starts behind the end
		return http.NoBody, info, err
	}
	return body, info, err
}

func (s *Store) open(ctx context.Context, op, key string, r blob.HTTPRange) (io.ReadCloser, bucket.Object, error) {
	ctx, sent := wire.Track(ctx)
	out, err := s.retry.NewBlobClient(s.opts.Prefix+key).DownloadStream(ctx, &blob.DownloadStreamOptions{Range: r})
	if err != nil {
		return nil, bucket.Object{}, failure(op, key, err, sent, false)
	}
	info := bucket.Object{Key: key, Size: deref(out.ContentLength), Modified: deref(out.LastModified),
		Version: etag(out.ETag), Meta: plainMeta(out.Metadata)}
	if out.ContentRange != nil {
		var from, to int64
		fmt.Sscanf(*out.ContentRange, "bytes %d-%d/%d", &from, &to, &info.Size)
	} else if r != (blob.HTTPRange{}) {
		out.Body.Close()
		return nil, bucket.Object{}, &bucket.Error{Op: op, Key: key, Err: bucket.ErrRangeIgnored}
	}
	return out.Body, info, nil
}

func (s *Store) Head(ctx context.Context, key string) (bucket.Object, error) {
	ctx, sent := wire.Track(ctx)
	out, err := s.retry.NewBlobClient(s.opts.Prefix+key).GetProperties(ctx, nil)
	if err != nil {
		return bucket.Object{}, failure("head", key, err, sent, false)
	}
	return bucket.Object{Key: key, Size: deref(out.ContentLength), Modified: deref(out.LastModified),
		Version: etag(out.ETag), Meta: plainMeta(out.Metadata)}, nil
}

func (s *Store) Put(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.put(ctx, "put", key, body, bucket.PutOptions{})
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (bucket.Version, error) {
	return s.put(ctx, "create", key, body, bucket.PutOptions{IfAbsent: true})
}

func (s *Store) Swap(ctx context.Context, key string, body []byte, old bucket.Version) (bucket.Version, error) {
	if old == "" {
		return "", &bucket.Error{Op: "swap", Key: key, Class: bucket.ErrNotSent, Err: bucket.ErrNoVersion}
	}
	return s.put(ctx, "swap", key, body, bucket.PutOptions{IfVersion: old})
}

// put sends one object in one request.
func (s *Store) put(ctx context.Context, op, key string, body []byte, opts bucket.PutOptions) (bucket.Version, error) {
	if err := bucket.CheckWrite(ctx, op, key, opts); err != nil {
		return "", err
	}
	ctx, sent := wire.Track(ctx)
	out, err := s.writer(key, opts).Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
		Metadata: identifierMeta(opts.Meta), HTTPHeaders: headers(opts), AccessConditions: conditions(opts),
	})
	if err != nil {
		return "", failure(op, key, err, sent, opts.IfVersion != "")
	}
	return version(op, key, out.ETag)
}

// writer chooses the client that may send a write with these options.
func (s *Store) writer(key string, opts bucket.PutOptions) *blockblob.Client {
	if opts.IfAbsent || opts.IfVersion != "" {
		return s.once.NewBlockBlobClient(s.opts.Prefix + key)
	}
	return s.retry.NewBlockBlobClient(s.opts.Prefix + key)
}

func headers(opts bucket.PutOptions) *blob.HTTPHeaders {
	kind := opts.ContentType
	if kind == "" {
		kind = "application/octet-stream"
	}
	return &blob.HTTPHeaders{BlobContentType: &kind}
}

func conditions(opts bucket.PutOptions) *blob.AccessConditions {
	m := &blob.ModifiedAccessConditions{}
	if opts.IfAbsent {
		m.IfNoneMatch = to.Ptr(azcore.ETagAny)
	}
	if opts.IfVersion != "" {
		m.IfMatch = to.Ptr(azcore.ETag(opts.IfVersion))
	}
	return &blob.AccessConditions{ModifiedAccessConditions: m}
}

// version refuses an answer without an ETag: the next Swap would be unconditional.
func version(op, key string, tag *azcore.ETag) (bucket.Version, error) {
	if v := etag(tag); v != "" {
		return v, nil
	}
	return "", &bucket.Error{Op: op, Key: key, Err: bucket.ErrNoETag}
}

func (s *Store) Delete(ctx context.Context, key string) error {
	ctx, sent := wire.Track(ctx)
	_, err := s.retry.NewBlobClient(s.opts.Prefix+key).Delete(ctx, nil)
	return ignoreMissing(failure("delete", key, err, sent, false))
}

// List pages through everything below prefix.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		pages := s.retry.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: to.Ptr(s.opts.Prefix + prefix)})
		for pages.More() {
			pageCtx, sent := wire.Track(ctx)
			page, err := pages.NextPage(pageCtx)
			if err != nil {
				yield(bucket.Object{}, failure("list", prefix, err, sent, false))
				return
			}
			for _, item := range page.Segment.BlobItems {
				key := strings.TrimPrefix(deref(item.Name), s.opts.Prefix)
				if key > after && !yield(object(key, item.Properties), nil) {
					return
				}
			}
		}
	}
}

func object(key string, p *container.BlobProperties) bucket.Object {
	return bucket.Object{Key: key, Size: deref(p.ContentLength), Modified: deref(p.LastModified), Version: etag(p.ETag)}
}

func deref[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}

// etag normalises a tag: listings give it without the quotes that headers have.
func etag(tag *azcore.ETag) bucket.Version {
	text := string(deref(tag))
	if text != "" && text[0] != '"' {
		text = `"` + text + `"`
	}
	return bucket.Version(text)
}

// identifierMeta and plainMeta map names to what Azure allows, and back.
func identifierMeta(meta map[string]string) map[string]*string {
	out := make(map[string]*string, len(meta))
	for name, value := range meta {
		out[strings.ReplaceAll(name, "-", "_")] = to.Ptr(wire.EscapeMeta(value))
	}
	return out
}

func plainMeta(meta map[string]*string) map[string]string {
	if len(meta) == 0 {
		return nil
	}
	out := make(map[string]string, len(meta))
	for name, value := range meta {
		out[strings.ReplaceAll(strings.ToLower(name), "_", "-")] = wire.UnescapeMeta(deref(value))
	}
	return out
}
