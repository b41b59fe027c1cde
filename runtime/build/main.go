// Command build bundles the runtime's TypeScript into runtime/dist/runtime.js,
// which the binary embeds. It needs the packages of runtime/package.json
// (`npm ci` in runtime/), and no network.
//
//	go run ./runtime/build
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"celld/runtime/build/bundle"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "runtime/build:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := runtimeDir()
	if err != nil {
		return err
	}
	js, err := bundle.Runtime(dir)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "dist", "runtime.js")
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, js, 0o644)
}

// runtimeDir finds runtime/ from the repository root or from inside it, so
// that `go generate` and `make` can both start this command.
func runtimeDir() (string, error) {
	for _, dir := range []string{"runtime", ".", ".."} {
		if _, err := os.Stat(filepath.Join(dir, "src", "host.ts")); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New("runtime/src not found: start this command in the repository's root")
}
