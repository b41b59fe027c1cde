package node

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"celld/internal/cell"
	"celld/internal/id"
	"celld/internal/lease"
	"celld/internal/operator"
)

// shedEvery is how often memory is looked at, and shedBatch how many idle cells go at once.
const (
	shedEvery = 2 * time.Second
	shedBatch = 64
)

// State is what GET /state answers.
func (n *Node) State() any {
	st := n.cells.Stats()
	return map[string]any{
		"session": n.lease.Session(), "lease_left_ms": n.lease.Left().Milliseconds(), "address": n.address(),
		"deployment": n.apps.version(), "cells": st, "rss_bytes": rss(),
		"requests_live": n.handler.Live(), "requests_served": n.handler.Served(), "draining": n.stopping.Err() != nil,
		"rebalanced": n.rebalanced.Load(), "rebalance_paused": n.paused.Load(),
	}
}

// Cell is what GET /cell/NAME answers.
func (n *Node) Cell(c id.Cell) (any, error) {
	for _, info := range n.cells.Cells() {
		if info.Cell == c {
			return info, nil
		}
	}
	return nil, operator.ErrNoCell
}

// Evict hands one cell back to the fleet.
func (n *Node) Evict(r *http.Request, c id.Cell) error {
	if _, owned := n.cells.Owned(c); !owned {
		return operator.ErrNoCell
	}
	return n.cells.Release(r.Context(), c)
}

// Reload adopts the newest deployment.
func (n *Node) Reload(r *http.Request) (changed bool, version string, err error) {
	before := n.apps.version()
	err = n.watcher.Reload(r.Context())
	return n.apps.version() != before, n.apps.version(), err
}

// Shutdown starts the graceful stop.
func (n *Node) Shutdown() { n.Stop() }

// Ready tells whether the node serves.
func (n *Node) Ready() bool { return n.lease.Authority() == nil && n.stopping.Err() == nil }

func (n *Node) load() lease.Load {
	l := lease.Load{Weight: n.set.Weight, RSS: rss(), Paused: n.paused.Load()}
	if n.cells != nil {
		st := n.cells.Stats()
		l.Owned, l.Resident = st.Owned, st.Resident
	}
	return l
}

// metrics are read when somebody asks for them.
func (n *Node) metrics() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge := func(name, help string, f func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "celld_" + name, Help: help}, f))
	}
	gauge("lease_left_seconds", "how long the node lease still holds", func() float64 { return n.lease.Left().Seconds() })
	gauge("requests_live", "requests under way", func() float64 { return float64(n.handler.Live()) })
	cells := func(f func(cell.Stats) int) func() float64 {
		return func() float64 { return float64(f(n.cells.Stats())) }
	}
	gauge("cells_resident", "cells in memory", cells(func(s cell.Stats) int { return s.Resident }))
	gauge("cells_owned", "cells owned by this session", cells(func(s cell.Stats) int { return s.Owned }))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "celld_requests_total", Help: "requests that ended"},
		func() float64 { return float64(n.handler.Served()) }))
	return reg
}

// shed evicts idle cells while the process takes more memory than it may.
func (n *Node) shed() {
	limit := n.set.MaxRSS
	if limit == 0 {
		limit = memoryOfMachine() * 8 / 10
	}
	if limit == 0 {
		return
	}
	tick := time.NewTicker(shedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.stopping.Done():
			return
		}
		for rss() > limit && n.cells.Shed(shedBatch) > 0 {
			if n.stopping.Err() != nil {
				return
			}
		}
	}
}

// rss is the resident memory of this process.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// memoryOfMachine is what the machine, or the container's limit, gives.
func memoryOfMachine() int64 {
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			return n
		}
	}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kb int64
	fmt.Sscanf(string(b), "MemTotal: %d kB", &kb)
	return kb << 10
}
