package replica

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"celld/internal/id"
)

// TestPlanStories runs testdata/plan. A story says which epoch was acquired and
// what lies in the bucket; behind ---- stands what a restore makes of it.
func TestPlanStories(t *testing.T) {
	text, err := os.ReadFile("testdata/plan")
	if err != nil {
		t.Fatal(err)
	}
	for story := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		input, want, ok := strings.Cut(story, "\n----\n")
		lines := strings.Split(input, "\n")
		if !ok || len(lines) < 2 {
			t.Fatalf("not a story: %q", story)
		}
		t.Run(strings.TrimPrefix(lines[0], "# "), func(t *testing.T) {
			var before id.Epoch
			if _, err := fmt.Sscanf(lines[1], "acquired e%d", &before); err != nil {
				t.Fatal(lines[1], err)
			}
			if got := composed(plan(cell, readKeys(t, lines[2:]), before)); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func readKeys(t *testing.T, lines []string) (keys []Key) {
	for _, line := range lines {
		k := Key{Cell: cell}
		if _, err := fmt.Sscanf(line, "e%d L%d %d-%d", &k.Epoch, &k.Level, &k.Min, &k.Max); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		keys = append(keys, k)
	}
	return keys
}

func composed(chain []Key, err error) string {
	var corrupt *CorruptError
	switch {
	case errors.As(err, &corrupt):
		return "corrupt: " + corrupt.Reason
	case err != nil:
		return err.Error()
	case chain == nil:
		return "a new cell"
	}
	var out []string
	for _, k := range chain {
		out = append(out, fmt.Sprintf("e%d L%d %d-%d", k.Epoch, k.Level, k.Min, k.Max))
	}
	return strings.Join(out, "\n")
}
