package webcrypto

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/pbkdf2"

	"celld/internal/hostcall"
)

var deriveOps = []hostcall.Op{
	{Name: "crypto.pbkdf2", Async: derivePBKDF2},
	{Name: "crypto.hkdf", Async: deriveHKDF},
	{Name: "crypto.ecdh", Async: agree},
}

// derivePBKDF2 (hash, password, salt, iterations, bytes).
func derivePBKDF2(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	hash, password, salt := f.Arg(0).Str(), string(f.Arg(1).Bytes()), bytes.Clone(f.Arg(2).Bytes())
	iterations, n := f.Arg(3).Int(), f.Arg(4).Int()
	return func(context.Context) (hostcall.Value, error) {
		out, err := pbkdf2.Key(hashes[hash].make, password, salt, iterations, n)
		return derived(out, err)
	}, nil
}

// deriveHKDF (hash, secret, salt, info, bytes).
func deriveHKDF(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	hash, secret, salt := f.Arg(0).Str(), bytes.Clone(f.Arg(1).Bytes()), bytes.Clone(f.Arg(2).Bytes())
	info, n := string(f.Arg(3).Bytes()), f.Arg(4).Int()
	return func(context.Context) (hostcall.Value, error) {
		out, err := hkdf.Key(hashes[hash].make, secret, salt, info, n)
		if err != nil {
			return hostcall.Value{}, failure("OperationError", "HKDF deriveBits failed.")
		}
		return hostcall.Buf(out), nil
	}, nil
}

func derived(out []byte, err error) (hostcall.Value, error) {
	if err != nil {
		return hostcall.Value{}, failure("OperationError", "Key derivation failed: "+err.Error())
	}
	return hostcall.Buf(out), nil
}

// agree (private key, public key) gives the shared secret.
func agree(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	private, err := privateKey(bytes.Clone(f.Arg(0).Bytes()))
	if err != nil {
		return nil, err
	}
	public, err := publicKey(bytes.Clone(f.Arg(1).Bytes()))
	if err != nil {
		return nil, err
	}
	return func(context.Context) (hostcall.Value, error) {
		a, b, err := agreement(private, public)
		if err != nil {
			return derived(nil, err)
		}
		return derived(a.ECDH(b))
	}, nil
}

func agreement(private, public any) (*ecdh.PrivateKey, *ecdh.PublicKey, error) {
	a, isX := private.(*ecdh.PrivateKey)
	b, bothX := public.(*ecdh.PublicKey)
	if isX && bothX {
		return a, b, nil
	}
	ea, isEC := private.(*ecdsa.PrivateKey)
	eb, bothEC := public.(*ecdsa.PublicKey)
	if !isEC || !bothEC {
		return nil, nil, errFormat
	}
	a, err := ea.ECDH()
	if err != nil {
		return nil, nil, err
	}
	b, err = eb.ECDH()
	return a, b, err
}
