package wire_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"unicode/utf8"

	"celld/internal/bucket"
	"celld/internal/bucket/wire"
)

func FuzzMeta(f *testing.F) {
	for _, value := range []string{"", "a b", "100%", "%41", "Grüße\x00\n", " edge "} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		wire.UnescapeMeta(value)
		if !utf8.ValidString(value) {
			return
		}
		escaped := wire.EscapeMeta(value)
		for i := 0; i < len(escaped); i++ {
			if escaped[i] <= ' ' || escaped[i] >= 0x7f {
				t.Fatalf("%q is escaped as %q", value, escaped)
			}
		}
		if got := wire.UnescapeMeta(escaped); got != value {
			t.Errorf("%q comes back as %q", value, got)
		}
	})
}

func TestForeignMetadataStaysAsItIs(t *testing.T) {
	for _, value := range []string{"100%", "%zz", "%ff", "a%4"} {
		if got := wire.UnescapeMeta(value); got != value {
			t.Errorf("%q became %q", value, got)
		}
	}
}

func TestSentKnowsWhetherAConnectionWasMade(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	client := wire.NewClient()
	get := func() error {
		ctx, sent := wire.Track(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		if res, err := client.Do(req); err == nil {
			res.Body.Close()
		}
		return sent.Class()
	}
	if err := get(); err != nil {
		t.Errorf("after an answer: %v", err)
	}
	server.Close()
	client.CloseIdleConnections()
	if err := get(); err != bucket.ErrNotSent {
		t.Errorf("after a refused connection: %v", err)
	}
}
