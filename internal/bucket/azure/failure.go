package azure

import (
	"errors"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

// failure maps an error of the SDK to the classes of package bucket. swap says
// that the request replaced a version: then a missing object means a false condition.
func failure(op, key string, err error, sent *wire.Sent, swap bool) error {
	if err == nil {
		return nil
	}
	e := &bucket.Error{Op: op, Key: key, Err: err}
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		e.Status, e.Code = response.StatusCode, response.ErrorCode
	}
	e.Class = class(e, sent, swap)
	return e
}

func class(e *bucket.Error, sent *wire.Sent, swap bool) error {
	switch {
	case e.Status == 0:
		return sent.Class()
	case bloberror.HasCode(e.Err, bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted):
		return bucket.ErrNotSent
	case e.Status == http.StatusNotFound && swap:
		return bucket.ErrPrecondition
	case e.Status == http.StatusNotFound && e.Op != "put" && e.Op != "create":
		return bucket.ErrNotFound
	case e.Status == http.StatusConflict && !bloberror.HasCode(e.Err, bloberror.BlobAlreadyExists):
		return nil // a lease or a snapshot in the way says nothing about the condition
	default:
		return wire.Answer(e.Status)
	}
}

func status(err error) int {
	var e *bucket.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func ignoreMissing(err error) error {
	if errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	return err
}
