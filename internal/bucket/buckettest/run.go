package buckettest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"celld/internal/bucket"
)

// Quirk is something that one server cannot do, and celld does not need.
type Quirk string

// FilesAreLeaves: a server on a file system, where a and a/b cannot both exist.
const FilesAreLeaves Quirk = "an object above others"

// Run checks the whole contract, except where a quirk forbids. Every case works
// below a prefix of its own, so the store need not be empty.
func Run(t *testing.T, s bucket.Store, quirks ...Quirk) {
	for _, c := range []struct {
		name string
		run  func(*T)
	}{
		{"get what was put", getWhatWasPut},
		{"missing objects", missing},
		{"create only where absent", createOnlyWhereAbsent},
		{"swap only the version that stands", swapOnlyCurrent},
		{"a version changes with every content", versions},
		{"ranges are exact", ranges},
		{"streams", streams},
		{"a stream that fails leaves nothing", failedStream},
		{"conditional streams", conditionalStreams},
		{"metadata", metadata},
		{"list in byte order", list},
		{"list many", listMany},
		{"list stops when told", listStops},
		{"odd keys", oddKeys},
		{"refused before sending", refused},
		{"delete", deletes},
		{string(FilesAreLeaves), objectAbove},
		{"a cancelled context writes nothing", cancelled},
		{"200 creators, one wins", raceCreate},
		{"200 swappers, one wins", raceSwap},
		{"concurrent increments add up", increments},
		{"probe", probe},
	} {
		if slices.Contains(quirks, Quirk(c.name)) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.run(&T{T: t, s: s, prefix: "contract/" + rand.Text() + "/"})
		})
	}
}

// T is one case: a test with a store and a corner of it.
type T struct {
	*testing.T
	s      bucket.Store
	prefix string
}

func (t *T) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (t *T) put(name, body string) bucket.Version {
	t.Helper()
	v, err := t.s.Put(t.Context(), t.prefix+name, []byte(body))
	t.must(err)
	if v == "" {
		t.Fatalf("put %s: no version", name)
	}
	return v
}

// wantBody checks an object through Get.
func (t *T) wantBody(name, want string) bucket.Version {
	t.Helper()
	body, v, err := t.s.Get(t.Context(), t.prefix+name)
	t.must(err)
	if string(body) != want {
		t.Fatalf("get %s: %d bytes %.40q, want %d bytes %.40q", name, len(body), body, len(want), want)
	}
	return v
}

