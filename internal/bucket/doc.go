// Package bucket is the one thing that the nodes of a fleet share: an object
// store with conditional writes (protocol §2).
//
// A Store is a handful of verbs and four outcomes. A write is applied (nil),
// rejected (ErrPrecondition), failed for certain (ErrNotSent), or ambiguous:
// any other error, after which the write may have landed, or may still land.
// OutcomeOf names which. No store retries a conditional write on its own, since
// a retried create that finds its own first attempt would call itself rejected.
//
// Records are how ambiguity ends. ReadRecord, CreateRecord and SwapRecord keep
// small JSON objects that carry a format number `v` and a `nonce` that is new
// for every write. After an ambiguous answer the record is read back: our nonce
// means applied, a changed record means rejected for ever, and an unchanged one
// stays ambiguous, because the write may still be under way (protocol §2 and
// invariant 12). Fields that this build does not know survive a rewrite, so
// nodes of two versions can share a record.
//
// Probe asks a store to show that it keeps this contract, before anything is
// entrusted to it.
//
// The stores:
//
//	dir     a directory; the default on a laptop, and what performance is measured against
//	mem     memory, for tests
//	s3      Amazon S3 and what speaks its protocol
//	gcs     Google Cloud Storage
//	azure   Azure Blob Storage
//	faulty  any of them, failing on command
//
// Package open chooses one by URL; package buckettest is the contract as a
// test suite; package faultproxy fails between a client and a real store.
package bucket
