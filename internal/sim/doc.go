// Package sim is the simulated world: several nodes in one process, on the real
// cell, owner, gate, lease, replica and storage code, in a testing/synctest bubble.
//
// Every operation on the simulated bucket blocks on the driver. The driver waits
// until all goroutines are blocked and then finishes one operation, chosen by the
// seed: as asked, refused, with its reply lost, twice, or with a crash of its node
// around it. An operation whose caller gave up may still land. Goroutines that are
// runnable at once are ordered by the Go scheduler, so a seed fixes the
// faults, and nearly always the course of events.
//
// The package has tests only, since a bubble needs a testing.T:
//
//	go test ./internal/sim -run TestSeeds -args -seeds 1000 -seed 0
//	go test ./internal/sim -run TestBroken
//
// TestBroken breaks the protocol in one way each and demands that a checker trips.
// docs/simulation.md says what is covered and what is not.
package sim
