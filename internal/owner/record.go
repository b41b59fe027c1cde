package owner

import (
	"crypto/rand"
	"encoding/json"
	"fmt"

	"celld/internal/id"
)

// recordVersion is the newest form of the record that this code writes and reads.
const recordVersion = 1

// State tells whether an ownership record holds.
type State string

const (
	// Owned: the session named in the record serves the cell or may wake it.
	Owned State = "owned"
	// Released: nobody serves the cell; everything it acknowledged is in the bucket.
	Released State = "released"
)

// Record is the content of cells/<cell>/owner.json.
type Record struct {
	V       int        `json:"v"`
	Session id.Session `json:"session"`
	Node    id.Node    `json:"node"`
	Address string     `json:"address"`
	Epoch   id.Epoch   `json:"epoch"`
	State   State      `json:"state"`
	// Nonce is fresh for every write attempt, so that whoever lost the reply
	// to a write can tell by reading whether it landed.
	Nonce string `json:"nonce"`
}

// Key is where the record of a cell lies in the bucket.
func Key(cell id.Cell) string { return "cells/" + cell.Segment() + "/owner.json" }

// Decode reads a record and refuses what it does not know.
func Decode(body []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(body, &r); err != nil {
		return Record{}, fmt.Errorf("ownership record is not JSON: %w", err)
	}
	switch {
	case r.V > recordVersion:
		return Record{}, fmt.Errorf("ownership record has version %d and this node reads up to %d: a newer celld wrote it; update this node", r.V, recordVersion)
	case r.V < 1, r.Session == "", r.Epoch == 0, r.State != Owned && r.State != Released:
		return Record{}, fmt.Errorf("ownership record is malformed (v %d, session %q, epoch %d, state %q)", r.V, r.Session, r.Epoch, r.State)
	}
	return r, nil
}

func (r Record) encode() []byte {
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return body
}

// names tells that the record gives the cell to session at epoch.
func (r Record) names(session id.Session, epoch id.Epoch) bool {
	return r.State == Owned && r.Session == session && r.Epoch == epoch
}

func newNonce() string { return rand.Text() }
