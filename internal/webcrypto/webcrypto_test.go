package webcrypto

import (
	"bytes"
	"crypto/aes"
	"encoding/hex"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// RFC 3394, 4.1, 4.3 and 4.6.
func TestWrapVectors(t *testing.T) {
	for _, v := range []struct{ kek, key, wrapped string }{
		{"000102030405060708090A0B0C0D0E0F", "00112233445566778899AABBCCDDEEFF", "1FA68B0A8112B447AEF34BD8FB5A7B829D3E862371D2CFE5"},
		{"000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F", "00112233445566778899AABBCCDDEEFF", "64E8C3F9CE0F5BA263E9777905818A2A93C8191E7D6E8AE7"},
		{"000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F", "00112233445566778899AABBCCDDEEFF000102030405060708090A0B0C0D0E0F", "28C9F404C4B810F4CBCCB35CFB87F8263F5786E2D80ED326CBC7F0E71A99F43BFB988B9B7A02DD21"},
	} {
		block, err := aes.NewCipher(unhex(t, v.kek))
		if err != nil {
			t.Fatal(err)
		}
		wrapped := wrapKey(block, unhex(t, v.key))
		if !bytes.Equal(wrapped, unhex(t, v.wrapped)) {
			t.Errorf("wrapped %X, want %s", wrapped, v.wrapped)
		}
		back, err := unwrapKey(block, wrapped)
		if err != nil || !bytes.Equal(back, unhex(t, v.key)) {
			t.Errorf("unwrapped %X %v", back, err)
		}
		wrapped[9] ^= 1
		if _, err := unwrapKey(block, wrapped); err == nil {
			t.Error("a damaged key was unwrapped")
		}
	}
}

// A counter that wraps in its low bits is the same as two pieces with counters of their own.
func TestCounterWraps(t *testing.T) {
	key, counter := make([]byte, 16), bytes.Repeat([]byte{0xff}, 16)
	data := make([]byte, 40)
	whole, err := aesCall{mode: "AES-CTR", key: key, iv: counter, data: data, extra: []byte{8}}.run()
	if err != nil {
		t.Fatal(err)
	}
	first, _ := aesCall{mode: "AES-CTR", key: key, iv: counter, data: data[:16], extra: []byte{128}}.run()
	low := append(bytes.Clone(counter[:15]), 0)
	second, _ := aesCall{mode: "AES-CTR", key: key, iv: low, data: data[16:], extra: []byte{128}}.run()
	if !bytes.Equal(whole, append(first, second...)) {
		t.Error("the counter left its bits")
	}
	if _, err := (aesCall{mode: "AES-CTR", key: key, iv: counter, data: make([]byte, 33), extra: []byte{1}}).run(); err == nil {
		t.Error("a counter that repeats was accepted")
	}
}

// Every tag length opens what it sealed, and nothing else.
func TestShortTags(t *testing.T) {
	for _, tag := range []byte{4, 8, 12, 13, 14, 15, 16} {
		for _, iv := range [][]byte{make([]byte, 12), make([]byte, 1), make([]byte, 40)} {
			c := aesCall{mode: "AES-GCM", encrypt: true, key: make([]byte, 32), iv: iv, data: []byte("plain text"), extra: append([]byte{tag}, "ad"...)}
			sealed, err := c.run()
			if err != nil || len(sealed) != len(c.data)+int(tag) {
				t.Fatal(tag, len(sealed), err)
			}
			c.encrypt, c.data = false, sealed
			if out, err := c.run(); err != nil || string(out) != "plain text" {
				t.Error(tag, out, err)
			}
			for _, i := range []int{0, len(sealed) - 1} {
				c.data = bytes.Clone(sealed)
				c.data[i] ^= 1
				if _, err := c.run(); err == nil {
					t.Errorf("tag of %d bytes: byte %d changed and it opened", tag, i)
				}
			}
		}
	}
}

// Every kind of key comes back from JWK as it was.
func TestKeysThroughJWK(t *testing.T) {
	for _, c := range []struct{ kind, curve string }{{"EC", "P-256"}, {"EC", "P-384"}, {"EC", "P-521"}, {"Ed25519", ""}, {"X25519", ""}, {"RSA", ""}} {
		private, public, err := newPair(c.kind, c.curve, 2048)
		if err != nil {
			t.Fatal(c, err)
		}
		for _, key := range []any{private, public} {
			text, err := toJWK(key)
			if err != nil {
				t.Fatal(c, err)
			}
			back, err := fromJWK(c.kind, text)
			if err != nil {
				t.Fatal(c, err)
			}
			_, want, _ := marshal(key)
			if _, got, err := marshal(back); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v changed through JWK (%v)", c, err)
			}
		}
	}
}

func FuzzJWK(f *testing.F) {
	f.Add("EC", `{"kty":"EC","crv":"P-256","x":"AA","y":"AA","d":"AA"}`)
	f.Add("RSA", `{"kty":"RSA","n":"AQAB","e":"AQAB","d":"AQ","p":"Aw","q":"BQ"}`)
	f.Add("Ed25519", `{"kty":"OKP","crv":"Ed25519","x":"AA"}`)
	f.Fuzz(func(t *testing.T, kind, text string) {
		key, err := fromJWK(kind, text)
		if err == nil {
			if _, _, err := marshal(key); err != nil {
				t.Errorf("%s %s was accepted and cannot be kept: %v", kind, text, err)
			}
		}
	})
}

func FuzzUnwrap(f *testing.F) {
	f.Add(make([]byte, 24))
	f.Add([]byte{1})
	block, _ := aes.NewCipher(make([]byte, 16))
	f.Fuzz(func(t *testing.T, b []byte) { unwrapKey(block, b) })
}
