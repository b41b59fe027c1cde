package node

import (
	"strings"
	"testing"
	"time"
)

func TestSettingsFromEnvironment(t *testing.T) {
	s := Defaults()
	err := s.FromEnv([]string{"CELLD_BUCKET=s3://b/p", "CELLD_TTL_MS=3000", "CELLD_IDLE_EVICT_S=5", "CELLD_TRUST_FORWARDED_HEADERS=1", "CELLD_V8_HEAP_LIMIT_MB=64", "PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Bucket != "s3://b/p" || s.TTL != 3*time.Second || s.IdleEvict != 5*time.Second || !s.TrustForwarded || s.HeapLimit != 64<<20 {
		t.Errorf("%+v", s)
	}
}

func TestBadSettingsNameThemselves(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"CELLD_TTL_MS=abc", "CELLD_TTL_MS"},
		{"CELLD_TTL_MS=0", "CELLD_TTL_MS"},
		{"CELLD_TRUST_FORWARDED_HEADERS=yes", "CELLD_TRUST_FORWARDED_HEADERS"},
		{"CELLD_DURABILITY=none", "fleet, bucket"},
		{"CELLD_ADDR=8080", "host:port"},
		{"CELLD_ADDR=:99999", "port"},
		{"CELLD_NODE=a/b", "CELLD_NODE"},
		{"CELLD_OUTPUT_GATE=0", "not a setting of this version"},
	} {
		s := Defaults()
		if err := s.FromEnv([]string{c.env}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.env, err, c.want)
		}
	}
}

func TestSettingsThatCannotStartTogether(t *testing.T) {
	for _, c := range []struct {
		change func(*Settings)
		want   string
	}{
		{func(s *Settings) { s.Bucket = "" }, "CELLD_BUCKET"},
		{func(s *Settings) { s.Listen = "0.0.0.0:80" }, "--internal-listen"},
		{func(s *Settings) { s.Advertise = "8.8.8.8:1" }, "public IP"},
		{func(s *Settings) { s.Advertise = "10.0.0.1:1" }, ""},
		{func(s *Settings) { s.Advertise = "8.8.8.8:1"; s.UnsafePublicAdvertise = true }, ""},
		{func(s *Settings) { s.Listen = "0.0.0.0:80"; s.InternalListen = "10.0.0.1:9000" }, ""},
	} {
		s := Defaults()
		s.Bucket = "file:///b"
		c.change(&s)
		err := s.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
