package webcrypto

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"math/big"

	"celld/internal/hostcall"
)

var signOps = []hostcall.Op{
	{Name: "crypto.sign", Async: sign},
	{Name: "crypto.signNow", Sync: signNow},
	{Name: "crypto.verify", Async: verify},
	{Name: "crypto.verifyNow", Sync: verifyNow},
	{Name: "crypto.oaep", Async: oaep},
}

// sign (algorithm, hash, salt length, key, data).
func sign(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	algorithm, hash, salt := f.Arg(0).Str(), f.Arg(1).Str(), f.Arg(2).Int()
	key, err := privateKey(bytes.Clone(f.Arg(3).Bytes()))
	if err != nil {
		return nil, err
	}
	data := bytes.Clone(f.Arg(4).Bytes())
	return func(context.Context) (hostcall.Value, error) {
		sig, err := signature(algorithm, hash, salt, key, data)
		if err != nil {
			return hostcall.Value{}, failure("OperationError", err.Error())
		}
		return hostcall.Buf(sig), nil
	}, nil
}

// signNow is sign for keys that are quicker than a change of goroutines.
func signNow(f hostcall.Frame) error {
	key, err := privateKey(f.Arg(3).Bytes())
	if err != nil {
		return err
	}
	sig, err := signature(f.Arg(0).Str(), f.Arg(1).Str(), f.Arg(2).Int(), key, f.Arg(4).Bytes())
	if err != nil {
		return failure("OperationError", err.Error())
	}
	f.SetBytes(sig)
	return nil
}

// verifyNow is verify for them.
func verifyNow(f hostcall.Frame) error {
	key, err := publicKey(f.Arg(3).Bytes())
	if err != nil {
		return err
	}
	f.SetBool(verified(f.Arg(0).Str(), f.Arg(1).Str(), f.Arg(2).Int(), key, f.Arg(4).Bytes(), f.Arg(5).Bytes()))
	return nil
}

func sumOf(hash string, data []byte) []byte {
	h := hashes[hash].make()
	h.Write(data)
	return h.Sum(nil)
}

func signature(algorithm, hash string, salt int, key any, data []byte) ([]byte, error) {
	switch k := key.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(k, data), nil
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, sumOf(hash, data))
		if err != nil {
			return nil, err
		}
		size := (k.Params().BitSize + 7) / 8
		return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...), nil
	case *rsa.PrivateKey:
		if algorithm == "RSA-PSS" {
			return rsa.SignPSS(rand.Reader, k, hashes[hash].id, sumOf(hash, data), pssOptions(salt))
		}
		return rsa.SignPKCS1v15(rand.Reader, k, hashes[hash].id, sumOf(hash, data))
	}
	return nil, errFormat
}

// pssOptions: Go reads zero as "as long as possible", which WebCrypto does not mean.
func pssOptions(salt int) *rsa.PSSOptions {
	return &rsa.PSSOptions{SaltLength: salt}
}

// verify (algorithm, hash, salt length, key, signature, data) is a boolean.
func verify(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	algorithm, hash, salt := f.Arg(0).Str(), f.Arg(1).Str(), f.Arg(2).Int()
	key, err := publicKey(bytes.Clone(f.Arg(3).Bytes()))
	if err != nil {
		return nil, err
	}
	sig, data := bytes.Clone(f.Arg(4).Bytes()), bytes.Clone(f.Arg(5).Bytes())
	return func(context.Context) (hostcall.Value, error) {
		return hostcall.Bool(verified(algorithm, hash, salt, key, sig, data)), nil
	}, nil
}

func verified(algorithm, hash string, salt int, key any, sig, data []byte) bool {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(k, data, sig)
	case *ecdsa.PublicKey:
		size := (k.Params().BitSize + 7) / 8
		if len(sig) != 2*size {
			return false
		}
		return ecdsa.Verify(k, sumOf(hash, data), new(big.Int).SetBytes(sig[:size]), new(big.Int).SetBytes(sig[size:]))
	case *rsa.PublicKey:
		if algorithm == "RSA-PSS" {
			return rsa.VerifyPSS(k, hashes[hash].id, sumOf(hash, data), sig, pssOptions(salt)) == nil
		}
		return rsa.VerifyPKCS1v15(k, hashes[hash].id, sumOf(hash, data), sig) == nil
	}
	return false
}

// oaep (encrypt, hash, key, label, data).
func oaep(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	encrypt, hash := f.Arg(0).Bool(), f.Arg(1).Str()
	der, label, data := bytes.Clone(f.Arg(2).Bytes()), bytes.Clone(f.Arg(3).Bytes()), bytes.Clone(f.Arg(4).Bytes())
	return func(context.Context) (hostcall.Value, error) {
		out, err := oaepOf(encrypt, hash, der, label, data)
		if err != nil {
			return hostcall.Value{}, failure("OperationError", err.Error())
		}
		return hostcall.Buf(out), nil
	}, nil
}

func oaepOf(encrypt bool, hash string, der, label, data []byte) ([]byte, error) {
	if encrypt {
		k, err := publicKey(der)
		if err != nil {
			return nil, err
		}
		return rsa.EncryptOAEP(hashes[hash].make(), rand.Reader, k.(*rsa.PublicKey), data, label)
	}
	k, err := privateKey(der)
	if err != nil {
		return nil, err
	}
	return rsa.DecryptOAEP(hashes[hash].make(), rand.Reader, k.(*rsa.PrivateKey), data, label)
}
