package azure

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

const (
	blockSize = 8 << 20 // what fits one block goes up in one request
	maxBlocks = 50_000  // the service's limit: 390 GiB
)

var errTooLarge = errors.New("the stream has more blocks than one blob may have")

// PutStream sends what fits one block as one object; a longer stream is staged and
// committed. Blocks that are never committed vanish after a week.
func (s *Store) PutStream(ctx context.Context, key string, r io.Reader, size int64, opts bucket.PutOptions) (bucket.Version, error) {
	if err := bucket.CheckWrite(ctx, "put", key, opts); err != nil {
		return "", err
	}
	block := make([]byte, blockSize)
	n, last, err := readBlock(r, block)
	if err == nil && !last {
		return s.putBlocks(ctx, key, r, size, opts, block)
	}
	if err == nil && size >= 0 && int64(n) != size {
		err = bucket.ErrWrongSize
	}
	if err != nil {
		return "", &bucket.Error{Op: "put", Key: key, Class: bucket.ErrNotSent, Err: err}
	}
	return s.put(ctx, "put", key, block[:n], opts)
}

// readBlock fills a block; last says that the stream ended with it.
func readBlock(r io.Reader, block []byte) (n int, last bool, err error) {
	n, err = io.ReadFull(r, block)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return n, true, nil
	}
	return n, false, err
}

// putBlocks stages block by block, starting with one that was read already. Nothing
// is visible before the commit, so every failure up to there is certain.
func (s *Store) putBlocks(ctx context.Context, key string, r io.Reader, size int64, opts bucket.PutOptions, first []byte) (bucket.Version, error) {
	ids, err := s.stage(ctx, key, r, size, first)
	if err != nil {
		return "", &bucket.Error{Op: "put", Key: key, Class: bucket.ErrNotSent, Err: err}
	}
	ctx, sent := wire.Track(ctx)
	// Two uploads to one key share their uncommitted blocks; the ids are unique, so
	// a commit lists only its own.
	out, err := s.once.NewBlockBlobClient(s.opts.Prefix+key).CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{
		Metadata: identifierMeta(opts.Meta), HTTPHeaders: headers(opts), AccessConditions: conditions(opts),
	})
	if err != nil {
		return "", failure("put", key, err, sent, opts.IfVersion != "")
	}
	return version("put", key, out.ETag)
}

func (s *Store) stage(ctx context.Context, key string, r io.Reader, size int64, block []byte) (ids []string, err error) {
	client := s.retry.NewBlockBlobClient(s.opts.Prefix + key)
	upload := rand.Text() // ids of one blob must all have the same length
	total, n, last := int64(0), len(block), false
	for n > 0 {
		if total += int64(n); size >= 0 && total > size {
			return nil, bucket.ErrWrongSize
		}
		if len(ids) == maxBlocks {
			return nil, errTooLarge
		}
		id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%05d", upload, len(ids)))
		if _, err := client.StageBlock(ctx, id, streaming.NopCloser(bytes.NewReader(block[:n])), nil); err != nil {
			return nil, err
		}
		ids = append(ids, id)
		if last {
			break
		}
		if n, last, err = readBlock(r, block); err != nil {
			return nil, err
		}
	}
	if size >= 0 && total != size {
		return nil, bucket.ErrWrongSize
	}
	return ids, nil
}
