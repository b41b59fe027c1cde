// Package webcrypto does the work of crypto.subtle on Go's standard library.
// runtime/src/web/subtle.ts checks arguments, usages and formats, and calls the
// host functions of this package with bytes.
//
// Keys cross as bytes: secret keys raw, private keys as PKCS #8, public keys as
// SPKI, because a CryptoKey must outlive any state of Go's. Parsing them is
// remembered (keys.go). What is quick works inline; work that grows with the
// data or with the key runs beside the isolate.
package webcrypto

import (
	"slices"

	"celld/internal/hostcall"
)

// Ops is the table of this package.
func Ops() []hostcall.Op {
	return slices.Concat(hashOps, aesOps, keyOps, signOps, deriveOps)
}

// failure is an error of a DOMException's name.
func failure(name, message string) error {
	return &hostcall.Throw{Class: name, Message: message}
}
