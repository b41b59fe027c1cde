package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

const (
	partSize   = 8 << 20 // what fits one part goes up in one request
	maxParts   = 10_000  // the protocol's limit; a longer stream of unknown size fails at 80 GB
	inFlight   = 3       // parts of one stream held in memory at once
	abortAfter = 10 * time.Second
)

var errTooLarge = errors.New("the stream has more parts than one upload may have")

// PutStream sends what fits one part as one object, anything longer as a
// multipart upload. Every part but the last has the same size, as R2 asks for.
func (s *Store) PutStream(ctx context.Context, key string, r io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	if err := bucket.CheckWrite(ctx, "put", key, opts); err != nil {
		return "", err
	}
	u := &upload{Store: s, key: key, opts: opts, r: r, size: size, partSize: partSize}
	if size > partSize*maxParts {
		u.partSize = int(size/maxParts) + 1
	}
	first, last, err := u.nextPart()
	switch {
	case err != nil:
		return "", &bucket.Error{Op: "put", Key: key, Class: bucket.ErrNotSent, Err: err}
	case last:
		return s.put(ctx, "put", key, first, opts)
	default:
		return u.run(ctx, first)
	}
}

// upload is one multipart upload under way.
type upload struct {
	*Store
	key      string
	opts     bucket.PutOptions
	r        io.Reader
	size     int64 // -1: unknown
	read     int64
	partSize int
	id       *string
	parts    []*types.CompletedPart // each filled in by the goroutine that sends it
}

// nextPart reads one part; last says that the stream ended with it.
func (u *upload) nextPart() (part []byte, last bool, err error) {
	room := int64(u.partSize)
	if u.size >= 0 {
		room = min(room, max(u.size-u.read, 0)+1) // one more shows a stream that is too long
	}
	part = make([]byte, room)
	n, err := io.ReadFull(u.r, part)
	u.read += int64(n)
	last = err == io.EOF || err == io.ErrUnexpectedEOF
	if err != nil && !last {
		return nil, false, err
	}
	if u.size >= 0 && (u.read > u.size || last && u.read < u.size) {
		return nil, false, bucket.ErrWrongSize
	}
	return part[:n], last, nil
}

func (u *upload) run(ctx context.Context, first []byte) (bucket.Version, error) {
	if err := u.begin(ctx); err != nil {
		return "", err
	}
	if err := u.sendParts(ctx, first); err != nil {
		u.abort(ctx)
		return "", &bucket.Error{Op: "put", Key: u.key, Class: bucket.ErrNotSent, Err: err} // nothing is visible before complete
	}
	v, err := u.complete(ctx)
	if o := bucket.OutcomeOf(err); o == bucket.Rejected || o == bucket.Failed {
		u.abort(ctx)
	}
	return v, err
}

func (u *upload) begin(ctx context.Context) error {
	ctx, sent := wire.Track(ctx)
	out, err := u.retry.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.Store.opts.Bucket, Key: u.Store.key(u.key),
		Metadata: headerMeta(u.opts.Meta), ContentType: contentType(u.opts),
	})
	if err != nil {
		return &bucket.Error{Op: "put", Key: u.key, Class: bucket.ErrNotSent, Err: failure("begin upload", u.key, err, sent, false)}
	}
	u.id = out.UploadId
	return nil
}

func (u *upload) sendParts(ctx context.Context, part []byte) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(inFlight)
	err := u.readParts(group, ctx, part)
	return errors.Join(err, group.Wait())
}

// readParts starts the sending of each part; it blocks while enough are under way.
func (u *upload) readParts(group *errgroup.Group, ctx context.Context, part []byte) (err error) {
	for last := false; len(part) > 0 && ctx.Err() == nil; {
		if len(u.parts) == maxParts {
			return errTooLarge
		}
		done := &types.CompletedPart{PartNumber: aws.Int32(int32(len(u.parts) + 1))}
		u.parts = append(u.parts, done)
		body := part
		group.Go(func() error { return u.sendPart(ctx, done, body) })
		if last {
			return nil
		}
		if part, last, err = u.nextPart(); err != nil {
			return err
		}
	}
	return nil
}

func (u *upload) sendPart(ctx context.Context, done *types.CompletedPart, body []byte) error {
	out, err := u.retry.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.Store.opts.Bucket, Key: u.Store.key(u.key), UploadId: u.id, PartNumber: done.PartNumber,
		Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
	})
	if err == nil {
		done.ETag = out.ETag
	}
	return err
}

// complete is the write: here the condition is checked and the object appears. It
// is sent once even without a condition, because a second attempt finds no upload.
func (u *upload) complete(ctx context.Context) (bucket.Version, error) {
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &u.Store.opts.Bucket, Key: u.Store.key(u.key), UploadId: u.id,
		MultipartUpload: &types.CompletedMultipartUpload{},
	}
	for _, part := range u.parts {
		in.MultipartUpload.Parts = append(in.MultipartUpload.Parts, *part)
	}
	in.IfNoneMatch, in.IfMatch = conditions(u.opts)
	ctx, sent := wire.Track(ctx)
	out, err := u.once.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return "", failure("put", u.key, err, sent, u.opts.IfVersion != "")
	}
	return version("put", u.key, out.ETag)
}

// abort gives the parts back, even when the caller has gone. What it cannot reach
// is left to the bucket's rule for incomplete uploads.
func (u *upload) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortAfter)
	defer cancel()
	u.retry.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &u.Store.opts.Bucket, Key: u.Store.key(u.key), UploadId: u.id,
	})
}
