package webcrypto

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"math/big"
	"sync"

	"celld/internal/hostcall"
)

var keyOps = []hostcall.Op{
	{Name: "crypto.generate", Async: generate},
	{Name: "crypto.import", Sync: importKey},
	{Name: "crypto.export", Sync: exportKey},
}

// rememberedKeys bounds the parsed keys that are kept; at the limit all go.
const rememberedKeys = 256

// parsed remembers keys by their DER: parsing an RSA key costs more than using it.
var parsed struct {
	sync.Mutex
	byDER map[string]any
}

func remember(der []byte, parse func([]byte) (any, error)) (any, error) {
	parsed.Lock()
	k, ok := parsed.byDER[string(der)]
	parsed.Unlock()
	if ok {
		return k, nil
	}
	k, err := parse(bytes.Clone(der))
	if err != nil {
		return nil, failure("DataError", "Invalid key: "+err.Error())
	}
	parsed.Lock()
	defer parsed.Unlock()
	if len(parsed.byDER) >= rememberedKeys || parsed.byDER == nil {
		parsed.byDER = map[string]any{}
	}
	parsed.byDER[string(der)] = k
	return k, nil
}

func privateKey(der []byte) (any, error) { return remember(der, x509.ParsePKCS8PrivateKey) }
func publicKey(der []byte) (any, error)  { return remember(der, x509.ParsePKIXPublicKey) }

var curves = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}

// generate (kind, curve or bits) makes a pair: [pkcs8, spki]. kind is RSA, EC, Ed25519 or X25519.
func generate(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	kind, curve, bits := f.Arg(0).Str(), "", 0
	if kind == "RSA" {
		bits = f.Arg(1).Int()
	} else {
		curve = f.Arg(1).Str()
	}
	return func(context.Context) (hostcall.Value, error) {
		private, public, err := newPair(kind, curve, bits)
		if err != nil {
			return hostcall.Value{}, failure("OperationError", err.Error())
		}
		return pair(private, public)
	}, nil
}

func newPair(kind, curve string, bits int) (private, public any, err error) {
	switch kind {
	case "RSA":
		k, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			return nil, nil, err
		}
		return k, &k.PublicKey, nil
	case "EC":
		k, err := ecdsa.GenerateKey(curves[curve], rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		return k, &k.PublicKey, nil
	case "Ed25519":
		public, private, err := ed25519.GenerateKey(rand.Reader)
		return private, public, err
	}
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	return k, k.PublicKey(), nil
}

func pair(private, public any) (hostcall.Value, error) {
	p8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return hostcall.Value{}, err
	}
	spki, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return hostcall.Value{}, err
	}
	return hostcall.Value{Kind: hostcall.Tuple, Items: []hostcall.Value{hostcall.Buf(p8), hostcall.Buf(spki)}}, nil
}

// ---- import

// importKey (format, kind, curve, data) gives [type, material, bits or curve, exponent]. kind
// is RSA, EC, Ed25519 or X25519; data is bytes, or a JWK as JSON.
func importKey(f hostcall.Frame) error {
	format, kind, curve := f.Arg(0).Str(), f.Arg(1).Str(), f.Arg(2).Str()
	var key any
	var err error
	switch format {
	case "spki":
		if key, err = x509.ParsePKIXPublicKey(bytes.Clone(f.Arg(3).Bytes())); err != nil {
			return failure("DataError", "Invalid SPKI input.")
		}
	case "pkcs8":
		if key, err = x509.ParsePKCS8PrivateKey(bytes.Clone(f.Arg(3).Bytes())); err != nil {
			return failure("DataError", "Invalid PKCS8 input.")
		}
	case "raw":
		key, err = fromRaw(kind, curve, bytes.Clone(f.Arg(3).Bytes()))
	case "jwk":
		key, err = fromJWK(kind, f.Arg(3).Str())
	}
	if err != nil {
		return failure("DataError", "Failed to import "+format+" "+kind+" key data: "+err.Error()+".")
	}
	if got := curveOf(key); kindOf(key) != kind || curve != "" && got != curve {
		return failure("DataError", "Imported key is not of the requested kind: it is "+describe(key)+", expected "+kind+" "+curve+".")
	}
	return setKey(f, key)
}

