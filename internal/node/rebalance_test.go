package node

import (
	"testing"

	"celld/internal/id"
	"celld/internal/lease"
)

func TestShares(t *testing.T) {
	peer := func(name string, owned, weight int, change ...func(*lease.Info)) lease.Info {
		i := lease.Info{Live: true, Record: lease.Record{Session: id.Session(name), Load: lease.Load{Owned: owned, Weight: weight}}}
		for _, c := range change {
			c(&i)
		}
		return i
	}
	dead := func(i *lease.Info) { i.Live = false }
	draining := func(i *lease.Info) { i.Draining = true }
	paused := func(i *lease.Info) { i.Load.Paused = true }
	for _, c := range []struct {
		name          string
		owned, weight int
		others        []lease.Info
		to            id.Session
		count         int
	}{
		{"alone", 100, 1, nil, "", 0},
		{"a node joined", 100, 1, []lease.Info{peer("b", 0, 1)}, "b", 50},
		{"even enough", 51, 1, []lease.Info{peer("b", 49, 1)}, "", 0},
		{"few cells stay where they are", 2, 1, []lease.Info{peer("b", 0, 1)}, "", 0},
		{"weights 8/1/1, 25 cells", 25, 1, []lease.Info{peer("heavy", 0, 8), peer("c", 0, 1)}, "heavy", 20},
		{"the emptiest first", 60, 1, []lease.Info{peer("b", 20, 1), peer("c", 10, 1)}, "c", 20},
		{"the dead and the draining get nothing", 100, 1, []lease.Info{peer("b", 0, 1, dead), peer("c", 0, 1, draining)}, "", 0},
		{"somebody paused", 100, 1, []lease.Info{peer("b", 0, 1, paused)}, "", 0},
		{"below the share", 10, 1, []lease.Info{peer("b", 90, 1)}, "", 0},
	} {
		to, count := share(append(c.others, peer("me", c.owned, c.weight)), "me", c.owned, c.weight)
		if to.Session != c.to || count != c.count {
			t.Errorf("%s: %d to %q, want %d to %q", c.name, count, to.Session, c.count, c.to)
		}
	}
}
