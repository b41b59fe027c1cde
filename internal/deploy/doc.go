// Package deploy turns a Worker's sources into a deployment, brings it into the
// bucket, and hands it to the nodes.
//
// A deployment is a [Manifest] and the blobs that it names. It holds one or more
// scripts; the first is the default one. Everything is content-addressed: a
// blob's key is the SHA-256 of its bytes, a version is the SHA-256 of its
// manifest, and the manifest holds everything that changes what runs. So equal
// sources and settings make an equal version, and nothing that was published
// ever changes.
//
// The way up: [Build] bundles with esbuild (bundle) or gathers modules as they
// are (gather), and holds the classes of the bindings against the exports.
// [Publish] lets a [Checker] load the scripts in the real engine, uploads blobs,
// then the manifest, then moves the pointer by compare-and-swap. A crash between
// any two steps leaves blobs that nobody names, and the old deployment active.
//
// The way down: [Load] reads the pointer, checks the manifest against its version
// and every blob against its SHA-256 before anyone may use it. A [Watcher] does
// that for a node, on a timer and when asked, and offers each new deployment to
// the node's adopt function, which builds it beside the old one and switches, or
// fails and leaves the old one serving.
//
// Package deploy/engine turns scripts into worker.Bundles and is the Checker of the
// product; this package itself does not need V8. Package deploy/dev watches sources and repeats the way up.
package deploy
