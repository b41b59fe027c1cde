// Command headers links v8/include to the V8 headers in the module cache (or
// in vendor/). Run through `go generate ./internal/v8`.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "headers:", err)
		os.Exit(1)
	}
}

func run() error {
	// go list on the *package* works with the module cache, -mod=vendor and go.work alike,
	// and downloads the module when it is missing.
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/tommie/v8go/deps/include").Output()
	if err != nil {
		if ee, ok := err.(*exec.ExitError); ok {
			return fmt.Errorf("go list: %s", ee.Stderr)
		}
		return err
	}
	dir := strings.TrimSpace(string(out))
	if _, err := os.Stat(filepath.Join(dir, "v8.h")); err != nil {
		return err
	}
	if cur, err := os.Readlink("include"); err == nil && cur == dir {
		return nil
	}
	tmp := fmt.Sprintf("include.%d", os.Getpid())
	if err := os.Symlink(dir, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, "include")
}
