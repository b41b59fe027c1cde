// Package s3 is a bucket in Amazon S3 or a store that speaks its protocol.
//
// Conditions are `If-None-Match: *` and `If-Match: <etag>`. An ETag is a hash of
// the content on most stores, so equal bytes have equal versions: what needs a
// version that never comes back writes a nonce (package bucket does, in records).
//
// Conditional writes are sent once: the SDK's retries are off, and Go's transport
// replays a PUT only if not a byte of it was written. Reads, unconditional writes
// and parts of an upload are retried by the SDK, because doing them twice changes
// nothing.
//
// The optional checksums of newer SDKs are off: stores other than Amazon's refuse
// the trailers that carry them. The signature covers the body.
package s3
