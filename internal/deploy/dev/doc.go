// Package dev rebuilds a deployment whenever something that it was made of
// changes.
//
// Run is the main path: build, hand the result to publish, then wait until the
// fingerprint of the inputs is another one. The inputs are the files that the
// bundler read, the configurations and the .dev.vars, present or not; so nothing
// is rebuilt for a file that does not matter, and nothing that matters is missed.
//
// Events only say when to look. Whether to build is decided by comparing the
// contents, so editors that write a file twice, replace it by renaming, or touch
// it without a change need no timing tricks. What fails to build or to publish is
// reported, and the old code goes on serving.
package dev
