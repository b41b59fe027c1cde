package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

// Options say how to reach the store. Credentials come from the standard chain of
// the SDK: environment, files, instance and pod roles.
type Options struct {
	Bucket   string
	Prefix   string // below which every key lives; empty or ending with a slash
	Endpoint string // empty: Amazon's own
	Region   string // empty: the standard chain's, else "auto" at a custom endpoint
	AppTag   string // appears in the user agent, to tell traffic apart in the store's log
}

// Store is a bucket on S3.
type Store struct {
	opts  Options
	http  *http.Client
	retry *s3.Client // for what may be repeated
	once  *s3.Client // for what must not
}

var _ bucket.Store = (*Store)(nil)

const (
	attempts   = 4               // of one read, listing or part
	maxBackoff = 2 * time.Second // between two of them
)

// Open prepares a client; it does not talk to the store.
func Open(ctx context.Context, opts Options) (*Store, error) {
	load := []func(*config.LoadOptions) error{config.WithAppID(opts.AppTag)}
	if opts.Region != "" {
		load = append(load, config.WithRegion(opts.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		if opts.Endpoint == "" {
			return nil, fmt.Errorf("no region for bucket %s: set --region or AWS_REGION", opts.Bucket)
		}
		cfg.Region = "auto"
	}
	s := &Store{opts: opts, http: wire.NewClient()}
	trustAs(s.http, cfg)
	s.retry = s3.NewFromConfig(cfg, s.configure, func(o *s3.Options) {
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts, r.MaxBackoff = attempts, maxBackoff
		})
	})
	s.once = s3.NewFromConfig(cfg, s.configure, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	return s, nil
}

// trustAs takes over the certificates that the chain trusts (AWS_CA_BUNDLE). The
// chain's own client stays with the chain, for credentials.
func trustAs(client *http.Client, cfg aws.Config) {
	theirs, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return
	}
	if tls := theirs.GetTransport().TLSClientConfig; tls != nil {
		client.Transport.(*http.Transport).TLSClientConfig = tls.Clone()
	}
}

