package worker

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"celld/internal/hostcall"
	"celld/internal/id"
)

// Bundle is one script as it is deployed.
type Bundle struct {
	Name              string
	Version           string
	Main              string // name of the main module
	Modules           []Module
	CompatibilityDate string
	Flags             []string
	Bindings          []Binding
	Classes           []Class
}

// ModuleType is how a module's bytes are read.
type ModuleType string

const (
	ESModule ModuleType = "esm"
	CommonJS ModuleType = "cjs"
	Text     ModuleType = "text"
	Data     ModuleType = "data"
	Wasm     ModuleType = "wasm"
	JSON     ModuleType = "json"
)

// Module is one module of a script. Imports resolve against names like URLs.
type Module struct {
	Name      string
	Type      ModuleType
	Body      []byte
	SourceMap []byte // or nil
}

// Class is a Durable Object class of the script. Namespace is the class part of
// its cells' names; it stays when the class is renamed.
type Class struct{ Name, Namespace string }

// Binding is one property of env. Type says what the rest means.
type Binding struct {
	Name string          `json:"name"`
	Type string          `json:"type"` // plain_text, json, durable_object_namespace, service, …
	Text string          `json:"text,omitempty"`
	JSON json.RawMessage `json:"json,omitempty"`
	// Namespace is the class part of the cells' names; Script where the class or
	// service lives, "" for this script.
	Namespace  string `json:"namespace,omitempty"`
	Script     string `json:"script,omitempty"`
	Entrypoint string `json:"entrypoint,omitempty"`
	Resource   string `json:"resource,omitempty"`
}

// ---- ids of cells

// namespace derives the ids of one Durable Object class. An id is 32 bytes: a
// part that says which object, and a part that proves that it is of this
// namespace, so that an id of another one is refused.
type namespace struct {
	class string
	key   []byte
}

// namespaceOf makes the namespace of a class as cell names know it. The
// script's name is no part of it: a script that is renamed keeps its cells, and
// a deployment gives no two classes the same namespace.
func namespaceOf(class string) namespace {
	sum := sha256.Sum256([]byte("celld:v1:" + class))
	return namespace{class, sum[:]}
}

func (n namespace) mac(b []byte) []byte {
	h := hmac.New(sha256.New, n.key)
	h.Write(b)
	return h.Sum(nil)[:16]
}

func (n namespace) seal(a []byte) string {
	return hex.EncodeToString(append(a[:16:16], n.mac(a)...))
}

func (n namespace) fromName(name string) string { return n.seal(n.mac([]byte(name))) }

func (n namespace) unique() string {
	a := make([]byte, 16)
	rand.Read(a)
	return n.seal(a)
}

func (n namespace) parse(s string) (string, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 32 {
		return "", &hostcall.Throw{Class: "TypeError", Message: "Invalid Durable Object ID: must be 64 hex digits"}
	}
	if !hmac.Equal(n.mac(b[:16]), b[16:]) {
		return "", &hostcall.Throw{Class: "TypeError", Message: "Durable Object ID is not valid for this namespace."}
	}
	return strings.ToLower(s), nil
}

func (n namespace) cell(object string) id.Cell { return id.NewCell(n.class, object) }

// flagSet tells which compatibility flags hold for a bundle.
type flagSet map[string]bool

// hasFlag: given by name, or on by date unless its opposite is given.
func (b *Bundle) hasFlag(on, off, since string) bool {
	for _, f := range b.Flags {
		if f == on {
			return true
		}
		if f == off && off != "" {
			return false
		}
	}
	return since != "" && b.CompatibilityDate >= since
}

func (b *Bundle) title() string {
	return b.Name + "@" + b.Version + " (" + strconv.Itoa(len(b.Modules)) + " modules)"
}
