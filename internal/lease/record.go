package lease

import (
	"celld/internal/bucket"
	"celld/internal/id"
)

// State is where a session's log stands. It moves one way only.
type State string

const (
	Open       State = "open"
	Recovering State = "recovering"
	Sealed     State = "sealed"
)

// Record is nodes/<node>/<session>.json: the lease and the log of one session
// in one record, so that one conditional write decides both.
type Record struct {
	Node       id.Node    `json:"node"`
	Session    id.Session `json:"session"`
	Address    string     `json:"address"`
	Zone       string     `json:"zone,omitempty"`
	Protocol   Protocol   `json:"protocol"`
	ExpiresMS  int64      `json:"expires_ms"`
	TTLMS      int64      `json:"ttl_ms"`
	Generation uint64     `json:"generation"` // counts the session's writes
	Draining   bool       `json:"draining,omitempty"`
	Load       Load       `json:"load"`

	State     State     `json:"state"`
	Term      uint64    `json:"term"`
	Active    bool      `json:"active"`
	Members   []id.Node `json:"members,omitempty"`
	BaseSeq   uint64    `json:"base_seq"`
	Recoverer *Claim    `json:"recoverer,omitempty"`
	Loss      *Loss     `json:"loss,omitempty"`
}

// Protocol is the range of tunnel versions that a session speaks.
type Protocol struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Load is what a node says of itself, for placement and for operators.
type Load struct {
	SampledMS int64 `json:"sampled_ms"`
	Owned     int   `json:"owned_cells"`
	Resident  int   `json:"resident_cells"`
	Weight    int   `json:"placement_weight"`
	RSS       int64 `json:"rss_bytes"`
	Paused    bool  `json:"rebalance_paused,omitempty"`
}

// Claim says who recovers a session.
type Claim struct {
	Session id.Session `json:"session"`
	Attempt string     `json:"attempt"`
}

// Loss is an operator's word that the tail of a log is gone.
type Loss struct {
	By   string `json:"by"`
	AtMS int64  `json:"at_ms"`
	Note string `json:"note,omitempty"`
}

type stored = bucket.Record[Record]

// Key is where the record of a session lies.
func Key(s id.Session) string {
	return "nodes/" + s.Node().Segment() + "/" + s.Segment() + ".json"
}