func (t *T) wantErr(err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func getWhatWasPut(t *T) {
	for _, body := range []string{"", "x", strings.Repeat("0123456789abcdef", 3000)} {
		put := t.put("a/b.json", body)
		if got := t.wantBody("a/b.json", body); got != put {
			t.Errorf("put made version %q, get sees %q", put, got)
		}
		info, err := t.s.Head(t.Context(), t.prefix+"a/b.json")
		t.must(err)
		if info.Version != put || info.Size != int64(len(body)) || info.Key != t.prefix+"a/b.json" || info.Modified.IsZero() {
			t.Errorf("head says %+v", info)
		}
	}
}

func missing(t *T) {
	ctx, key := t.Context(), t.prefix+"nothing/here"
	_, _, err := t.s.Get(ctx, key)
	t.wantErr(err, bucket.ErrNotFound)
	_, _, err = t.s.Open(ctx, key, 0, -1)
	t.wantErr(err, bucket.ErrNotFound)
	_, _, err = t.s.Open(ctx, key, 3, 4)
	t.wantErr(err, bucket.ErrNotFound)
	_, err = t.s.Head(ctx, key)
	t.wantErr(err, bucket.ErrNotFound)
	t.must(t.s.Delete(ctx, key))
	v := t.put("gone", "x")
	t.must(t.s.Delete(ctx, t.prefix+"gone"))
	_, err = t.s.Swap(ctx, t.prefix+"gone", []byte("y"), v)
	t.wantErr(err, bucket.ErrPrecondition)
}

func createOnlyWhereAbsent(t *T) {
	v, err := t.s.Create(t.Context(), t.prefix+"k", []byte("first"))
	t.must(err)
	_, err = t.s.Create(t.Context(), t.prefix+"k", []byte("second"))
	t.wantErr(err, bucket.ErrPrecondition)
	if got := t.wantBody("k", "first"); got != v {
		t.Errorf("create made version %q, get sees %q", v, got)
	}
	t.must(t.s.Delete(t.Context(), t.prefix+"k"))
	_, err = t.s.Create(t.Context(), t.prefix+"k", []byte("third"))
	t.must(err)
	t.wantBody("k", "third")
}

func swapOnlyCurrent(t *T) {
	first := t.put("k", "1")
	second, err := t.s.Swap(t.Context(), t.prefix+"k", []byte("2"), first)
	t.must(err)
	_, err = t.s.Swap(t.Context(), t.prefix+"k", []byte("3"), first)
	t.wantErr(err, bucket.ErrPrecondition)
	if got := t.wantBody("k", "2"); got != second {
		t.Errorf("swap made version %q, get sees %q", second, got)
	}
	_, err = t.s.Swap(t.Context(), t.prefix+"k", []byte("4"), second)
	t.must(err)
}

func versions(t *T) {
	seen := map[bucket.Version]int{}
	for i := range 20 {
		v := t.put("k", fmt.Sprint(i))
		if before, ok := seen[v]; ok {
			t.Fatalf("writes %d and %d share version %q", before, i, v)
		}
		seen[v] = i
	}
}

func ranges(t *T) {
	body := make([]byte, 100_000)
	rand.Read(body)
	t.put("k", string(body))
	for _, r := range []struct{ off, length, from, to int64 }{
		{0, -1, 0, 100_000}, {0, 1, 0, 1}, {0, 0, 0, 0}, {99_999, 1, 99_999, 100_000}, {99_999, 50, 99_999, 100_000},
		{7, 65_536, 7, 65_543}, {50_000, -1, 50_000, 100_000}, {100_000, 5, 0, 0}, {200_000, -1, 0, 0}, {3, 0, 0, 0},
	} {
		rc, info, err := t.s.Open(t.Context(), t.prefix+"k", r.off, r.length)
		t.must(err)
		got, err := io.ReadAll(rc)
		rc.Close()
		t.must(err)
		if !bytes.Equal(got, body[r.from:r.to]) {
			t.Errorf("range %d+%d: %d bytes, not bytes %d to %d", r.off, r.length, len(got), r.from, r.to)
		}
		if info.Size != int64(len(body)) || info.Version == "" {
			t.Errorf("range %d+%d of %+v", r.off, r.length, info)
		}
	}
}

// big is a stream that needs more than one part in every store.
const big = 21<<20 + 12345

func streams(t *T) {
	for _, size := range []int64{0, 1000, 8 << 20, big} {
		for _, announced := range []int64{size, -1} {
			v, err := t.s.PutStream(t.Context(), t.prefix+"k", io.LimitReader(pattern(0), size), announced, bucket.PutOptions{})
			t.must(err)
			rc, info, err := t.s.Open(t.Context(), t.prefix+"k", 0, -1)
			t.must(err)
			if info.Size != size || info.Version != v {
				t.Errorf("stream of %d (announced %d) became %+v, version %q", size, announced, info, v)
			}
			wantPattern(t, rc, size)
			rc.Close()
		}
	}
}

// pattern is an endless stream whose every byte tells its place.
type patternReader struct{ at int64 }

func pattern(at int64) io.Reader { return &patternReader{at} }

func (p *patternReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.at ^ p.at>>8 ^ p.at>>16)
		p.at++
	}
	return len(b), nil
}

func wantPattern(t *T, r io.Reader, size int64) {
	t.Helper()
	got, err := io.ReadAll(r)
	t.must(err)
	want := make([]byte, size)
	io.ReadFull(pattern(0), want)
	if !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, not the %d that were written", len(got), size)
	}
}

func failedStream(t *T) {
	for _, good := range []int64{10, big} {
		boom := errors.New("disk on fire")
		r := io.MultiReader(io.LimitReader(pattern(0), good), iotest.ErrReader(boom))
		_, err := t.s.PutStream(t.Context(), t.prefix+"k", r, -1, bucket.PutOptions{})
		t.wantErr(err, boom)
		_, err = t.s.PutStream(t.Context(), t.prefix+"k", io.LimitReader(pattern(0), good), good+1, bucket.PutOptions{})
		if err == nil {
			t.Errorf("a stream of %d announced as %d was taken", good, good+1)
		}
		_, err = t.s.PutStream(t.Context(), t.prefix+"k", io.LimitReader(pattern(0), good), good-1, bucket.PutOptions{})
		if err == nil {
			t.Errorf("a stream of %d announced as %d was taken", good, good-1)
		}
		_, err = t.s.Head(t.Context(), t.prefix+"k")
		t.wantErr(err, bucket.ErrNotFound)
	}
}

