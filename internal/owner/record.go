package owner

import (
	"context"
	"fmt"

	"celld/internal/bucket"
	"celld/internal/id"
)

// State tells whether an ownership record holds.
type State string

const (
	// Owned: the session named in the record serves the cell or may wake it.
	Owned State = "owned"
	// Released: nobody serves the cell; everything it acknowledged is in the bucket.
	Released State = "released"
)

// Record is the content of cells/<cell>/owner.json, beside the `v` and `nonce`
// that every record of the bucket carries.
type Record struct {
	Session id.Session `json:"session"`
	Node    id.Node    `json:"node"`
	Address string     `json:"address"`
	Epoch   id.Epoch   `json:"epoch"`
	State   State      `json:"state"`
}

// stored is a Record as it stands in the bucket.
type stored = bucket.Record[Record]

// Key is where the record of a cell lies in the bucket.
func Key(cell id.Cell) string { return "cells/" + cell.Segment() + "/owner.json" }

// Read is the record of a cell; bucket.ErrNotFound if nobody ever owned it.
func Read(ctx context.Context, store bucket.Store, cell id.Cell) (Record, error) {
	rec, err := read(ctx, store, cell)
	if err != nil {
		return Record{}, err
	}
	return rec.Value, nil
}

func read(ctx context.Context, store bucket.Store, cell id.Cell) (*stored, error) {
	rec, err := bucket.ReadRecord[Record](ctx, store, Key(cell))
	if err != nil {
		return nil, err
	}
	return rec, rec.Value.check(cell)
}

func (r Record) check(cell id.Cell) error {
	if r.Session == "" || r.Epoch == 0 || r.State != Owned && r.State != Released {
		return fmt.Errorf("read record %s: %w (session %q, epoch %d, state %q)",
			Key(cell), bucket.ErrCorruptRecord, r.Session, r.Epoch, r.State)
	}
	return nil
}

// names tells that the record gives the cell to session at epoch.
func (r Record) names(session id.Session, epoch id.Epoch) bool {
	return r.State == Owned && r.Session == session && r.Epoch == epoch
}
