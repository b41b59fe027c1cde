package wrangler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"
)

// maxDepth bounds how deep values nest; a configuration beyond it is refused.
const maxDepth = 64

type kind string

const (
	null    kind = "null"
	boolean kind = "a boolean"
	number  kind = "a number"
	text    kind = "a string"
	list    kind = "a list"
	object  kind = "an object"
)

// tree is one value of a configuration and where it stands.
type tree struct {
	kind     kind
	pos, end int
	str      string // of text; the literal of a number
	yes      bool
	items    []*tree
	members  []member
}

type member struct {
	name     string
	pos, end int // of the name
	value    *tree
}

func (t *tree) get(name string) (member, bool) {
	i := slices.IndexFunc(t.members, func(m member) bool { return m.name == name })
	if i < 0 {
		return member{}, false
	}
	return t.members[i], true
}

// json is the value as standard JSON with sorted keys, so that equal
// configurations make equal deployments.
func (t *tree) json() json.RawMessage {
	out, err := json.Marshal(t.plain())
	if err != nil { // numbers were checked when they were read
		panic(fmt.Sprintf("wrangler: bug: value does not encode: %v", err))
	}
	return out
}

func (t *tree) plain() any {
	switch t.kind {
	case boolean:
		return t.yes
	case number:
		return json.Number(t.str)
	case text:
		return t.str
	case list:
		out := make([]any, len(t.items))
		for i, item := range t.items {
			out[i] = item.plain()
		}
		return out
	case object:
		out := make(map[string]any, len(t.members))
		for _, m := range t.members {
			out[m.name] = m.value.plain()
		}
		return out
	}
	return nil
}

// parseJSON reads JSON with comments and trailing commas.
func parseJSON(s *source) *tree {
	body := s.text
	if bytes.HasPrefix(body, []byte("\ufeff")) {
		body = append([]byte("   "), body[3:]...) // same offsets without the mark
	}
	v, err := hujson.Parse(body)
	if err != nil {
		pos, what := jsonErrorAt(s.text, err)
		s.errorf(pos, pos+1, "", "%s", what)
		return nil
	}
	return s.fromJSON(v, 0)
}

// jsonErrorAt splits hujson's "line %d, column %d: what".
func jsonErrorAt(body []byte, err error) (int, string) {
	var line, column int
	msg := strings.TrimPrefix(err.Error(), "hujson: ")
	if _, e := fmt.Sscanf(msg, "line %d, column %d:", &line, &column); e != nil {
		return 0, msg
	}
	_, what, _ := strings.Cut(msg, ": ")
	return offset(body, line, column), what
}

// offset is where a line and a column, both from 1 and in bytes, are in body.
func offset(body []byte, line, column int) int {
	pos := 0
	for ; line > 1; line-- {
		i := bytes.IndexByte(body[pos:], '\n')
		if i < 0 {
			break
		}
		pos += i + 1
	}
	return min(pos+max(column-1, 0), len(body))
}

func (s *source) fromJSON(v hujson.Value, depth int) *tree {
	t := &tree{kind: null, pos: v.StartOffset, end: v.EndOffset}
	if depth > maxDepth {
		s.errorf(t.pos, t.pos+1, "", "values nest deeper than %d levels", maxDepth)
		return t
	}
	switch x := v.Value.(type) {
	case hujson.Literal:
		s.literal(t, x)
	case *hujson.Array:
		t.kind = list
		for _, e := range x.Elements {
			t.items = append(t.items, s.fromJSON(e, depth+1))
		}
	case *hujson.Object:
		t.kind = object
		for _, m := range x.Members {
			s.member(t, m, depth)
		}
	}
	return t
}

func (s *source) literal(t *tree, x hujson.Literal) {
	switch x.Kind() {
	case 't', 'f':
		t.kind, t.yes = boolean, x.Bool()
	case '0':
		t.kind, t.str = number, string(x)
		if _, err := strconv.ParseFloat(t.str, 64); err != nil {
			s.errorf(t.pos, t.end, "", "%s is too large for a number", t.str)
		}
	case '"':
		t.kind, t.str = text, x.String()
	}
}

func (s *source) member(t *tree, m hujson.ObjectMember, depth int) {
	name, _ := m.Name.Value.(hujson.Literal)
	key := name.String()
	if first, twice := t.get(key); twice {
		s.errorf(m.Name.StartOffset, m.Name.EndOffset, "remove one of the two",
			"key %q is given twice (first on line %d)", key, s.at(first.pos, first.pos).Line)
		return
	}
	t.members = append(t.members, member{key, m.Name.StartOffset, m.Name.EndOffset, s.fromJSON(m.Value, depth+1)})
}

// parseTOML reads TOML.
func parseTOML(s *source) *tree {
	var doc map[string]any
	meta, err := toml.Decode(string(s.text), &doc)
	if err != nil {
		var pe toml.ParseError
		if !errors.As(err, &pe) {
			s.errorf(-1, -1, "", "%s", err)
			return nil
		}
		pos := min(pe.Position.Start, len(s.text))
		s.errorf(pos, pos+max(pe.Position.Len, 1), pe.Usage, "%s", pe.Message)
		return nil
	}
	return (&tomlTree{source: s, at: locate(s.text, meta)}).value(doc, "", -1, 0)
}

type tomlTree struct {
	*source
	at map[string]span
}

