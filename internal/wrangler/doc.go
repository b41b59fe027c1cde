// Package wrangler reads the configuration of a Worker: wrangler.jsonc,
// wrangler.json or wrangler.toml, and the .dev.vars beside it.
//
// [Load] is the main path: read the file into one tree that remembers where
// every key and value stands (parseJSON, parseTOML), lay the chosen environment
// over the top level (inherit), decode the known keys into a [Config] (decode),
// and replay the migrations to the classes that live now (replay).
//
// Three kinds of keys exist. Keys with a meaning here have a typed field. Keys
// that mean nothing on one's own machines are accepted and named in one
// notice. Every other key is an error: to ignore a key that changes what the
// Worker does would be worse than to stop. A typed key that the caller cannot
// serve yet is refused by [Config.Require], for the same reason.
//
// All errors are [Problems]: file, line, column, the line itself with a mark
// under the place, and what to do next.
package wrangler
