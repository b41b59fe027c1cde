package webapi

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

func compress(t *testing.T, format string, data []byte) []byte {
	t.Helper()
	d, err := newDeflater(format)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.push(data)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.finish()
	if err != nil {
		t.Fatal(err)
	}
	return append(a, b...)
}

var formats = []string{"gzip", "deflate", "deflate-raw", "brotli"}

// What was compressed comes back, however it is cut, and no goroutine stays.
func TestInflateInPieces(t *testing.T) {
	before := runtime.NumGoroutine()
	data := []byte(strings.Repeat("some text that compresses ", 5000))
	for _, format := range formats {
		packed := compress(t, format, data)
		for _, size := range []int{1, 7, 1000, len(packed)} {
			d := newInflater(format)
			var out []byte
			for at := 0; at < len(packed); at += size {
				b, err := d.push(packed[at:min(at+size, len(packed))])
				if err != nil {
					t.Fatal(format, size, at, err)
				}
				out = append(out, b...)
			}
			b, err := d.finish()
			if err != nil {
				t.Fatal(format, size, err)
			}
			d.close()
			if !bytes.Equal(append(out, b...), data) {
				t.Error(format, size, "came back different")
			}
		}
	}
	settled(t, before)
}

func TestInflateFailures(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, format := range formats {
		packed := compress(t, format, []byte(strings.Repeat("abc", 1000)))
		cut := newInflater(format)
		cut.push(packed[:len(packed)-3])
		if _, err := cut.finish(); !errors.Is(err, errIncomplete) {
			t.Error(format, "truncated:", err)
		}
		dropped := newInflater(format)
		dropped.push(packed[:5])
		dropped.close()
		if format == "brotli" {
			continue // it reads ahead: what follows its end cannot be told from input
		}
		long := newInflater(format)
		if _, err := long.push(append(packed, 'x')); !errors.Is(err, errTrailingData) {
			t.Error(format, "trailing:", err)
		}
	}
	settled(t, before)
}

// settled waits until the goroutines of a test are gone.
func settled(t *testing.T, before int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left, there were %d", runtime.NumGoroutine(), before)
		}
	}
}

func FuzzInflate(f *testing.F) {
	for i := range formats {
		f.Add(i, []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0}, 3)
	}
	f.Fuzz(func(t *testing.T, format int, data []byte, cut int) {
		d := newInflater(formats[uint(format)%uint(len(formats))])
		defer d.close()
		n := int(uint(cut) % uint(len(data)+1))
		if _, err := d.push(data[:n]); err != nil {
			return
		}
		if _, err := d.push(data[n:]); err == nil {
			d.finish()
		}
	})
}
