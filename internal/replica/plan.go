package replica

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"celld/internal/id"
)

// CorruptError: the objects of a cell do not make a whole. Keys are the ones to look at.
type CorruptError struct {
	Cell   id.Cell
	Keys   []string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the history of cell %s in the bucket is not whole: %s (%s); nothing was changed: bring the missing object back, or restore an older state by hand",
		e.Cell, e.Reason, strings.Join(e.Keys, ", "))
}

// plan composes the lineage of a cell from its objects: which to apply, in order.
// before is the epoch that was just acquired; data at or above it cannot be there.
func plan(cell id.Cell, keys []Key, before id.Epoch) ([]Key, error) {
	byEpoch := map[id.Epoch][]Key{}
	for _, k := range keys {
		if k.Epoch >= before {
			return nil, &CorruptError{cell, []string{k.String()}, fmt.Sprintf("it is of epoch %d, but this activation is epoch %d", k.Epoch, before)}
		}
		byEpoch[k.Epoch] = append(byEpoch[k.Epoch], k)
	}
	epochs := make([]id.Epoch, 0, len(byEpoch))
	for e := range byEpoch {
		epochs = append(epochs, e)
	}
	slices.SortFunc(epochs, func(a, b id.Epoch) int { return cmp.Compare(b, a) })

	var pieces [][]Key
	clip := id.TXID(0) // 0: the newest epoch is not clipped
	for _, e := range epochs {
		objects := byEpoch[e]
		if clip != 0 {
			objects = slices.DeleteFunc(slices.Clone(objects), func(k Key) bool { return k.Max > clip })
		}
		if len(objects) == 0 {
			continue
		}
		first := slices.MinFunc(objects, func(a, b Key) int { return cmp.Compare(a.Min, b.Min) }).Min
		last := clip
		if last == 0 {
			last = slices.MaxFunc(objects, func(a, b Key) int { return cmp.Compare(a.Max, b.Max) }).Max
		}
		chain := cover(objects, first, last)
		if chain == nil {
			return nil, gap(cell, e, objects, first, last)
		}
		pieces = append(pieces, chain)
		if first == 1 {
			slices.Reverse(pieces)
			return slices.Concat(pieces...), nil
		}
		clip = first - 1
	}
	if len(keys) == 0 {
		return nil, nil // a new cell
	}
	return nil, &CorruptError{cell, []string{pieces[len(pieces)-1][0].String()}, fmt.Sprintf("it begins at transaction %d and no older epoch holds those up to %d", clip+1, clip)}
}

// cover finds objects that follow each other from first to last, few of them:
// from each place the one that reaches farthest, unless that leads nowhere.
func cover(objects []Key, first, last id.TXID) []Key {
	from := map[id.TXID][]Key{}
	for _, k := range objects {
		if k.Max <= last {
			from[k.Min] = append(from[k.Min], k)
		}
	}
	for _, l := range from {
		slices.SortFunc(l, func(a, b Key) int { return cmp.Or(cmp.Compare(b.Max, a.Max), cmp.Compare(b.Level, a.Level)) })
	}
	dead := map[id.TXID]bool{}
	var chain []Key
	at := first
	for at <= last {
		step := slices.IndexFunc(from[at], func(k Key) bool { return k.Max == last || !dead[k.Max+1] })
		if step >= 0 {
			chain = append(chain, from[at][step])
			at = chain[len(chain)-1].Max + 1
			continue
		}
		dead[at] = true
		if len(chain) == 0 {
			return nil
		}
		at = chain[len(chain)-1].Min
		chain = chain[:len(chain)-1]
	}
	return chain
}

// gap describes where the objects of an epoch stop following each other.
func gap(cell id.Cell, e id.Epoch, objects []Key, first, last id.TXID) error {
	reach := first - 1
	var at Key
	for moved := true; moved; {
		moved = false
		for _, k := range objects {
			if k.Min <= reach+1 && k.Max > reach {
				reach, at, moved = k.Max, k, true
			}
		}
	}
	return &CorruptError{cell, []string{at.String()}, fmt.Sprintf("epoch %d should reach from transaction %d to %d, but nothing follows %d", e, first, last, reach)}
}
