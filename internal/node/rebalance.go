package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"celld/internal/id"
	"celld/internal/lease"
)

const (
	// batch is how many cells one round hands over at most.
	batch = 32
	// deadband is how far above its share a node may be before it gives cells away,
	// in percent and at least in cells: without it two nodes would pass them to and fro.
	deadbandPercent, deadbandCells = 2, 2
	// handoffProtocol is the raw stream on which a cell is offered.
	handoffProtocol = "handoff/1"
	// handoffTimeout bounds one of them.
	handoffTimeout = 10 * time.Second
)

// rebalance gives idle cells to nodes that have fewer than their share, weighed
// by CELLD_PLACEMENT_WEIGHT, while nobody in the fleet has paused it.
func (n *Node) rebalance() {
	tick := time.NewTicker(n.set.Rebalance)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.stopping.Done():
			return
		}
		ctx, cancel := context.WithTimeout(n.stopping, n.set.Rebalance*4)
		if err := n.rebalanceOnce(ctx); err != nil && n.stopping.Err() == nil {
			n.log.Warn("rebalancing failed", "event", "rebalance_failed", "err", err)
		}
		cancel()
	}
}

func (n *Node) rebalanceOnce(ctx context.Context) error {
	infos, err := n.sessions.List(ctx)
	if err != nil {
		return err
	}
	to, count := share(infos, n.lease.Session(), n.cells.Stats().Owned, n.set.Weight)
	if count == 0 || n.paused.Load() {
		return nil
	}
	moved := 0
	var errs []error
	for cell, name := range n.cells.Idle(min(count, batch)) {
		if err := n.handOver(ctx, to, cell, name); err != nil {
			errs = append(errs, err)
			break
		}
		moved++
	}
	if moved > 0 {
		n.log.Info("cells handed over", "event", "rebalanced", "to", to.Session, "cells", moved)
		n.rebalanced.Add(int64(moved))
	}
	return errors.Join(errs...)
}

// share decides to whom this node gives how many of its cells: to the live node
// that is farthest below its share, as many as both can do with.
func share(infos []lease.Info, self id.Session, owned, weight int) (to lease.Info, count int) {
	total, weights := owned, max(weight, 1)
	for _, s := range infos {
		if s.Session == self || !s.Live || s.Draining {
			continue
		}
		if s.Load.Paused {
			return lease.Info{}, 0
		}
		total += s.Load.Owned
		weights += max(s.Load.Weight, 1)
	}
	target := func(w int) int { return total * max(w, 1) / weights }
	excess := owned - target(weight)
	if excess <= max(deadbandCells, total*deadbandPercent/100) {
		return lease.Info{}, 0
	}
	missing := 0
	for _, s := range infos {
		if s.Session == self || !s.Live || s.Draining {
			continue
		}
		if m := target(s.Load.Weight) - s.Load.Owned; m > missing {
			to, missing = s, m
		}
	}
	return to, min(excess, missing)
}

// offer is what crosses for one cell.
type offer struct {
	Cell id.Cell `json:"cell"`
	Name string  `json:"name,omitempty"`
}

// handOver releases a cell and has the other node take it. If that fails the
// cell is free, and whoever is asked for it next takes it.
func (n *Node) handOver(ctx context.Context, to lease.Info, cell id.Cell, name string) error {
	ctx, cancel := context.WithTimeout(ctx, handoffTimeout)
	defer cancel()
	if err := n.cells.Release(ctx, cell); err != nil {
		return err
	}
	c, err := n.peers.Stream(ctx, to.Address, to.Session, handoffProtocol)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := json.NewEncoder(c).Encode(offer{cell, name}); err != nil {
		return err
	}
	var answer struct {
		Err string `json:"err"`
	}
	if err := json.NewDecoder(c).Decode(&answer); err != nil {
		return err
	}
	if answer.Err != "" {
		return fmt.Errorf("%s did not take cell %s: %s", to.Session, cell, answer.Err)
	}
	return nil
}

// takeOver is the other side of handOver.
func (n *Node) takeOver(ctx context.Context, _ id.Session, c net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, handoffTimeout)
	defer cancel()
	var o offer
	if json.NewDecoder(c).Decode(&o) != nil {
		return
	}
	answer := map[string]string{}
	if n.stopping.Err() != nil {
		answer["err"] = "draining"
	} else if cell, err := id.ParseCell(string(o.Cell)); err != nil {
		answer["err"] = err.Error()
	} else if err := n.cells.Take(ctx, cell, o.Name); err != nil {
		answer["err"] = err.Error()
	}
	json.NewEncoder(c).Encode(answer)
}

// Pause stops or resumes rebalancing in the whole fleet: every node sees it in
// this one's lease.
func (n *Node) Pause(r *http.Request, paused bool) error {
	n.paused.Store(paused)
	return n.lease.Update(r.Context(), func(*lease.Record) {}) // the load rides along
}
