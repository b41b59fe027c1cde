// Package lease is a node's right to act, and its duty to stop.
//
// A run of a node is a session, with one record in the bucket that holds both
// its lease and the state of its log (record.go). The lease is renewed after a
// third of its TTL, and then every few hundred milliseconds until it succeeds or
// the published expiry has passed (lease.go). Authority, which is asked before
// every dispatch and every output, compares two clocks with the expiry: wall time,
// which others judge by, and a clock that goes on while the machine sleeps.
//
// A session that cannot prove its authority fences itself, for good: it stops
// its cells, fails its callers, writes nothing to the bucket, says why in one line
// that begins with SELF-FENCE, and exits with code 3 (fence.go). A thread of its own,
// outside of the Go scheduler, sees to it that this happens even when nothing
// else in the process runs (package watchdog).
//
// Of other sessions, Sessions judges whether they live, and makes sure that a
// dead one stays dead: Seal moves its record from open to recovering, which ends
// its lease and its log in one write, brings back what its log holds, and
// moves it to sealed (sessions.go).
//
// The lock of the work directory (workdir.go) says that a session's predecessor on
// the same machine is gone, without waiting for its lease to expire.
package lease
