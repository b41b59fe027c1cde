// Package replica brings what a cell commits to the bucket, and back.
//
// # Capture
//
// A cell's database is in WAL mode and nobody checkpoints it but this package.
// After each committed turn Capture reads the new frames of the log (wal.go),
// keeps the newest version of each page, and encodes them as one LTX file
// (encode.go): the segment of the next TXID. A table of page checksums makes the
// rolling checksum of the whole database, which chains the segments together.
// When the log has grown it is checkpointed, between turns, after everything in it
// was captured.
//
// # Upload
//
// Segments wait in memory. Take merges those that wait into one, so commits
// that come while an upload runs share the next one. The epoch stands in the key:
// cells/<cell>/ltx/e<epoch>/<level>/<min>-<max>.ltx. Two epochs never write the
// same key, so an owner that was superseded can harm nobody.
//
// # Restore
//
// restore.go lists what there is, plan.go composes a lineage from it: the newest
// epoch with data, clipped older ones before it, until a segment starts at TXID 1.
// Each segment's checksum before must be the one after its predecessor. A gap or a
// mismatch is an error that names the objects, never a silent cut. decode.go reads
// objects and trusts nothing in them. An activation whose every write reached the
// bucket leaves a note beside its database, and the next one here may go on with it.
//
// # Compaction
//
// Ten segments of a level become one of the next (compact.go), written beside
// them. A cell whose restore walks many objects asks for a snapshot. It never fails
// an upload. Prune (prune.go) deletes what an old snapshot replaced, and nothing calls
// it on its own. docs/replication.md has the figures and limits.
package replica
