// Package azure is a bucket in an Azure Blob Storage container.
//
// Conditions are the HTTP ones, `If-None-Match: *` and `If-Match: <etag>`; an ETag
// is new with every write. Objects are block blobs: a small one is one request, a
// stream is staged block by block and appears when the list of blocks is committed,
// which is also where the condition is checked. Retries are off for whatever has a
// condition.
//
// Azure wants metadata names to be identifiers, so a hyphen is stored as an
// underscore and read back as a hyphen; names with underscores do not occur
// (bucket.MetaName). The service cannot start a listing in the middle: List skips
// what comes before `after` on this side.
package azure
