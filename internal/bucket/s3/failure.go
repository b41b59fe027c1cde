package s3

import (
	"errors"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

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
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		e.Status = response.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code = api.ErrorCode()
	}
	e.Class = class(e, sent, swap)
	return e
}

func class(e *bucket.Error, sent *wire.Sent, swap bool) error {
	switch {
	case e.Status == 0:
		return sent.Class()
	case e.Code == "NoSuchBucket":
		return bucket.ErrNotSent
	case e.Status == http.StatusNotFound && swap:
		return bucket.ErrPrecondition
	case e.Status == http.StatusNotFound && (e.Op == "get" || e.Op == "open" || e.Op == "head" || e.Op == "delete"):
		return bucket.ErrNotFound
	case e.Status == http.StatusConflict && e.Code != "ConditionalRequestConflict" && e.Code != "":
		return nil // OperationAborted and the like say nothing about the condition
	default:
		return wire.Answer(e.Status)
	}
}

// rangeIsEmpty: the range starts behind the end.
func rangeIsEmpty(err error) bool {
	var response *awshttp.ResponseError
	return errors.As(err, &response) && response.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable
}

func isMissing(err error) bool { return errors.Is(err, bucket.ErrNotFound) }
