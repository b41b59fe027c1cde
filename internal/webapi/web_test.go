package webapi_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"celld/internal/hostcall"
	"celld/internal/webapi"
	"celld/internal/webapi/webtest"
	"celld/internal/webcrypto"
)

var only = flag.String("case", "", "run one case of the fixtures")

// TestLikeWorkerd runs the fixtures of the differential suite that need nothing
// but the web platform, and compares with the answers of workerd that
// testdata/workerd.json holds.
func TestLikeWorkerd(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	b, err := os.ReadFile("testdata/workerd.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	var prelude strings.Builder
	areas := map[string]bool{}
	for key := range want {
		areas[strings.Split(key, "/")[0]] = true
	}
	for _, a := range slices.Sorted(func(yield func(string) bool) {
		for a := range areas {
			if !yield(a) {
				return
			}
		}
	}) {
		file := filepath.Join(root, "internal/difftest/testdata/fixtures", a+".js")
		if own, _ := filepath.Abs("testdata/" + a + ".js"); fileExists(own) {
			file = own
		}
		fmt.Fprintf(&prelude, "import * as f_%s from %q;\n", a, file)
	}
	fmt.Fprintf(&prelude, "import { describe } from %q;\n", filepath.Join(root, "internal/webapi/testdata/describe.mjs"))
	prelude.WriteString("globalThis.run = async (f) => { try { return JSON.stringify({ value: describe(await f()) }); } catch (e) { return JSON.stringify({ threw: describe(e) }); } };\nglobalThis.fixtures = {")
	for a := range areas {
		fmt.Fprintf(&prelude, "%s: f_%s, ", a, a)
	}
	prelude.WriteString("};\n")
	e := webtest.New(t, prelude.String(), tables()...)
	keys := make([]string, 0, len(want))
	for k := range want {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if *only != "" && k != *only || !strings.HasPrefix(want[k], `{"`) || notHere[k] != "" {
			continue
		}
		area, name, _ := strings.Cut(k, "/")
		got, err := e.Run(fmt.Sprintf(`run(() => fixtures.%s.cases.%s({}, {}, http.requestFromHost("POST", "http://x/", ["x-one", "1"], 0)))`, area, name))
		if err != nil {
			t.Errorf("%s: %v", k, err)
		} else if same := canonical(got) == canonical(want[k]); same && different[k] != "" {
			t.Errorf("%s is no difference any more: remove it from the list", k)
		} else if !same && different[k] == "" {
			t.Errorf("%s\n\tcelld   %s\n\tworkerd %s", k, canonical(got), canonical(want[k]))
		}
	}
}

func canonical(s string) string {
	var v any
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func fileExists(p string) bool { _, err := os.Stat(p); return err == nil }

func tables() [][]hostcall.Op { return [][]hostcall.Op{webapi.Ops(), webcrypto.Ops()} }

// notHere are cases that need the whole engine, with what they need.
var notHere = map[string]string{
	"events/globals": "caches, HTMLRewriter", "events/evalRefused": "code generation is refused per context",
	"websocket/manyTags": "a cell", "websocket/longTag": "a cell", "websocket/bigAttachment": "a cell", "websocket/autoResponse": "a cell",
}

// different are cases that are answered otherwise than by workerd, each with its reason.
var different = map[string]string{
	"platform/brotli":    "brotli is an addition of ours",
	"platform/cloneURL":  "V8 takes instances of our classes within an object for plain objects",
	"platform/shortR":    "byte streams queue reads, as the standard says",
	"subtle/digestNull":  "workerd's message has a mangled C++ name",
	"subtle/impEcJwkBad": "a bad key is a DataError, as the standard says",
	"subtle/impEcRawBad": "the end of the message is the library's",
	"subtle/pssSaltBig":  "the message is the library's",
}
