// Package v8 is a thin binding to V8's C++ API.
package v8

//go:generate go run ./internal/headers

/*
#cgo CXXFLAGS: -std=c++20 -fno-rtti -fPIC -Wall
#cgo CXXFLAGS: -DV8_COMPRESS_POINTERS -DV8_31BIT_SMIS_ON_64BIT_ARCH -DV8_ENABLE_SANDBOX

// V8's headers come from the v8go module. include/ is a link into the module
// cache, made by `go generate`. The fixed directory is the default module
// cache of the golang images: there a plain `go build` works right
// after clone. TestHeaderVersion keeps their version equal to go.mod's.
#cgo CXXFLAGS: -I${SRCDIR}/include
#cgo CXXFLAGS: -I/go/pkg/mod/github.com/tommie/v8go@v0.34.0/deps/include
*/
import "C"

// Pure Go packages that only exist so that the headers are part of the module
// graph: importing them makes the go command download the v8go module zip
// without compiling v8go itself.
import _ "github.com/tommie/v8go/deps/include"