func (s *Store) configure(o *s3.Options) {
	o.HTTPClient = s.http
	if s.opts.Endpoint != "" {
		o.BaseEndpoint = aws.String(s.opts.Endpoint)
		o.UsePathStyle = true
	}
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.DisableLogOutputChecksumValidationSkipped = true
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

func (s *Store) String() string {
	name := "s3://" + s.opts.Bucket
	if s.opts.Prefix != "" {
		name += "/" + strings.TrimSuffix(s.opts.Prefix, "/")
	}
	if s.opts.Endpoint != "" {
		name += " at " + s.opts.Endpoint
	}
	return name
}

func (s *Store) key(key string) *string { return aws.String(s.opts.Prefix + key) }

func (s *Store) Get(ctx context.Context, key string) ([]byte, bucket.Version, error) {
	r, info, err := s.open(ctx, "get", key, 0, -1)
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	body := make([]byte, 0, max(info.Size, 0)+bytes.MinRead)
	buf := bytes.NewBuffer(body)
	if _, err := buf.ReadFrom(r); err != nil {
		return nil, "", &bucket.Error{Op: "get", Key: key, Err: err}
	}
	return buf.Bytes(), info.Version, nil
}

func (s *Store) Open(ctx context.Context, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	if length == 0 {
		info, err := s.Head(ctx, key) // a range of no bytes cannot be asked for
		return http.NoBody, info, err
	}
	return s.open(ctx, "open", key, off, length)
}

func (s *Store) open(ctx context.Context, op, key string, off, length int64) (io.ReadCloser, bucket.Object, error) {
	in := &s3.GetObjectInput{Bucket: &s.opts.Bucket, Key: s.key(key), Range: byteRange(off, length)}
	ctx, sent := wire.Track(ctx)
	out, err := s.retry.GetObject(ctx, in)
	if rangeIsEmpty(err) {
		info, err := s.Head(ctx, key)
		return http.NoBody, info, err
	}
	if err != nil {
		return nil, bucket.Object{}, failure(op, key, err, sent, false)
	}
	if in.Range != nil && out.ContentRange == nil {
		out.Body.Close()
		return nil, bucket.Object{}, &bucket.Error{Op: op, Key: key, Err: bucket.ErrRangeIgnored}
	}
	return out.Body, bucket.Object{
		Key: key, Size: totalSize(out), Modified: aws.ToTime(out.LastModified),
		Version: bucket.Version(aws.ToString(out.ETag)), Meta: plainMeta(out.Metadata),
	}, nil
}

// byteRange is the Range header; nil asks for everything.
func byteRange(off, length int64) *string {
	switch {
	case off <= 0 && length < 0:
		return nil
	case length < 0:
		return aws.String(fmt.Sprintf("bytes=%d-", off))
	default:
		return aws.String(fmt.Sprintf("bytes=%d-%d", off, off+length-1))
	}
}

// totalSize reads the size of the object, not of the range.
func totalSize(out *s3.GetObjectOutput) int64 {
	if out.ContentRange != nil {
		var from, to, size int64
		if n, _ := fmt.Sscanf(*out.ContentRange, "bytes %d-%d/%d", &from, &to, &size); n == 3 {
			return size
		}
	}
	return aws.ToInt64(out.ContentLength)
}

func (s *Store) Head(ctx context.Context, key string) (bucket.Object, error) {
	ctx, sent := wire.Track(ctx)
	out, err := s.retry.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.opts.Bucket, Key: s.key(key)})
	if err != nil {
		return bucket.Object{}, failure("head", key, err, sent, false)
	}
	return bucket.Object{
		Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified),
		Version: bucket.Version(aws.ToString(out.ETag)), Meta: plainMeta(out.Metadata),
	}, nil
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
	in := &s3.PutObjectInput{
		Bucket: &s.opts.Bucket, Key: s.key(key), Body: bytes.NewReader(body),
		ContentLength: aws.Int64(int64(len(body))), Metadata: headerMeta(opts.Meta), ContentType: contentType(opts),
	}
	in.IfNoneMatch, in.IfMatch = conditions(opts)
	ctx, sent := wire.Track(ctx)
	out, err := s.writer(opts).PutObject(ctx, in)
	if err != nil {
		return "", failure(op, key, err, sent, opts.IfVersion != "")
	}
	return version(op, key, out.ETag)
}

// writer chooses the client that may send a write with these options.
func (s *Store) writer(opts bucket.PutOptions) *s3.Client {
	if opts.IfAbsent || opts.IfVersion != "" {
		return s.once
	}
	return s.retry
}

func conditions(opts bucket.PutOptions) (ifNoneMatch, ifMatch *string) {
	if opts.IfAbsent {
		ifNoneMatch = aws.String("*")
	}
	if opts.IfVersion != "" {
		ifMatch = aws.String(string(opts.IfVersion))
	}
	return ifNoneMatch, ifMatch
}

func contentType(opts bucket.PutOptions) *string {
	if opts.ContentType == "" {
		return aws.String("application/octet-stream")
	}
	return &opts.ContentType
}

// version refuses an answer without an ETag: the next Swap would be unconditional.
func version(op, key string, etag *string) (bucket.Version, error) {
	if aws.ToString(etag) == "" {
		return "", &bucket.Error{Op: op, Key: key, Err: bucket.ErrNoETag}
	}
	return bucket.Version(*etag), nil
}

func headerMeta(meta map[string]string) map[string]string {
	out := make(map[string]string, len(meta))
	for name, value := range meta {
		out[name] = wire.EscapeMeta(value)
	}
	return out
}

func plainMeta(meta map[string]string) map[string]string {
	if len(meta) == 0 {
		return nil
	}
	out := make(map[string]string, len(meta))
	for name, value := range meta {
		out[strings.ToLower(name)] = wire.UnescapeMeta(value)
	}
	return out
}

func (s *Store) Delete(ctx context.Context, key string) error {
	ctx, sent := wire.Track(ctx)
	_, err := s.retry.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.opts.Bucket, Key: s.key(key)})
	if err = failure("delete", key, err, sent, false); isMissing(err) {
		return nil
	}
	return err
}
