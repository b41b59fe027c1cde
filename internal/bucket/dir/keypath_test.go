package dir

import (
	"path"
	"strings"
	"testing"
)

func TestPathsOfKeys(t *testing.T) {
	for key, want := range map[string]string{
		"cells/Room:0a/owner.json": "cells/Room:0a/owner.json@",
		"a%2Fb/x":                  "a%2Fb/x@",
		"a//b":                     "a/=/b@",
		"/":                        "=/=@",
		".celld/x":                 "=2Ecelld/x@",
		"..":                       "=2E.@",
		"a=b@+":                    "a=3Db=40=2B@",
		strings.Repeat("x", 237):   strings.Repeat("x", 237) + "@",
		strings.Repeat("x", 238):   strings.Repeat("x", 238) + "+/=@",
		strings.Repeat("x", 240):   strings.Repeat("x", 238) + "+/xx@",
	} {
		dir, file := keyPath(key)
		if got := dir + file; got != want {
			t.Errorf("%q is stored as %q, want %q", key, got, want)
		}
	}
}

func FuzzKeyPath(f *testing.F) {
	f.Add("a/b")
	f.Add("//.\x00/é@=+")
	f.Add(strings.Repeat("é", 200) + "/" + strings.Repeat(".", 300))
	f.Fuzz(func(t *testing.T, key string) {
		dir, file := keyPath(key)
		whole := dir + file
		if path.Clean(whole) != whole || path.IsAbs(whole) || strings.HasPrefix(whole, ".") {
			t.Fatalf("%q leaves the bucket as %q", key, whole)
		}
		var back strings.Builder
		parts := strings.Split(whole, "/")
		for i, name := range parts {
			if len(name) > 255 {
				t.Fatalf("%q has a component of %d bytes", key, len(name))
			}
			e, ok := parseEntry(name, i < len(parts)-1)
			if !ok {
				t.Fatalf("%q has the component %q, which does not read back", key, name)
			}
			back.WriteString(e.text)
		}
		if back.String() != key {
			t.Fatalf("%q reads back as %q", key, back.String())
		}
	})
}

func FuzzParseEntry(f *testing.F) {
	f.Add("=4", false)
	f.Add("=+@", true)
	f.Fuzz(func(t *testing.T, name string, isDir bool) { parseEntry(name, isDir) })
}

func FuzzHeader(f *testing.F) {
	f.Add(header{version: newVersion(), size: 7, metaLen: 3}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		if got := string(h.append(nil)); got != string(b[:headerLen]) {
			t.Errorf("%q reads as %q", b[:headerLen], got)
		}
	})
}
