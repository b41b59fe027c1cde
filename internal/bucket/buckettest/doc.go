// Package buckettest is the contract of bucket.Store as a test suite, and the real
// stores to run it against.
//
//	func TestContract(t *testing.T) { buckettest.Run(t, store) }
//
// Run checks one store from inside one process; RaceProcesses starts eight that
// fight over the same keys. VersityGW, FakeGCS and Azurite start a real server on
// loopback and return its URL and the environment that a process needs to use it,
// so that whole-binary tests can share them. They skip, in one line, where the
// server cannot be installed, and fail where CI=true.
//
// A test binary that uses RaceProcesses or KillWriters calls Main from TestMain.
package buckettest
