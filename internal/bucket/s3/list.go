package s3

import (
	"context"
	"iter"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

// List asks for URL-encoded keys, because XML cannot carry every key.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &s.opts.Bucket, Prefix: s.key(prefix), EncodingType: types.EncodingTypeUrl}
		if after != "" {
			in.StartAfter = s.key(after)
		}
		for {
			pageCtx, sent := wire.Track(ctx)
			page, err := s.retry.ListObjectsV2(pageCtx, in)
			if err != nil {
				yield(bucket.Object{}, failure("list", prefix, err, sent, false))
				return
			}
			if !s.yieldPage(page, yield) || !aws.ToBool(page.IsTruncated) || page.NextContinuationToken == nil {
				return
			}
			in.ContinuationToken = page.NextContinuationToken
		}
	}
}

func (s *Store) yieldPage(page *s3.ListObjectsV2Output, yield func(bucket.Object, error) bool) bool {
	for _, o := range page.Contents {
		key := aws.ToString(o.Key)
		if page.EncodingType == types.EncodingTypeUrl {
			plain, err := url.QueryUnescape(key)
			if err != nil {
				yield(bucket.Object{}, &bucket.Error{Op: "list", Key: key, Err: err})
				return false
			}
			key = plain
		}
		more := yield(bucket.Object{
			Key: strings.TrimPrefix(key, s.opts.Prefix), Size: aws.ToInt64(o.Size),
			Modified: aws.ToTime(o.LastModified), Version: bucket.Version(aws.ToString(o.ETag)),
		}, nil)
		if !more {
			return false
		}
	}
	return true
}