func (b *tomlTree) value(v any, path string, pos, depth int) *tree {
	t := &tree{kind: null, pos: pos, end: pos}
	if where, ok := b.at[path]; ok {
		t.pos, t.end = where.value, where.value+1
	}
	if depth > maxDepth {
		b.errorf(t.pos, t.end, "", "values nest deeper than %d levels", maxDepth)
		return t
	}
	switch x := v.(type) {
	case bool:
		t.kind, t.yes = boolean, x
	case string:
		t.kind, t.str = text, x
	case int64:
		t.kind, t.str = number, strconv.FormatInt(x, 10)
	case float64:
		t.kind, t.str = number, strconv.FormatFloat(x, 'g', -1, 64)
		if strings.Trim(t.str, "+-0123456789.e") != "" {
			b.errorf(t.pos, t.end, "", "%s is not a number that JSON knows", t.str)
			t.str = "0"
		}
	case time.Time:
		// compatibility_date = 2026-01-02 without quotes reads as a date.
		t.kind, t.str = text, tomlTime(x)
	case []map[string]any:
		t.kind = list
		for i, e := range x {
			t.items = append(t.items, b.value(e, fmt.Sprintf("%s[%d]", path, i), t.pos, depth+1))
		}
	case []any:
		t.kind = list
		for i, e := range x {
			t.items = append(t.items, b.value(e, fmt.Sprintf("%s[%d]", path, i), t.pos, depth+1))
		}
	case map[string]any:
		t.kind = object
		for _, name := range slices.Sorted(maps.Keys(x)) {
			b.child(t, x[name], path, name, depth)
		}
		slices.SortStableFunc(t.members, func(a, b member) int { return a.pos - b.pos })
	}
	return t
}

func (b *tomlTree) child(t *tree, v any, path, name string, depth int) {
	p := path + "\x00" + name
	m := member{name: name, pos: t.pos, end: t.pos + 1}
	if where, ok := b.at[p]; ok {
		m.pos, m.end = where.key, where.key+where.length
	}
	m.value = b.value(v, p, m.pos, depth+1)
	t.members = append(t.members, m)
}

func tomlTime(x time.Time) string {
	switch x.Location().String() {
	case "date-local":
		return x.Format(time.DateOnly)
	case "time-local":
		return x.Format(time.TimeOnly)
	}
	return x.Format(time.RFC3339Nano)
}

// span is where a TOML key stands, and where its value begins.
type span struct{ key, length, value int }

// locate finds the keys in the text. The decoder tells their order but not
// their places, so the text is searched for one after the other. A comment that
// looks like a key can draw a mark to it; values are never affected.
func locate(body []byte, meta toml.MetaData) map[string]span {
	found := map[string]span{}
	index := map[string]int{} // elements seen of an array of tables
	cursor := 0
	for _, key := range meta.Keys() {
		path, plain := "", ""
		for i, part := range key {
			plain += "\x00" + part
			path += "\x00" + part
			if n, ok := index[plain]; ok && i < len(key)-1 {
				path += fmt.Sprintf("[%d]", n)
			}
		}
		if meta.Type(key...) == "ArrayHash" && isHeader(body, cursor, key) {
			if n, ok := index[plain]; ok {
				index[plain] = n + 1
			} else {
				index[plain] = 0
			}
		}
		at, ok := findKey(body, cursor, key[len(key)-1])
		if !ok {
			continue
		}
		cursor = at.key + at.length
		if _, first := found[path]; !first {
			found[path] = at
		}
	}
	return found
}

// isHeader tells whether the next key after cursor stands in [[…]].
func isHeader(body []byte, cursor int, key toml.Key) bool {
	at, ok := findKey(body, cursor, key[len(key)-1])
	if !ok {
		return false
	}
	start := bytes.LastIndexByte(body[:at.key], '\n') + 1
	return bytes.HasPrefix(bytes.TrimLeft(body[start:at.key], " \t"), []byte("[["))
}

// findKey is the next place from cursor on that reads like the key name.
func findKey(body []byte, cursor int, name string) (span, bool) {
	for name != "" && cursor < len(body) {
		i := bytes.Index(body[cursor:], []byte(name))
		if i < 0 {
			return span{}, false
		}
		start, end := cursor+i, cursor+i+len(name)
		cursor = start + 1
		before, after := start, end
		if before > 0 && end < len(body) && (body[before-1] == '"' || body[before-1] == '\'') && body[end] == body[before-1] {
			before, after = before-1, after+1
		}
		if before > 0 && !strings.ContainsRune(" \t\r\n{,.[", rune(body[before-1])) || inComment(body, before) {
			continue
		}
		for after < len(body) && (body[after] == ' ' || body[after] == '\t') {
			after++
		}
		if after >= len(body) || !strings.ContainsRune("=.]", rune(body[after])) {
			continue
		}
		value := after + 1
		for value < len(body) && (body[value] == ' ' || body[value] == '\t' || body[value] == ']') {
			value++
		}
		if !utf8.RuneStart(body[start]) {
			continue
		}
		return span{key: start, length: len(name), value: min(value, len(body))}, true
	}
	return span{}, false
}

func inComment(body []byte, pos int) bool {
	start := bytes.LastIndexByte(body[:pos], '\n') + 1
	return bytes.HasPrefix(bytes.TrimLeft(body[start:pos], " \t"), []byte("#"))
}
