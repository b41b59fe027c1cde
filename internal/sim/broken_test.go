package sim

import (
	"context"
	"strings"
	"time"

	"celld/internal/bucket"
	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/replica"
	"celld/internal/storage"
)

// brokenWays break the protocol, one each.
var brokenWays = []string{
	"swap-unconditional", "live-held-for-dead", "ambiguous-assumed-applied", "old-epoch", "ack-before-upload", "segment-dropped", "restore-nothing",
	"restore-skips-last", "wake-not-written", "ambiguous-retried", "output-before-proof",
	"output-despite-failure", "alarm-swallowed",
}

func (n *node) remember(key string, body []byte, v bucket.Version) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mine[key] = result[[]byte]{body, v}
}

// lieGet answers the ownership re-read from memory: this node wrote it, so it still stands.
func (n *node) lieGet(key string, body []byte, v bucket.Version) ([]byte, bucket.Version, error) {
	if n.w.broken == "no-reread" && strings.HasSuffix(key, "/owner.json") {
		n.mu.Lock()
		defer n.mu.Unlock()
		if r, ok := n.mine[key]; ok {
			return r.body, r.ver, nil
		}
	}
	return body, v, nil
}

func (n *node) lieDrop(key string) bool {
	switch n.w.broken {
	case "wake-not-written":
		return strings.HasPrefix(key, "wake/")
	case "renewal-not-written":
		n.mu.Lock()
		defer n.mu.Unlock()
		_, renewal := n.mine[key]
		return renewal && strings.HasPrefix(key, "nodes/")
	}
	return false
}

func (n *node) lieWrite(key string, err error) (bucket.Version, error) {
	if strings.HasSuffix(key, "/owner.json") {
		n.mu.Lock()
		delete(n.mine, key)
		n.mu.Unlock()
		if n.w.broken == "ambiguous-assumed-applied" && bucket.OutcomeOf(err) == bucket.Ambiguous {
			return "1", nil
		}
	}
	return "", err
}

func (n *node) lieList(prefix string, all []bucket.Object) []bucket.Object {
	if !strings.Contains(prefix, "cells/") || len(all) == 0 {
		return all
	}
	switch n.w.broken {
	case "restore-nothing":
		return nil
	case "restore-skips-last":
		return all[:len(all)-1]
	}
	return all
}

// replication joins replica to cell, as internal/node does, or badly.
type replication struct{ n *node }

func (r replication) Open(ctx context.Context, c id.Cell, e id.Epoch, dir string, st *storage.Storage) (cell.Stream, id.TXID, error) {
	if r.n.w.broken == "old-epoch" && e > 1 {
		e--
	}
	s, start, err := r.n.replicas.Open(ctx, c, e, dir, st)
	if err != nil {
		r.n.w.restoreFailed(c, err)
		return nil, 0, err
	}
	return stream{s, r.n}, start, nil
}

type stream struct {
	*replica.Stream
	n *node
}

func (s stream) Take() []cell.Segment {
	var out []cell.Segment
	for _, g := range s.Stream.Take() {
		out = append(out, cell.Segment{Min: g.Min, Max: g.Max, Data: g.Data})
	}
	return out
}

func (s stream) Upload(ctx context.Context, segs []cell.Segment) error {
	out := make([]replica.Segment, len(segs))
	for i, g := range segs {
		out[i] = replica.Segment{Range: replica.Range{Min: g.Min, Max: g.Max}, Data: g.Data}
	}
	switch s.n.w.broken {
	case "segment-dropped":
		if len(segs) > 0 && segs[0].Max%5 == 0 {
			return nil
		}
	case "ack-before-upload":
		s.n.w.bg.Go(func() {
			time.Sleep(time.Second)
			s.Stream.Upload(context.WithoutCancel(ctx), out)
		})
		return nil
	}
	return s.Stream.Upload(ctx, out)
}

// seat is a cell.Seat whose gate stands open.
type seat struct {
	cell.Seat
	how string
}

func (s seat) Emit(release func(error)) {
	if s.how == "output-before-proof" {
		release(nil)
		return
	}
	s.Seat.Emit(func(error) { release(nil) })
}
