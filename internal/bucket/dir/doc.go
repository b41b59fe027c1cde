// Package dir is a bucket in a plain directory: the default on one machine, and
// what the performance of everything above is measured against. Any number of
// processes may use one directory at once.
//
// An object is one file: a header line of fixed length (version, size, length of
// the metadata), the metadata as JSON, and the bytes. So one open file gives a
// consistent object, and reads take no lock: open, read, close.
//
// The main path is Store.publish. A write goes to a temporary file and is
// synced; then, under the lock of its key, the condition is checked and the file
// renamed into place; then the directory is synced. Nothing else is needed: a
// process that is killed anywhere leaves either the old object or the new one,
// and a temporary file.
//
//   - The lock is a byte range of one lock file (an open-file-description lock), at
//     an offset that is a hash of the key. The kernel drops it with the process.
//   - Temporary files live in a directory per process, which holds a lock as long as
//     it runs. Whoever opens the bucket next removes those whose lock is free.
//   - Versions are random, so equal bytes written twice have two versions, and a
//     version never comes back.
//   - Directory syncs are shared: writers that wait for the same directory are served
//     by one fsync that started after all of them had renamed.
//   - A directory handle is kept open and renamed into by handle. If somebody removed
//     the directory meanwhile because it was empty, the rename fails and a new handle is
//     made, parents synced. So a directory that is written to is known to be durable.
//
// Keys become paths in keypath.go: any key works, listing follows byte order, and
// what celld itself writes stays readable (`cells/Room:0a…/owner.json@`).
package dir
