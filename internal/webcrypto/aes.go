package webcrypto

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"math/big"

	"celld/internal/hostcall"
)

var aesOps = []hostcall.Op{
	{Name: "crypto.aes", Sync: aesNow},
	{Name: "crypto.aesLater", Async: aesLater},
}

// aesCall is one encryption or decryption. extra means, by mode: GCM the length
// of the tag in bytes and then the additional data; CTR the bits of the counter.
type aesCall struct {
	mode        string
	encrypt     bool
	key, iv     []byte
	data, extra []byte
}

func aesNow(f hostcall.Frame) error {
	out, err := aesOf(f, func(b []byte) []byte { return b }).run()
	if err == nil {
		f.SetBytes(out)
	}
	return err
}

func aesLater(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
	c := aesOf(f, bytes.Clone)
	return func(context.Context) (hostcall.Value, error) {
		out, err := c.run()
		return hostcall.Buf(out), err
	}, nil
}

func aesOf(f hostcall.Frame, keep func([]byte) []byte) aesCall {
	return aesCall{f.Arg(0).Str(), f.Arg(1).Bool(), keep(f.Arg(2).Bytes()), keep(f.Arg(3).Bytes()), keep(f.Arg(4).Bytes()), keep(f.Arg(5).Bytes())}
}

func (c aesCall) run() ([]byte, error) {
	block, err := aes.NewCipher(c.key)
	if err != nil {
		return nil, failure("OperationError", err.Error())
	}
	switch c.mode {
	case "AES-CBC":
		return c.cbc(block)
	case "AES-CTR":
		return c.ctr(block)
	case "AES-GCM":
		return c.gcm(block)
	case "AES-KW":
		if c.encrypt {
			return wrapKey(block, c.data), nil
		}
		return unwrapKey(block, c.data)
	}
	return nil, failure("NotSupportedError", "unknown mode "+c.mode)
}

func (c aesCall) undecryptable(output int) error {
	return failure("OperationError", fmt.Sprintf("Decryption failed. This could be due to a ciphertext authentication failure, bad padding, incorrect CryptoKey, or another algorithm-specific reason. Input length was %d, output length expected to be %d for %s", len(c.data), output, c.mode))
}

func (c aesCall) cbc(block cipher.Block) ([]byte, error) {
	if c.encrypt {
		pad := aes.BlockSize - len(c.data)%aes.BlockSize
		out := append(bytes.Clone(c.data), bytes.Repeat([]byte{byte(pad)}, pad)...)
		cipher.NewCBCEncrypter(block, c.iv).CryptBlocks(out, out)
		return out, nil
	}
	if len(c.data) == 0 || len(c.data)%aes.BlockSize != 0 {
		return nil, c.undecryptable(0)
	}
	out := make([]byte, len(c.data))
	cipher.NewCBCDecrypter(block, c.iv).CryptBlocks(out, c.data)
	pad := int(out[len(out)-1])
	if pad == 0 || pad > aes.BlockSize || !bytes.Equal(out[len(out)-pad:], bytes.Repeat([]byte{byte(pad)}, pad)) {
		return nil, c.undecryptable(0)
	}
	return out[:len(out)-pad], nil
}

// ctr counts in the low bits only: where they wrap, the counter starts at zero
// while the rest of the block stays.
func (c aesCall) ctr(block cipher.Block) ([]byte, error) {
	out := make([]byte, len(c.data))
	bits := uint(c.extra[0])
	if blocks := (len(c.data) + aes.BlockSize - 1) / aes.BlockSize; bits < 63 && blocks > 1<<bits {
		return nil, failure("OperationError", "Counter block values will repeat.")
	}
	until := blocksUntilWrap(c.iv, bits)
	first := len(c.data)
	if until.IsInt64() && until.Int64() < int64(len(c.data)+aes.BlockSize-1)/aes.BlockSize {
		first = int(until.Int64()) * aes.BlockSize
	}
	cipher.NewCTR(block, c.iv).XORKeyStream(out[:first], c.data[:first])
	if first < len(c.data) {
		cipher.NewCTR(block, clearLow(c.iv, bits)).XORKeyStream(out[first:], c.data[first:])
	}
	return out, nil
}

