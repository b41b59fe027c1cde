// Package faulttest runs the product as it ships, real processes on loopback on
// a real S3 store behind a proxy that delays, refuses, cuts and loses replies, and
// does to it what happens to servers: kill -9, wiped disks, SIGSTOP, a bucket that is
// away, somebody's hand at a lease.
//
// A ledger (ledger_test.go) writes all the time. Every write has an id of its own, and
// the ledger knows which were acknowledged, and at which place in their cell, and
// which ended otherwise. So in the end it can ask, through every node: is every
// acknowledged write there, once, at its place? Is nothing there that nobody
// wrote? Did every request have an end? Two owners at once would give one place to
// two writes.
//
// The short form runs with the tests. `go test ./internal/faulttest -v -timeout 2h -args
// -long -seed 7` goes on for longer, with other victims and other faults of the store.
package faulttest
