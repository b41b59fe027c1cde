// Package webapi offers the host functions behind the web platform's API that
// runtime/src/web puts on the global object: text encodings and base64
// (text.go), URL parsing (url.go), compression (zip.go), random values
// (random.go). WebCrypto's are in package webcrypto.
//
// Each file offers its table of hostcall.Op; Ops joins them. Functions that
// are quick work inline; those whose work grows with the data run beside the
// isolate. State that outlives a call is held under a number (Handles) and ends
// with the actor that asked for it, whatever JavaScript forgets.
package webapi

import (
	"slices"

	"celld/internal/hostcall"
)

// Ops is the table of this package.
func Ops() []hostcall.Op {
	return slices.Concat(textOps, urlOps, zipOps, randomOps)
}
