// Package difftest runs the same bundle on workerd and on celld and wants equal
// answers.
//
// A fixture is a file testdata/fixtures/AREA.js that exports `cases`, functions
// by name, and perhaps `cellCases`, which run inside a Durable Object with its
// ctx. testdata/harness.js serves them all: GET /AREA/CASE answers with a full
// description of what the case returned or threw. A first line
// `// flags: a, b` gives a fixture compatibility flags of its own.
//
// Nothing is expected beforehand: workerd's answer is the expectation. A
// difference fails the test unless testdata/differences.txt lists it with its
// reason; a listed difference that is none any more fails too. The outcome is
// docs/compatibility.md (go test ./internal/difftest -run TestDifferential -args -update).
package difftest
