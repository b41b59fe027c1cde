package replica

import (
	"fmt"
	"strconv"
	"strings"

	"celld/internal/id"
)

// Levels of objects below an epoch.
const (
	LevelRaw      = 0 // as uploaded
	LevelSnapshot = 9 // from TXID 1
)

// Key names one object.
type Key struct {
	Cell  id.Cell
	Epoch id.Epoch
	Level int
	Range
}

// Range is the transactions that an object holds.
type Range struct{ Min, Max id.TXID }

func (r Range) String() string { return r.Min.String() + "-" + r.Max.String() }

// Prefix is where the objects of a cell lie.
func Prefix(c id.Cell) string { return "cells/" + c.Segment() + "/ltx/" }

func (k Key) String() string {
	return fmt.Sprintf("%s%s/%04x/%s.ltx", Prefix(k.Cell), k.Epoch.Dir(), k.Level, k.Range)
}

// ParseKey reads an object's key of that cell.
func ParseKey(c id.Cell, key string) (Key, error) {
	bad := func() (Key, error) { return Key{}, fmt.Errorf("%s is not the key of an LTX object of cell %s", key, c) }
	rest, ok := strings.CutPrefix(key, Prefix(c))
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || len(parts[0]) < 2 || parts[0][0] != 'e' {
		return bad()
	}
	epoch, err1 := strconv.ParseUint(parts[0][1:], 10, 64)
	level, err2 := strconv.ParseUint(parts[1], 16, 16)
	name, ok := strings.CutSuffix(parts[2], ".ltx")
	lo, hi, ok2 := strings.Cut(name, "-")
	first, err3 := strconv.ParseUint(lo, 16, 64)
	last, err4 := strconv.ParseUint(hi, 16, 64)
	k := Key{c, id.Epoch(epoch), int(level), Range{id.TXID(first), id.TXID(last)}}
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || !ok || !ok2 || first == 0 || last < first || k.String() != key {
		return bad()
	}
	return k, nil
}
