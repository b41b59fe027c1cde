package dir_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The raw benchmarks do by hand what one object costs at least; compare pairs.

var sizes = []int{200, 4 << 10, 64 << 10}

func BenchmarkPut(b *testing.B) {
	for _, size := range sizes {
		body := bytes.Repeat([]byte("x"), size)
		b.Run(fmt.Sprintf("store/%d", size), func(b *testing.B) {
			s := open(b, b.TempDir())
			for i := 0; b.Loop(); i++ {
				if _, err := s.Put(b.Context(), fmt.Sprintf("cells/c/ltx/e1/%d", i), body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("raw/%d", size), func(b *testing.B) {
			dir := b.TempDir()
			temp := filepath.Join(dir, "temp")
			for i := 0; b.Loop(); i++ {
				if err := rawPut(temp, dir, filepath.Join(dir, fmt.Sprint(i)), body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// rawPut is write, fsync, rename, fsync of the directory.
func rawPut(temp, dir, path string, body []byte) error {
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	if _, err := f.Write(body); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func BenchmarkSwap(b *testing.B) {
	s := open(b, b.TempDir())
	body := bytes.Repeat([]byte("x"), 300)
	v, err := s.Create(b.Context(), "cells/c/owner.json", body)
	for err == nil && b.Loop() {
		v, err = s.Swap(b.Context(), "cells/c/owner.json", body, v)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkGet(b *testing.B) {
	for _, size := range sizes {
		body := bytes.Repeat([]byte("x"), size)
		b.Run(fmt.Sprintf("store/%d", size), func(b *testing.B) {
			s := open(b, b.TempDir())
			s.Put(b.Context(), "cells/c/owner.json", body)
			for b.Loop() {
				if _, _, err := s.Get(b.Context(), "cells/c/owner.json"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("raw/%d", size), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "owner.json")
			os.WriteFile(path, body, 0o666)
			for b.Loop() {
				if _, err := os.ReadFile(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
