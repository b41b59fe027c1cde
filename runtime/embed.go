// Package runtime holds the Workers API as user code sees it: TypeScript under
// src/, bundled by runtime/build into dist/runtime.js, which this file embeds.
// dist/ is not in git; `make` builds it, or `go generate ./runtime`.
package runtime

import (
	"embed"
	"errors"
	"io/fs"
)

//go:generate go run ./build

// The pattern names a file that is always there beside the one that is built,
// so that the package compiles before the first build and Script can say what to do.
//
//go:embed [de]*
var files embed.FS

// ErrNotBuilt tells that the binary was linked without its JavaScript.
var ErrNotBuilt = errors.New("this binary was built without the JavaScript runtime: run `npm ci` in runtime/ and `go generate ./runtime`, then build again")

// Script is the bundle: a classic script that is run once, in V8's snapshot builder.
func Script() (string, error) {
	b, err := files.ReadFile("dist/runtime.js")
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBuilt
	}
	return string(b), err
}
