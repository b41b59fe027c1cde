// Package faulttest runs the product as it ships, real processes on loopback on
// a real S3 store behind a proxy that delays, refuses, cuts and loses replies, and
// does to it what happens to servers: kill -9, wiped disks, SIGSTOP, a bucket that is
// away, somebody's hand at a lease.
//
// A ledger (ledger_test.go) writes all the time. Every write has an id of its own, and
// the ledger knows which were acknowledged and which ended otherwise, so that in
// the end it can ask: is every acknowledged write there, once? Is nothing there
// twice, and nothing that nobody wrote?
//
// The short form runs with the tests. `go test ./internal/faulttest -args -rounds 50
// -seed 7` goes on for longer, with another order of events.
package faulttest
