package webcrypto

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
)

var (
	errSize   = errors.New("the key has the wrong length")
	errFormat = errors.New("the format does not exist for this kind of key")
	errRange  = errors.New("a number of the key is missing or out of range")
	errPair   = errors.New("the private key does not belong to the public key")
)

// jwk has the members of RFC 7517 and 7518 that make up a key.
type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv,omitempty"`
	X   b64    `json:"x,omitempty"`
	Y   b64    `json:"y,omitempty"`
	N   b64    `json:"n,omitempty"`
	E   b64    `json:"e,omitempty"`
	D   b64    `json:"d,omitempty"`
	P   b64    `json:"p,omitempty"`
	Q   b64    `json:"q,omitempty"`
	DP  b64    `json:"dp,omitempty"`
	DQ  b64    `json:"dq,omitempty"`
	QI  b64    `json:"qi,omitempty"`
}

// b64 is base64url without padding.
type b64 []byte

func (b b64) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

func (b *b64) UnmarshalText(text []byte) (err error) {
	*b, err = base64.RawURLEncoding.AppendDecode(nil, text)
	return err
}

func (b b64) int() *big.Int { return new(big.Int).SetBytes(b) }

func fromJWK(kind, text string) (any, error) {
	var j jwk
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return nil, err
	}
	switch {
	case kind == "RSA" && j.Kty == "RSA":
		return j.rsa()
	case kind == "EC" && j.Kty == "EC":
		return j.ec()
	case kind == "Ed25519" && j.Kty == "OKP" && j.Crv == kind:
		return j.ed25519()
	case kind == "X25519" && j.Kty == "OKP" && j.Crv == kind:
		return j.x25519()
	}
	return nil, errors.New("its \"kty\" or \"crv\" does not fit the algorithm")
}

func (j *jwk) rsa() (any, error) {
	e := j.E.int()
	if len(j.N) == 0 || !e.IsInt64() || e.Int64() < 2 || e.Int64() > 1<<31-1 {
		return nil, errRange
	}
	public := rsa.PublicKey{N: j.N.int(), E: int(e.Int64())}
	if len(j.D) == 0 {
		return &public, nil
	}
	if len(j.P) == 0 || len(j.Q) == 0 {
		return nil, errRange
	}
	k := &rsa.PrivateKey{PublicKey: public, D: j.D.int(), Primes: []*big.Int{j.P.int(), j.Q.int()}}
	if err := k.Validate(); err != nil {
		return nil, err
	}
	k.Precompute()
	return k, nil
}

func (j *jwk) ec() (any, error) {
	c, ok := curves[j.Crv]
	if !ok {
		return nil, errors.New("its curve is not known")
	}
	size := (c.Params().BitSize + 7) / 8
	if len(j.X) != size || len(j.Y) != size {
		return nil, errSize
	}
	public, err := ecdsa.ParseUncompressedPublicKey(c, append(append([]byte{4}, j.X...), j.Y...))
	if err != nil || len(j.D) == 0 {
		return public, err
	}
	private, err := ecdsa.ParseRawPrivateKey(c, j.D)
	if err != nil {
		return nil, err
	}
	if !private.PublicKey.Equal(public) {
		return nil, errPair
	}
	return private, nil
}

func (j *jwk) ed25519() (any, error) {
	if len(j.X) != ed25519.PublicKeySize {
		return nil, errSize
	}
	public := ed25519.PublicKey(j.X)
	if len(j.D) == 0 {
		return public, nil
	}
	if len(j.D) != ed25519.SeedSize {
		return nil, errSize
	}
	private := ed25519.NewKeyFromSeed(j.D)
	if !public.Equal(private.Public()) {
		return nil, errPair
	}
	return private, nil
}

func (j *jwk) x25519() (any, error) {
	public, err := ecdh.X25519().NewPublicKey(j.X)
	if err != nil || len(j.D) == 0 {
		return public, err
	}
	private, err := ecdh.X25519().NewPrivateKey(j.D)
	if err != nil {
		return nil, err
	}
	if !private.PublicKey().Equal(public) {
		return nil, errPair
	}
	return private, nil
}

func toJWK(key any) (string, error) {
	j, err := jwkOf(key)
	if err != nil {
		return "", failure("OperationError", err.Error())
	}
	b, err := json.Marshal(j)
	return string(b), err
}

func jwkOf(key any) (*jwk, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return &jwk{Kty: "RSA", N: k.N.Bytes(), E: big.NewInt(int64(k.E)).Bytes()}, nil
	case *rsa.PrivateKey:
		j, _ := jwkOf(&k.PublicKey)
		k.Precompute()
		j.D, j.P, j.Q = k.D.Bytes(), k.Primes[0].Bytes(), k.Primes[1].Bytes()
		j.DP, j.DQ, j.QI = k.Precomputed.Dp.Bytes(), k.Precomputed.Dq.Bytes(), k.Precomputed.Qinv.Bytes()
		return j, nil
	case *ecdsa.PublicKey:
		b, err := k.Bytes()
		if err != nil {
			return nil, err
		}
		half := (len(b) - 1) / 2
		return &jwk{Kty: "EC", Crv: k.Params().Name, X: b[1 : 1+half], Y: b[1+half:]}, nil
	case *ecdsa.PrivateKey:
		j, err := jwkOf(&k.PublicKey)
		if err == nil {
			j.D, err = k.Bytes()
		}
		return j, err
	case ed25519.PublicKey:
		return &jwk{Kty: "OKP", Crv: "Ed25519", X: b64(k)}, nil
	case ed25519.PrivateKey:
		return &jwk{Kty: "OKP", Crv: "Ed25519", X: b64(k.Public().(ed25519.PublicKey)), D: b64(k.Seed())}, nil
	case *ecdh.PublicKey:
		return &jwk{Kty: "OKP", Crv: "X25519", X: k.Bytes()}, nil
	case *ecdh.PrivateKey:
		return &jwk{Kty: "OKP", Crv: "X25519", X: k.PublicKey().Bytes(), D: k.Bytes()}, nil
	}
	return nil, errFormat
}
