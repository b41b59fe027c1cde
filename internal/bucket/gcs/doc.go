// Package gcs is a bucket in Google Cloud Storage, through its JSON API and
// nothing but net/http: the official client brings gRPC and a hundred modules for
// the six requests that are needed here.
//
// A version is an object's generation, which never comes back. Conditions are
// ifGenerationMatch; 0 means absent. Reads and listings are retried; a write with
// a condition is sent once. Every write is one streamed request, so nothing is
// visible before its last byte.
package gcs
