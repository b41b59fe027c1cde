package cell

import (
	"testing"
	"time"

	"celld/internal/id"
)

func FuzzParseWakeKey(f *testing.F) {
	f.Add(wakeKey(minuteOf(time.Unix(0, 0)), "Counter:00ff", 3, 9))
	f.Add("wake/2026-01-01T00:00/Counter%2F:x/1-1.json")
	f.Add("wake//x/1.json")
	f.Fuzz(func(t *testing.T, key string) {
		minute, cell, err := parseWakeKey(key)
		if err != nil {
			return
		}
		if _, err := id.ParseCell(string(cell)); err != nil {
			t.Errorf("%q gives the cell %q: %v", key, cell, err)
		}
		again, same, err := parseWakeKey(wakeKey(minute, cell, 1, 1))
		if err != nil || again != minute || same != cell {
			t.Errorf("%q: %q %q became %q %q: %v", key, minute, cell, again, same, err)
		}
	})
}
