// Package bundle turns the runtime's TypeScript into one classic script with
// the esbuild library. Tests bundle smaller entries with it.
package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// MaxBytes bounds the minified default bundle: every isolate holds a copy.
const MaxBytes = 400 << 10

// Runtime bundles src/main.ts of the runtime folder dir, minified.
func Runtime(dir string) ([]byte, error) {
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		return nil, fmt.Errorf("npm packages are missing: run `npm ci` in %s (%w)", dir, err)
	}
	js, err := Entry(filepath.Join(dir, "src", "main.ts"), true)
	if err != nil {
		return nil, err
	}
	if len(js) > MaxBytes {
		return nil, fmt.Errorf("the runtime bundle has %d bytes, over its limit of %d: load the new part lazily, or raise MaxBytes with a reason", len(js), MaxBytes)
	}
	return js, nil
}

// Entry bundles the file at path into a script that runs in plain V8.
func Entry(path string, minify bool) ([]byte, error) {
	r := api.Build(options(path, minify))
	if len(r.Errors) > 0 {
		lines := api.FormatMessages(r.Errors, api.FormatMessagesOptions{Kind: api.ErrorMessage})
		return nil, errors.New(strings.TrimSpace(strings.Join(lines, "")))
	}
	return r.OutputFiles[0].Contents, nil
}

func options(path string, minify bool) api.BuildOptions {
	return api.BuildOptions{
		EntryPoints: []string{path},
		Bundle:      true,
		Write:       false,
		Format:      api.FormatIIFE,
		Platform:    api.PlatformNeutral,
		MainFields:  []string{"module", "main"},
		Conditions:  []string{"import"},
		Target:      api.ES2024,
		Charset:     api.CharsetUTF8,
		// Names of classes and functions show in stacks and in `constructor.name`.
		KeepNames:         false,
		MinifySyntax:      minify,
		MinifyWhitespace:  minify,
		MinifyIdentifiers: minify,
		LegalComments:     api.LegalCommentsNone,
		LogLevel:          api.LogLevelSilent,
	}
}
