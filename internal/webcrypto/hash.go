package webcrypto

import (
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"hash"

	"celld/internal/hostcall"
	"celld/internal/webapi"
)

var hashOps = []hostcall.Op{
	{Name: "crypto.digest", Sync: digest},
	{Name: "crypto.digestLater", Async: digestLater},
	{Name: "crypto.hashOpen", Sync: hashOpen},
	{Name: "crypto.hashWrite", Sync: hashWrite},
	{Name: "crypto.hashSum", Sync: hashSum},
	{Name: "crypto.hashDrop", Sync: func(f hostcall.Frame) error { running.Drop(f.Arg(0).Int()); return nil }},
	{Name: "crypto.hmac", Sync: macNow},
	{Name: "crypto.hmacLater", Async: macLater},
	{Name: "crypto.equal", Sync: func(f hostcall.Frame) error {
		f.SetBool(subtle.ConstantTimeCompare(f.Arg(0).Bytes(), f.Arg(1).Bytes()) == 1)
		return nil
	}},
}

// hashes by their WebCrypto names.
var hashes = map[string]struct {
	make func() hash.Hash
	id   crypto.Hash
}{
	"MD5":     {md5.New, crypto.MD5},
	"SHA-1":   {sha1.New, crypto.SHA1},
	"SHA-256": {sha256.New, crypto.SHA256},
	"SHA-384": {sha512.New384, crypto.SHA384},
	"SHA-512": {sha512.New, crypto.SHA512},
}

func newHash(name string) (hash.Hash, error) {
	h, ok := hashes[name]
	if !ok {
		return nil, failure("NotSupportedError", "Unrecognized or unimplemented digest algorithm requested.")
	}
	return h.make(), nil
}

func digest(f hostcall.Frame) error {
	h, err := newHash(f.Arg(0).Str())
	if err != nil {
		return err
	}
	h.Write(f.Arg(1).Bytes())
	f.SetBytes(h.Sum(nil))
	return nil
}

func digestLater(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	h, err := newHash(f.Arg(0).Str())
	if err != nil {
		return nil, err
	}
	data := bytes.Clone(f.Arg(1).Bytes())
	return func(context.Context) (hostcall.Value, error) {
		h.Write(data)
		return hostcall.Buf(h.Sum(nil)), nil
	}, nil
}

// running are the hashes of DigestStreams.
var running webapi.Handles[hash.Hash]

func hashOpen(f hostcall.Frame) error {
	h, err := newHash(f.Arg(0).Str())
	if err != nil {
		return err
	}
	f.SetNum(float64(running.Add(f, h, nil)))
	return nil
}

func hashWrite(f hostcall.Frame) error {
	h, ok := running.Get(f.Arg(0).Int())
	if !ok {
		return failure("TypeError", "The DigestStream has ended.")
	}
	h.Write(f.Arg(1).Bytes())
	return nil
}

func hashSum(f hostcall.Frame) error {
	h, ok := running.Drop(f.Arg(0).Int())
	if !ok {
		return failure("TypeError", "The DigestStream has ended.")
	}
	f.SetBytes(h.Sum(nil))
	return nil
}

func mac(name string, key, data []byte) ([]byte, error) {
	if _, err := newHash(name); err != nil {
		return nil, err
	}
	m := hmac.New(hashes[name].make, key)
	m.Write(data)
	return m.Sum(nil), nil
}

// macNow (hash, key, data).
func macNow(f hostcall.Frame) error {
	sum, err := mac(f.Arg(0).Str(), f.Arg(1).Bytes(), f.Arg(2).Bytes())
	if err == nil {
		f.SetBytes(sum)
	}
	return err
}

func macLater(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	name, key, data := f.Arg(0).Str(), bytes.Clone(f.Arg(1).Bytes()), bytes.Clone(f.Arg(2).Bytes())
	return func(context.Context) (hostcall.Value, error) {
		sum, err := mac(name, key, data)
		return hostcall.Buf(sum), err
	}, nil
}
