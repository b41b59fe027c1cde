package open

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]Place{
		"file:///var/lib/celld": {"file", "/var/lib/celld", ""},
		"FILE:///a%20b":         {"file", "/a b", ""},
		"file://rel/dir":        {"file", "rel/dir", ""},
		"file://localhost/abs":  {"file", "/abs", ""},
		" /abs ":                {"file", "/abs", ""},
		"./rel":                 {"file", "./rel", ""},
		"s3://name":             {"s3", "name", ""},
		"S3://name/":            {"s3", "name", ""},
		"s3://name/a/b/":        {"s3", "name", "a/b/"},
		"gs://name/p":           {"gs", "name", "p/"},
		"az://container/p":      {"az", "container", "p/"},
		"file:///odd?dir#x@y":   {"file", "/odd?dir#x@y", ""},
	} {
		if got, err := Parse(raw); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestParseNamesTheSetting(t *testing.T) {
	for raw, evidence := range map[string]string{
		"":                    "not set",
		"name":                "lacks a scheme",
		"http://host/x":       "http://",
		"s3://":               "name of the bucket is missing",
		"s3:///prefix":        "name of the bucket is missing",
		"s3://a/b//c":         "empty segments",
		"s3://n?region=x":     "--region",
		"file://":             "file:///absolute",
		"s3://key:secret@n/p": `before "n/p"`,
	} {
		_, err := Parse(raw)
		if err == nil || !strings.Contains(err.Error(), "--bucket (CELLD_BUCKET)") || !strings.Contains(err.Error(), evidence) {
			t.Errorf("%q: %v, want the setting and %q", raw, err, evidence)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats a secret: %v", raw, err)
		}
	}
}

func TestBucket(t *testing.T) {
	t.Setenv("S3_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	dir := filepath.Join(t.TempDir(), "new")
	for raw, want := range map[string]string{
		"file://" + dir: "file://" + dir,
		dir:             "file://" + dir,
		"s3://n/p":      "s3://n/p at http://127.0.0.1:1",
		"gs://n/p":      "gs://n/p at http://127.0.0.1:1",
		"az://c/p":      "az://c/p at https://account.blob.core.windows.net/c",
	} {
		s, err := Bucket(t.Context(), raw, Options{})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if s.String() != want {
			t.Errorf("%s calls itself %q, want %q", raw, s, want)
		}
		if err := Close(s); err != nil {
			t.Error(err)
		}
	}
}

func TestEndpointIsChecked(t *testing.T) {
	for _, c := range []struct{ raw, endpoint string }{{"file:///x", "http://h"}, {"s3://n", "h:9000"}, {"s3://n", "ftp://h"}} {
		if _, err := Bucket(t.Context(), c.raw, Options{Endpoint: c.endpoint}); err == nil || !strings.Contains(err.Error(), "--endpoint") {
			t.Errorf("%s with endpoint %s: %v", c.raw, c.endpoint, err)
		}
	}
}

func TestMissingRegionIsNamed(t *testing.T) {
	for _, name := range []string{"S3_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	if _, err := Bucket(t.Context(), "s3://n", Options{}); err == nil || !strings.Contains(err.Error(), "--region") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("s3://name/prefix")
	f.Add("file://localhost/%zz")
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := Parse(raw)
		if err == nil && (p.Name == "" || p.Prefix != "" && !strings.HasSuffix(p.Prefix, "/")) {
			t.Errorf("%q: %+v", raw, p)
		}
	})
}