func blocksUntilWrap(counter []byte, bits uint) *big.Int {
	size := new(big.Int).Lsh(big.NewInt(1), bits)
	at := new(big.Int).And(new(big.Int).SetBytes(counter), new(big.Int).Sub(size, big.NewInt(1)))
	return size.Sub(size, at)
}

func clearLow(counter []byte, bits uint) []byte {
	n := new(big.Int).SetBytes(counter)
	n.Rsh(n, bits).Lsh(n, bits)
	return n.FillBytes(make([]byte, len(counter)))
}

const fullTag = 16

func (c aesCall) gcm(block cipher.Block) ([]byte, error) {
	if len(c.iv) == 0 {
		return nil, failure("OperationError", "AES-GCM IV must not be empty.")
	}
	g, err := cipher.NewGCMWithNonceSize(block, len(c.iv))
	if err != nil {
		return nil, failure("OperationError", err.Error())
	}
	tag, additional := int(c.extra[0]), c.extra[1:]
	if c.encrypt {
		sealed := g.Seal(nil, c.iv, c.data, additional)
		return sealed[:len(sealed)-fullTag+tag], nil
	}
	if len(c.data) < tag {
		return nil, failure("OperationError", fmt.Sprintf("Ciphertext length of %d bits must be greater than or equal to the size of the AES-GCM tag length of %d bits.", len(c.data)*8, tag*8))
	}
	text := c.data[:len(c.data)-tag]
	if tag == fullTag {
		if out, err := g.Open(nil, c.iv, c.data, additional); err == nil {
			return out, nil
		}
		return nil, c.gcmFailed(text)
	}
	// Go opens no short tags: take the key stream from the encryption of zeros,
	// and compare the tag that the plaintext should have had.
	out := make([]byte, len(text))
	subtle.XORBytes(out, text, g.Seal(nil, c.iv, make([]byte, len(text)), nil)[:len(text)])
	again := g.Seal(nil, c.iv, out, additional)
	if subtle.ConstantTimeCompare(again[len(text):len(text)+tag], c.data[len(text):]) != 1 {
		return nil, c.gcmFailed(text)
	}
	return out, nil
}

func (c aesCall) gcmFailed(text []byte) error {
	c.data = text
	return c.undecryptable(len(text))
}

// ---- AES-KW, RFC 3394

var kwIV = []byte{0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6}

func wrapKey(block cipher.Block, key []byte) []byte {
	out := append(bytes.Clone(kwIV), key...)
	n := len(key) / 8
	var b [16]byte
	for t := 1; t <= 6*n; t++ {
		r := out[8*((t-1)%n+1):][:8]
		copy(b[:8], out)
		copy(b[8:], r)
		block.Encrypt(b[:], b[:])
		binary.BigEndian.PutUint64(out, binary.BigEndian.Uint64(b[:])^uint64(t))
		copy(r, b[8:])
	}
	return out
}

func unwrapKey(block cipher.Block, wrapped []byte) ([]byte, error) {
	if len(wrapped) < 24 || len(wrapped)%8 != 0 {
		return nil, failure("OperationError", "Provided data is the wrong length for AES key unwrapping.")
	}
	out := bytes.Clone(wrapped)
	n := len(out)/8 - 1
	var b [16]byte
	for t := 6 * n; t >= 1; t-- {
		r := out[8*((t-1)%n+1):][:8]
		binary.BigEndian.PutUint64(b[:], binary.BigEndian.Uint64(out)^uint64(t))
		copy(b[8:], r)
		block.Decrypt(b[:], b[:])
		copy(out, b[:8])
		copy(r, b[8:])
	}
	if subtle.ConstantTimeCompare(out[:8], kwIV) != 1 {
		return nil, failure("OperationError", "AES-KW key unwrapping failed.")
	}
	return out[8:], nil
}
