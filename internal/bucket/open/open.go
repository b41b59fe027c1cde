// Package open chooses a bucket's adapter by URL. It stands above the adapters, so
// that package bucket imports none of them.
package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"celld/internal/bucket"
	"celld/internal/bucket/azure"
	"celld/internal/bucket/dir"
	"celld/internal/bucket/gcs"
	"celld/internal/bucket/s3"
)

// Options are the settings beside the URL.
type Options struct {
	// Endpoint replaces the provider's own address; empty means S3_ENDPOINT for s3://.
	Endpoint string
	// Region is for s3:// only; empty means the standard chain.
	Region string
	// AppTag marks the traffic in the user agent. Each call of Bucket has a
	// connection pool of its own: open a second one for leases.
	AppTag string
}

// Bucket opens the bucket that a URL names:
//
//	file:///abs/dir  file://rel/dir  /abs/dir  ./rel/dir
//	s3://NAME/PREFIX  gs://NAME/PREFIX  az://CONTAINER/PREFIX
//
// It does not talk to a cloud store yet. Call Close when done, if there is one.
func Bucket(ctx context.Context, raw string, opts Options) (bucket.Store, error) {
	where, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	if err := opts.check(where); err != nil {
		return nil, err
	}
	switch where.Scheme {
	case "file":
		return dir.Open(where.Name)
	case "s3":
		return s3.Open(ctx, s3.Options{Bucket: where.Name, Prefix: where.Prefix,
			Endpoint: opts.Endpoint, Region: opts.Region, AppTag: opts.AppTag})
	case "gs":
		return gcs.Open(ctx, gcs.Options{Bucket: where.Name, Prefix: where.Prefix,
			Endpoint: opts.Endpoint, AppTag: opts.AppTag})
	default:
		return azure.Open(ctx, azure.Options{Container: where.Name, Prefix: where.Prefix,
			Endpoint: opts.Endpoint, AppTag: opts.AppTag})
	}
}

// Close closes a store that Bucket opened.
func Close(s bucket.Store) error {
	if c, ok := s.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

func (o *Options) check(where Place) error {
	if o.Endpoint == "" && where.Scheme == "s3" {
		o.Endpoint = os.Getenv("S3_ENDPOINT")
	}
	if o.Endpoint == "" {
		return nil
	}
	if where.Scheme == "file" {
		return errors.New("--endpoint means nothing to a file:// bucket: remove it, or name an s3:// bucket")
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--endpoint (S3_ENDPOINT) is %q: want a URL such as https://s3.example.com", o.Endpoint)
	}
	return nil
}

// Place is a bucket URL taken apart.
type Place struct {
	Scheme string // file, s3, gs or az
	Name   string // the bucket, or the directory
	Prefix string // empty, or ending with a slash
}

// Parse checks a bucket URL. Its errors name the setting.
func Parse(raw string) (Place, error) {
	text := strings.TrimSpace(raw)
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case text == "":
		return Place{}, errors.New("--bucket (CELLD_BUCKET) is not set: name a directory (file:///var/lib/celld) or a bucket (s3://NAME/PREFIX, gs://…, az://…)")
	case !ok && (strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".")):
		return Place{Scheme: "file", Name: text}, nil
	case !ok:
		return Place{}, fmt.Errorf("--bucket (CELLD_BUCKET) is %q: it lacks a scheme; did you mean file://%s or s3://%s?", text, text, text)
	}
	scheme = strings.ToLower(scheme)
	if at := strings.LastIndexByte(rest, '@'); at >= 0 && scheme != "file" {
		return Place{}, fmt.Errorf("--bucket (CELLD_BUCKET) holds credentials before %q: pass them by the provider's own variables instead", rest[at+1:])
	}
	if strings.ContainsAny(rest, "?#") && scheme != "file" {
		return Place{}, fmt.Errorf("--bucket (CELLD_BUCKET) is %q: a query or fragment means nothing here; use --endpoint and --region", text)
	}
	return place(scheme, rest, text)
}

func place(scheme, rest, text string) (Place, error) {
	switch scheme {
	case "file":
		return filePlace(rest, text)
	case "s3", "gs", "az":
		name, prefix, _ := strings.Cut(rest, "/")
		if name == "" {
			return Place{}, fmt.Errorf("--bucket (CELLD_BUCKET) is %q: the name of the bucket is missing", text)
		}
		if prefix = strings.Trim(prefix, "/"); prefix != "" {
			prefix += "/"
		}
		if len(prefix) > maxPrefix || strings.Contains(prefix, "//") {
			return Place{}, fmt.Errorf("--bucket (CELLD_BUCKET) is %q: the prefix has empty segments or more than %d bytes", text, maxPrefix)
		}
		return Place{scheme, name, prefix}, nil
	default:
		return Place{}, fmt.Errorf("--bucket (CELLD_BUCKET) is %q: %s:// is no kind of bucket; known are file://, s3://, gs:// and az://", text, scheme)
	}
}

// maxPrefix leaves bucket.MaxKey of the 1024 bytes that a cloud key may have.
const maxPrefix = 1024 - bucket.MaxKey

func filePlace(rest, text string) (Place, error) {
	path, err := url.PathUnescape(strings.TrimPrefix(rest, "localhost/"))
	if strings.HasPrefix(rest, "localhost/") {
		path = "/" + path
	}
	if err != nil || path == "" {
		return Place{}, fmt.Errorf("--bucket (CELLD_BUCKET) is %q: want file:///absolute/dir or file://relative/dir", text)
	}
	return Place{Scheme: "file", Name: path}, nil
}
