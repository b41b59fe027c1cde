package difftest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// report gathers the outcome of every case.
type report struct {
	known    map[string]string // listed differences and their reasons
	differed map[string]bool
	cases    []oneCase
}

func (r *report) add(c oneCase, diff string) {
	if r.differed == nil {
		r.differed = map[string]bool{}
	}
	r.cases = append(r.cases, c)
	if diff != "" {
		r.differed[c.key()] = true
	}
}

// readDifferences reads lines of the form `area/case: reason`.
func readDifferences(t *testing.T) map[string]string {
	b, err := os.ReadFile("testdata/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, reason, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(reason) == "" {
			t.Fatalf("differences.txt:%d: want `area/case: reason`", i+1)
		}
		known[key] = strings.TrimSpace(reason)
	}
	return known
}

func (r *report) write(t *testing.T, path string) {
	byArea := map[string][]oneCase{}
	for _, c := range r.cases {
		byArea[c.area] = append(byArea[c.area], c)
	}
	areas := make([]string, 0, len(byArea))
	for a := range byArea {
		areas = append(areas, a)
	}
	slices.Sort(areas)
	var b strings.Builder
	b.WriteString("# Compatibility with the Workers platform\n\nWritten by the differential suite (`internal/difftest`), which runs the same bundle on workerd\n" +
		"and on celld and compares every answer; do not edit. Compatibility date " + compatibilityDate + ".\n\n| area | cases | equal |\n| --- | --- | --- |\n")
	for _, a := range areas {
		equal := 0
		for _, c := range byArea[a] {
			if !r.differed[c.key()] {
				equal++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d |\n", a, len(byArea[a]), equal)
	}
	b.WriteString("\n## Known differences\n\n| case | reason |\n| --- | --- |\n")
	keys := make([]string, 0, len(r.known))
	for k := range r.known {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k, r.known[k])
	}
	b.WriteString("\n## What is compared\n\n")
	for _, a := range areas {
		names := make([]string, len(byArea[a]))
		for i, c := range byArea[a] {
			names[i] = c.name
		}
		fmt.Fprintf(&b, "- **%s**: %s\n", a, strings.Join(names, ", "))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