func conditionalStreams(t *T) {
	for _, size := range []int64{100, big} {
		key := fmt.Sprint(t.prefix, size)
		send := func(o bucket.PutOptions) (bucket.Version, error) {
			return t.s.PutStream(t.Context(), key, io.LimitReader(pattern(0), size), size, o)
		}
		first, err := send(bucket.PutOptions{IfAbsent: true})
		t.must(err)
		_, err = send(bucket.PutOptions{IfAbsent: true})
		t.wantErr(err, bucket.ErrPrecondition)
		between, err := t.s.Swap(t.Context(), key, []byte("other"), first)
		t.must(err)
		_, err = send(bucket.PutOptions{IfVersion: first})
		t.wantErr(err, bucket.ErrPrecondition)
		_, err = send(bucket.PutOptions{IfVersion: between})
		t.must(err)
	}
}

func metadata(t *T) {
	meta := map[string]string{"celld-r2": `{"name":"Grüße, 世界", "n": 1}`, "plain": "a b", "x9": " edge % ", "empty-not": "-"}
	_, err := t.s.PutStream(t.Context(), t.prefix+"k", strings.NewReader("body"), 4, bucket.PutOptions{Meta: meta, ContentType: "text/plain"})
	t.must(err)
	info, err := t.s.Head(t.Context(), t.prefix+"k")
	t.must(err)
	rc, opened, err := t.s.Open(t.Context(), t.prefix+"k", 1, 2)
	t.must(err)
	rc.Close()
	for name, want := range meta {
		if info.Meta[name] != want || opened.Meta[name] != want {
			t.Errorf("metadata %s: %q and %q, want %q", name, info.Meta[name], opened.Meta[name], want)
		}
	}
	if len(info.Meta) != len(meta) {
		t.Errorf("metadata came back as %v", info.Meta)
	}
	t.wantBody("k", "body")
	t.put("k", "new")
	if info, err = t.s.Head(t.Context(), t.prefix+"k"); err != nil || len(info.Meta) > 0 {
		t.Errorf("after an overwrite: %v, metadata %v", err, info.Meta)
	}
}

func (t *T) keys(prefix, after string) []string {
	t.Helper()
	if after != "" {
		after = t.prefix + after
	}
	var keys []string
	for o, err := range t.s.List(t.Context(), t.prefix+prefix, after) {
		t.must(err)
		if o.Size != 1 || o.Version == "" || o.Modified.IsZero() {
			t.Errorf("listed as %+v", o)
		}
		keys = append(keys, strings.TrimPrefix(o.Key, t.prefix))
	}
	return keys
}

func list(t *T) {
	all := []string{"a!", "a/b/c", "a/b0", "a/c", "a0", "aa", "b", "c%2Fd/owner.json", "é/x"}
	for _, name := range all {
		t.put(name, "x")
	}
	slices.Sort(all)
	for _, c := range []struct{ prefix, after string }{
		{"", ""}, {"a", ""}, {"a/", ""}, {"a/b", ""}, {"a/b/", ""}, {"a/b/c", ""}, {"none", ""}, {"", "a/b/c"},
		{"", "a/"}, {"", "a"}, {"a", "a!"}, {"a/", "a/b/c"}, {"", "zzzz"}, {"b", "a"}, {"a/", "a0"}, {"c%", ""}, {"é", ""},
	} {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, c.prefix) && name > c.after {
				want = append(want, name)
			}
		}
		if got := t.keys(c.prefix, c.after); !slices.Equal(got, want) {
			t.Errorf("list %q after %q:\n got %q\nwant %q", c.prefix, c.after, got, want)
		}
	}
}

