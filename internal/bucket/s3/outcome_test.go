package s3_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"celld/internal/bucket"
	"celld/internal/bucket/buckettest"
	"celld/internal/bucket/faultproxy"
	"celld/internal/bucket/s3"
)

// behindProxy opens a store on a real server through a fault proxy.
func behindProxy(t *testing.T) (bucket.Store, *faultproxy.Proxy) {
	url, env := buckettest.VersityGW(t)
	p, err := faultproxy.Start(strings.TrimPrefix(env[0], "S3_ENDPOINT="), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	env[0] = "S3_ENDPOINT=" + p.URL()
	return buckettest.Open(t, url, env), p
}

func TestFourOutcomes(t *testing.T) {
	s, p := behindProxy(t)
	ctx := t.Context()
	for _, c := range []struct {
		name    string
		faults  faultproxy.Faults
		want    bucket.Outcome
		settled bucket.Outcome
	}{
		{"healthy", faultproxy.Faults{}, bucket.Applied, bucket.Applied},
		{"reply lost", faultproxy.Faults{CutAfter: 1}, bucket.Ambiguous, bucket.Applied},
		{"cut before", faultproxy.Faults{CutBefore: 1}, bucket.Ambiguous, bucket.Ambiguous},
		{"503", faultproxy.Faults{Unavailable: 1}, bucket.Ambiguous, bucket.Ambiguous},
		{"429", faultproxy.Faults{TooMany: 1}, bucket.Ambiguous, bucket.Ambiguous},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.faults.Only = func(r *http.Request) bool { return r.Method == http.MethodPut }
			p.Set(c.faults)
			defer p.Set(faultproxy.Faults{})
			before := p.Counts()
			_, err := s.Create(ctx, "raw/"+c.name, []byte("x"))
			if got := bucket.OutcomeOf(err); got != c.want {
				t.Errorf("create: %v (%v), want %v", got, err, c.want)
			}
			after := p.Counts()
			if sent := total(after) - total(before); sent != 1 {
				t.Errorf("a conditional write was sent %d times", sent)
			}
			_, err = bucket.CreateRecord(ctx, s, "record/"+c.name, struct{}{})
			if got := bucket.OutcomeOf(err); got != c.settled {
				t.Errorf("record: %v (%v), want %v", got, err, c.settled)
			}
		})
	}
}

func total(c faultproxy.Counts) int {
	return c.Passed + c.Unavailable + c.TooMany + c.CutBefore + c.CutAfter + c.CutDuring
}

func TestReadsAndPlainWritesAreRetried(t *testing.T) {
	s, p := behindProxy(t)
	var failed atomic.Int32
	once := func(method string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == method && failed.Add(1) == 1 }
	}
	p.Set(faultproxy.Faults{Unavailable: 1, Only: once("PUT")})
	if _, err := s.Put(t.Context(), "k", []byte("x")); err != nil {
		t.Error(err)
	}
	failed.Store(0)
	p.Set(faultproxy.Faults{Unavailable: 1, Only: once("GET")})
	if _, _, err := s.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

func TestConditionalCompleteIsSentOnce(t *testing.T) {
	s, p := behindProxy(t)
	complete := func(r *http.Request) bool { return r.Method == "POST" && r.URL.Query().Has("uploadId") }
	p.Set(faultproxy.Faults{CutAfter: 1, Only: complete})
	body := bytes.Repeat([]byte("part"), 4<<20)
	_, err := s.PutStream(t.Context(), "big", bytes.NewReader(body), int64(len(body)), bucket.PutOptions{IfAbsent: true})
	if bucket.OutcomeOf(err) != bucket.Ambiguous || p.Counts().CutAfter != 1 {
		t.Errorf("%v after %+v, want ambiguous after one request", err, p.Counts())
	}
	got, _, err := s.Get(t.Context(), "big")
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("the object has %d bytes (%v)", len(got), err)
	}
}

func TestUnreachableStoreWasSentNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := fake(t, "http://"+l.Addr().String())
	if _, err := s.Create(t.Context(), "k", nil); bucket.OutcomeOf(err) != bucket.Failed {
		t.Errorf("%v, want failed for certain", err)
	}
	if err := bucket.Probe(t.Context(), s); !errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrViolation) {
		t.Errorf("%v, want unreachable", err)
	}
}

// fake opens a store on an endpoint of our own making.
func fake(t *testing.T, endpoint string) *s3.Store {
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "y")
	s, err := s3.Open(t.Context(), s3.Options{Bucket: "b", Endpoint: endpoint, AppTag: "celld-lease"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func answering(t *testing.T, h http.HandlerFunc) *s3.Store {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return fake(t, server.URL)
}

// The answers of stores that a person reported, or that the manual of S3 lists.
func TestAnswersOfStores(t *testing.T) {
	for _, c := range []struct {
		status         int
		code           string
		create, update bucket.Outcome
	}{
		{412, "PreconditionFailed", bucket.Rejected, bucket.Rejected},
		{409, "ConditionalRequestConflict", bucket.Rejected, bucket.Rejected},
		{409, "OperationAborted", bucket.Ambiguous, bucket.Ambiguous},
		{404, "NoSuchKey", bucket.Ambiguous, bucket.Rejected},
		{404, "NoSuchBucket", bucket.Failed, bucket.Failed},
		{403, "AccessDenied", bucket.Failed, bucket.Failed},
		{501, "NotImplemented", bucket.Failed, bucket.Failed},
		{500, "InternalError", bucket.Ambiguous, bucket.Ambiguous},
		{503, "SlowDown", bucket.Ambiguous, bucket.Ambiguous},
	} {
		s := answering(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(c.status)
			io.WriteString(w, "<Error><Code>"+c.code+"</Code></Error>")
		})
		_, err := s.Create(t.Context(), "k", nil)
		if got := bucket.OutcomeOf(err); got != c.create {
			t.Errorf("create, %d %s: %v, want %v", c.status, c.code, got, c.create)
		}
		_, err = s.Swap(t.Context(), "k", nil, `"v"`)
		if got := bucket.OutcomeOf(err); got != c.update {
			t.Errorf("swap, %d %s: %v, want %v", c.status, c.code, got, c.update)
		}
	}
}

// Stores other than Amazon's refuse checksum trailers and chunked signatures.
func TestNoSurprisesOnTheWire(t *testing.T) {
	var seen http.Header
	s := answering(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"v"`)
	})
	if _, err := s.Create(t.Context(), "k", []byte("body")); err != nil {
		t.Fatal(err)
	}
	for name := range seen {
		lower := strings.ToLower(name)
		if strings.Contains(lower, "checksum") || strings.Contains(lower, "trailer") || lower == "content-encoding" {
			t.Errorf("header %s: %s", name, seen.Get(name))
		}
	}
	if sum := seen.Get("X-Amz-Content-Sha256"); len(sum) != 64 {
		t.Errorf("the body is signed as %q", sum)
	}
	if !strings.Contains(seen.Get("User-Agent"), "celld-lease") || seen.Get("If-None-Match") != "*" {
		t.Errorf("headers: %v", seen)
	}
}

// U006: MinIO RELEASE.2025-09-06 answers NoSuchKey to every create of a missing key.
func TestProbeNamesTheBrokenMinIO(t *testing.T) {
	s := answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(404)
		io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	})
	err := bucket.Probe(t.Context(), s)
	if !errors.Is(err, bucket.ErrViolation) || !strings.Contains(err.Error(), "conditional create") || !strings.Contains(err.Error(), "s3://b at http://") {
		t.Errorf("%v", err)
	}
}
