package dir

import (
	"strings"
)

// A key is cut at its slashes. Each segment becomes one path component: letters,
// digits and -_$:.% stand for themselves, everything else is =XX, as is a dot that
// leads a component; nothing at all is "=". The last component gets a fileMark, so that the
// keys a and a/b can both exist. A segment whose escaped form reaches longName
// continues inside a directory with a contMark: the cut depends only on the bytes
// before it, which is what keeps listing in order.
const (
	fileMark = "@"
	contMark = "+"
	longName = 238 // + an escaped byte and a mark is below NAME_MAX, 255

	// private is the one directory of the root that is no part of a key.
	private = ".celld"
)

// keyPath is the directory and the file name of a key, relative to the root.
func keyPath(key string) (dir, file string) {
	at := strings.LastIndexByte(key, '/')
	dir = dirPath(key[:at+1])
	whole, name := longParts(key[at+1:])
	return dir + whole, name + fileMark
}

// dirPath is the directory that holds the keys below prefix, which is empty or
// ends with a slash. The result is empty or ends with one too.
func dirPath(prefix string) string {
	var b strings.Builder
	for prefix != "" {
		segment, rest, _ := strings.Cut(prefix, "/")
		whole, name := longParts(segment)
		b.WriteString(whole)
		b.WriteString(name)
		b.WriteByte('/')
		prefix = rest
	}
	return b.String()
}

// longParts escapes one segment: the directories that it continues through, each
// with its mark and slash, and the last component.
func longParts(segment string) (dirs, name string) {
	if plain(segment) {
		return "", segment
	}
	var b strings.Builder
	start := 0
	for i := 0; i < len(segment); i++ {
		if isPlain(segment[i]) && (segment[i] != '.' || b.Len() > start) {
			b.WriteByte(segment[i])
		} else {
			const hex = "0123456789ABCDEF"
			b.Write([]byte{'=', hex[segment[i]>>4], hex[segment[i]&15]})
		}
		if b.Len()-start >= longName {
			b.WriteString(contMark + "/")
			start = b.Len()
		}
	}
	if b.Len() == start {
		b.WriteByte('=')
	}
	text := b.String()
	return text[:start], text[start:]
}

// plain says that a segment is its own path component.
func plain(segment string) bool {
	if segment == "" || segment[0] == '.' || len(segment) >= longName {
		return false
	}
	for i := 0; i < len(segment); i++ {
		if !isPlain(segment[i]) {
			return false
		}
	}
	return true
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '_' || c == '$' || c == ':' || c == '.' || c == '%'
}

// entry is one directory entry, read back.
type entry struct {
	name string // as on disk
	text string // what it adds to the key: "x" for a file or a continuation, "x/" for a directory
	file bool
}

// parseEntry undoes longParts for one component. Whatever no key maps to is not ours.
func parseEntry(name string, isDir bool) (entry, bool) {
	body, file := strings.CutSuffix(name, fileMark)
	body, cont := strings.CutSuffix(body, contMark)
	if file == isDir || file && cont || body == "" || body[0] == '.' {
		return entry{}, false
	}
	text, ok := unescape(body)
	if !ok {
		return entry{}, false
	}
	if isDir && !cont {
		text += "/"
	}
	return entry{name, text, file}, true
}

func unescape(body string) (string, bool) {
	if body == "=" {
		return "", true
	}
	if !strings.Contains(body, "=") {
		return body, true
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		if body[i] != '=' {
			b.WriteByte(body[i])
			continue
		}
		if i+2 >= len(body) {
			return "", false
		}
		high, low := strings.IndexByte("0123456789ABCDEF", body[i+1]), strings.IndexByte("0123456789ABCDEF", body[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), true
}