func setKey(f hostcall.Frame, key any) error {
	kind, material, err := marshal(key)
	if err != nil {
		return failure("DataError", err.Error())
	}
	items := []hostcall.Value{hostcall.Text(kind), hostcall.Buf(material), {Kind: hostcall.Undefined}, {Kind: hostcall.Undefined}}
	if pub := rsaPublic(key); pub != nil {
		items[2] = hostcall.Num(float64(pub.N.BitLen()))
		items[3] = hostcall.Buf(big.NewInt(int64(pub.E)).Bytes())
	} else {
		items[2] = hostcall.Text(curveOf(key))
	}
	f.SetTuple(items)
	return nil
}

func marshal(key any) (kind string, der []byte, err error) {
	switch key.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey, *ecdh.PrivateKey:
		der, err = x509.MarshalPKCS8PrivateKey(key)
		return "private", der, err
	}
	der, err = x509.MarshalPKIXPublicKey(key)
	return "public", der, err
}

func rsaPublic(key any) *rsa.PublicKey {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return &k.PublicKey
	case *rsa.PublicKey:
		return k
	}
	return nil
}

func kindOf(key any) string {
	switch key.(type) {
	case *rsa.PrivateKey, *rsa.PublicKey:
		return "RSA"
	case *ecdsa.PrivateKey, *ecdsa.PublicKey:
		return "EC"
	case ed25519.PrivateKey, ed25519.PublicKey:
		return "Ed25519"
	case *ecdh.PrivateKey, *ecdh.PublicKey:
		return "X25519"
	}
	return ""
}

func curveOf(key any) string {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		return k.Params().Name
	case *ecdsa.PublicKey:
		return k.Params().Name
	}
	return ""
}

func describe(key any) string { return kindOf(key) + " " + curveOf(key) }

func fromRaw(kind, curve string, b []byte) (any, error) {
	switch kind {
	case "EC":
		return ecdsa.ParseUncompressedPublicKey(curves[curve], decompress(curves[curve], b))
	case "Ed25519":
		if len(b) != ed25519.PublicKeySize {
			return nil, errSize
		}
		return ed25519.PublicKey(b), nil
	case "X25519":
		return ecdh.X25519().NewPublicKey(b)
	}
	return nil, errFormat
}

// decompress gives the long form of a point, or b as it is.
func decompress(c elliptic.Curve, b []byte) []byte {
	if len(b) == 0 || b[0] != 2 && b[0] != 3 {
		return b
	}
	x, y := elliptic.UnmarshalCompressed(c, b)
	if x == nil {
		return b
	}
	size := (c.Params().BitSize + 7) / 8
	out := append([]byte{4}, x.FillBytes(make([]byte, size))...)
	return append(out, y.FillBytes(make([]byte, size))...)
}

// ---- export

// exportKey (format, type, material) gives the bytes, or for jwk the JSON of
// the key's own members.
func exportKey(f hostcall.Frame) error {
	format, material := f.Arg(0).Str(), bytes.Clone(f.Arg(2).Bytes())
	parse := publicKey
	if f.Arg(1).Str() == "private" {
		parse = privateKey
	}
	key, err := parse(material)
	if err != nil {
		return err
	}
	if format == "raw" {
		b, err := rawPublic(key)
		if err == nil {
			f.SetBytes(b)
		}
		return err
	}
	s, err := toJWK(key)
	if err == nil {
		f.SetStr(s)
	}
	return err
}

func rawPublic(key crypto.PublicKey) ([]byte, error) {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		return k.Bytes()
	case ed25519.PublicKey:
		return k, nil
	case *ecdh.PublicKey:
		return k.Bytes(), nil
	}
	return nil, failure("InvalidAccessError", "Raw export is only supported for public keys.")
}
