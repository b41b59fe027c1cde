// Package owner decides which session serves a cell, by one record for each
// cell in the bucket: cells/<cell>/owner.json (protocol §3-§5).
//
// The record names a session and an epoch. Whoever changes it wins the cell,
// and every change that starts an activation advances the epoch, so that two
// activations never write below the same prefix. There are three verbs:
//
//	Acquire  make this session the owner, or learn who is (*Remote)
//	Verify   read that the record still names a session at an epoch: the half
//	         of the bucket proof that comes after the upload
//	Release  hand the cell back; everything it acknowledged is in the bucket
//
// Acquire is the pseudo-code of protocol §5. What it must know about other
// sessions, whether one lives and how to make sure that it never acknowledges
// anything again, it asks of Sessions, which internal/lease implements. The
// order of its steps is the protocol: a dead owner's session is sealed before
// its record is replaced, so a crash between the two leaves nothing to remember.
//
// A conditional write that fails in an unclear way is never assumed to have
// failed or to have landed: package bucket reads the record back and compares
// nonces. If it stays unclear because the write may still be under way, Acquire
// reads and decides again. A straggler that lands meanwhile shows as a record of
// this very session, at an epoch that no activation used: a local wake takes the
// next one.
package owner