// listMany needs several pages from every store.
func listMany(t *T) {
	const many = 1203
	var want []string
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	slots := make(chan struct{}, 16)
	for i := range many {
		name := fmt.Sprintf("m/%02d/%04d", i%7, i)
		want = append(want, name)
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if _, err := t.s.Put(t.Context(), t.prefix+name, []byte("x")); err != nil {
				failed.Store(&err)
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	slices.Sort(want)
	if got := t.keys("m/", ""); !slices.Equal(got, want) {
		t.Errorf("listed %d of %d keys, or in another order", len(got), many)
	}
	if got := t.keys("m/", want[600]); !slices.Equal(got, want[601:]) {
		t.Errorf("listed %d keys after the 601st of %d", len(got), many)
	}
}

func listStops(t *T) {
	for i := range 5 {
		t.put(fmt.Sprint("s/", i), "x")
	}
	seen := 0
	for _, err := range t.s.List(t.Context(), t.prefix+"s/", "") {
		t.must(err)
		if seen++; seen == 2 {
			break
		}
	}
	if seen != 2 {
		t.Errorf("saw %d", seen)
	}
}

func oddKeys(t *T) {
	names := []string{
		"Class:0123/owner.json", "a%2Fb/x", "%/x", "100%", "sp ace/+plus", "q?x=1&y#z", "über/日本", "dot.s/.hidden", "e=mc2/@x",
		"~tilde", "quote'\"", "comma,;", "[brackets]{}", strings.Repeat("l", 240) + "/x", "bang!*()",
	}
	for _, name := range names {
		t.put(name, "x")
		t.wantBody(name, "x")
	}
	slices.Sort(names)
	if got := t.keys("", ""); !slices.Equal(got, names) {
		t.Errorf("listed\n%q, want\n%q", got, names)
	}
	for _, name := range names {
		t.must(t.s.Delete(t.Context(), t.prefix+name))
	}
	if got := t.keys("", ""); len(got) != 0 {
		t.Errorf("left after deleting: %q", got)
	}
}

func refused(t *T) {
	ctx, key := t.Context(), t.prefix+"k"
	_, err := t.s.Put(ctx, "", []byte("x"))
	t.wantErr(err, bucket.ErrNotSent)
	_, err = t.s.Put(ctx, strings.Repeat("k", bucket.MaxKey+1), []byte("x"))
	t.wantErr(err, bucket.ErrNotSent)
	_, err = t.s.Swap(ctx, key, []byte("x"), "")
	t.wantErr(err, bucket.ErrNotSent)
	_, err = t.s.PutStream(ctx, key, strings.NewReader("x"), 1, bucket.PutOptions{IfAbsent: true, IfVersion: "v"})
	t.wantErr(err, bucket.ErrNotSent)
	_, err = t.s.PutStream(ctx, key, strings.NewReader("x"), 1, bucket.PutOptions{Meta: map[string]string{"No_Way": "x"}})
	t.wantErr(err, bucket.ErrNotSent)
	_, err = t.s.Head(ctx, key)
	t.wantErr(err, bucket.ErrNotFound)
}

func deletes(t *T) {
	t.put("d/a/b", "x")
	t.must(t.s.Delete(t.Context(), t.prefix+"d/a/b"))
	t.must(t.s.Delete(t.Context(), t.prefix+"d/a/b"))
	t.put("d/a/b", "y") // where a directory may have been cleaned away
	t.wantBody("d/a/b", "y")
}

func objectAbove(t *T) {
	t.put("d/a", "x")
	t.put("d/a/b", "y")
	t.wantBody("d/a", "x")
	t.wantBody("d/a/b", "y")
	if got := t.keys("d/", ""); !slices.Equal(got, []string{"d/a", "d/a/b"}) {
		t.Errorf("listed %q", got)
	}
	t.must(t.s.Delete(t.Context(), t.prefix+"d/a/b"))
	t.wantBody("d/a", "x")
	t.must(t.s.Delete(t.Context(), t.prefix+"d/a"))
}

func cancelled(t *T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := t.s.Create(ctx, t.prefix+"k", []byte("x"))
	t.wantErr(err, bucket.ErrNotSent)
	_, err = t.s.Head(t.Context(), t.prefix+"k")
	t.wantErr(err, bucket.ErrNotFound)
}

func probe(t *T) {
	t.must(bucket.Probe(t.Context(), t.s))
	for o, err := range t.s.List(t.Context(), bucket.ProbePrefix, "") {
		t.Errorf("the probe left %s behind (%v)", o.Key, err)
	}
}
