// Package id holds the names that every other package speaks in. They are
// types so that an epoch can never be passed where a transaction id is meant.
package id

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Cell names one Durable Object for the whole fleet: "Class:id", where id is
// 64 hex digits.
type Cell string

// MaxCell bounds a cell's name, so that its escaped form fits one path segment.
const MaxCell = 255

// NewCell joins a class and an object id.
func NewCell(class, object string) Cell { return Cell(class + ":" + object) }

// Class is the part before the colon.
func (c Cell) Class() string {
	class, _, _ := strings.Cut(string(c), ":")
	return class
}

// Object is the part behind the colon.
func (c Cell) Object() string {
	_, object, _ := strings.Cut(string(c), ":")
	return object
}

// Segment is the cell as one percent-encoded path segment of a bucket key.
func (c Cell) Segment() string { return Escape(string(c)) }

// ParseCell checks a name that came from outside.
func ParseCell(s string) (Cell, error) {
	class, object, ok := strings.Cut(s, ":")
	if !ok || class == "" || object == "" {
		return "", fmt.Errorf("cell name %q is not of the form Class:id", s)
	}
	if len(s) > MaxCell {
		return "", fmt.Errorf("cell name of %d bytes is longer than %d", len(s), MaxCell)
	}
	for _, r := range s {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:$-", r) {
			return "", fmt.Errorf("cell name %q holds %q; letters, digits and ._:$- are allowed", s, r)
		}
	}
	return Cell(s), nil
}

// Node is the stable name of one celld process on one machine.
type Node string

// Segment is the node as one percent-encoded path segment of a bucket key.
func (n Node) Segment() string { return Escape(string(n)) }

// Session names one run of a node: "<node>.<ulid>".
type Session string

// Node is the node that this is a session of.
func (s Session) Node() Node {
	if i := strings.LastIndexByte(string(s), '.'); i >= 0 {
		return Node(s[:i])
	}
	return Node(s)
}

// Segment is the session as one percent-encoded path segment of a bucket key.
func (s Session) Segment() string { return Escape(string(s)) }

// Epoch is the fencing number of one activation of one cell. It only grows.
type Epoch uint64

// Dir is the epoch as it stands in bucket keys: "e7".
func (e Epoch) Dir() string { return "e" + strconv.FormatUint(uint64(e), 10) }

// TXID numbers the committed transactions of a cell, from 1, without gaps.
type TXID uint64

// String is the form used in LTX file names: 16 hex digits.
func (t TXID) String() string { return fmt.Sprintf("%016x", uint64(t)) }

// Escape percent-encodes s into one path segment that no store or file system
// reads as anything else. Letters, digits and "-_$:" stand for themselves; a
// dot does too, unless it leads.
func Escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '$' || c == ':' || c == '.' && i > 0
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Unescape undoes Escape.
func Unescape(s string) (string, error) { return url.PathUnescape(s) }
