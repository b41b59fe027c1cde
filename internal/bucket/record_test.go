package bucket_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"celld/internal/bucket"
	"celld/internal/bucket/faulty"
	"celld/internal/bucket/mem"
)

type load struct {
	Cells int `json:"cells"`
}

type lease struct {
	Session string `json:"session"`
	Load    load   `json:"load"`
	Next    *load  `json:"next,omitempty"`
}

const key = "nodes/n/s.json"

func TestRecordLifeCycle(t *testing.T) {
	ctx, s := t.Context(), mem.New()
	if _, err := bucket.ReadRecord[lease](ctx, s, key); !errors.Is(err, bucket.ErrNotFound) {
		t.Fatalf("read before create: %v", err)
	}
	first, err := bucket.CreateRecord(ctx, s, key, lease{Session: "a"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := bucket.SwapRecord(ctx, s, key, first, lease{Session: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if second.Nonce == first.Nonce {
		t.Error("two writes share a nonce")
	}
	now, err := bucket.SwapRecord(ctx, s, key, first, lease{Session: "c"})
	if !errors.Is(err, bucket.ErrPrecondition) || now.Value.Session != "b" {
		t.Errorf("stale swap: %v, %v", now, err)
	}
	now, err = bucket.CreateRecord(ctx, s, key, lease{Session: "d"})
	if !errors.Is(err, bucket.ErrPrecondition) || now.Nonce != second.Nonce {
		t.Errorf("second create: %v, %v", now, err)
	}
}

func TestUnknownFieldsSurvive(t *testing.T) {
	ctx, s := t.Context(), mem.New()
	stored := `{"v":1,"nonce":"n","session":"a","future":{"x":[1, 2]},
		"load":{"cells":1,"gpu":2},"next":{"cells":3,"gpu":4}}`
	if _, err := s.Create(ctx, key, []byte(stored)); err != nil {
		t.Fatal(err)
	}
	rec, err := bucket.ReadRecord[lease](ctx, s, key)
	if err != nil {
		t.Fatal(err)
	}
	rec.Value.Load.Cells, rec.Value.Next = 7, nil
	if _, err := bucket.SwapRecord(ctx, s, key, rec, rec.Value); err != nil {
		t.Fatal(err)
	}
	body, _, _ := s.Get(ctx, key)
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "nonce")
	text, _ := json.Marshal(got)
	want := `{"future":{"x":[1,2]},"load":{"cells":7,"gpu":2},"session":"a","v":1}`
	if string(text) != want {
		t.Errorf("rewritten as %s, want %s", text, want)
	}
}

func TestReaderRefuses(t *testing.T) {
	for body, want := range map[string]error{
		`{"v":2,"nonce":"n"}`:             bucket.ErrNewerRecord,
		`{"v":1}`:                         bucket.ErrCorruptRecord,
		`{"nonce":"n"}`:                   bucket.ErrCorruptRecord,
		`{"v":0,"nonce":"n"}`:             bucket.ErrCorruptRecord,
		`{"v":1,"nonce":"n","session":1}`: bucket.ErrCorruptRecord,
		`null`:                            bucket.ErrCorruptRecord,
		`[]`:                              bucket.ErrCorruptRecord,
		``:                                bucket.ErrCorruptRecord,
	} {
		s := mem.New()
		s.Create(t.Context(), key, []byte(body))
		if _, err := bucket.ReadRecord[lease](t.Context(), s, key); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}

// Each row says what happens to the swap and to the first reads after it, and
// what the caller must hear.
func TestAmbiguousWritesAreSettledByReading(t *testing.T) {
	lost := faulty.Rule{Op: faulty.Swap, After: faulty.ErrLost, Times: 1}
	cut := faulty.Rule{Op: faulty.Swap, Before: faulty.ErrLost, Times: 1}
	noRead := faulty.Rule{Op: faulty.Get, Before: faulty.ErrLost}
	for _, row := range []struct {
		name  string
		rules []faulty.Rule
		rival bool
		want  bucket.Outcome
	}{
		{"reply lost", []faulty.Rule{lost}, false, bucket.Applied},
		{"reply lost, one read fails", []faulty.Rule{lost, {Op: faulty.Get, Before: faulty.ErrLost, Times: 1}}, false, bucket.Applied},
		{"reply lost, no read succeeds", []faulty.Rule{lost, noRead}, false, bucket.Ambiguous},
		{"request lost", []faulty.Rule{cut}, false, bucket.Ambiguous},
		{"request lost, rival wrote", []faulty.Rule{cut}, true, bucket.Rejected},
		{"never sent", []faulty.Rule{{Op: faulty.Swap, Before: bucket.ErrNotSent, Times: 1}}, false, bucket.Failed},
		{"hidden retry rejects our own write", []faulty.Rule{{Op: faulty.Swap, After: bucket.ErrPrecondition, Times: 1}}, false, bucket.Applied},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, inner := t.Context(), mem.New()
				s := faulty.New(inner)
				old, err := bucket.CreateRecord(ctx, s, key, lease{Session: "old"})
				if err != nil {
					t.Fatal(err)
				}
				if row.rival {
					bucket.SwapRecord(ctx, inner, key, old, lease{Session: "rival"})
				}
				for _, rule := range row.rules {
					s.Add(rule)
				}
				_, err = bucket.SwapRecord(ctx, s, key, old, lease{Session: "new"})
				if got := bucket.OutcomeOf(err); got != row.want {
					t.Errorf("%v (%v), want %v", got, err, row.want)
				}
			})
		})
	}
}

func TestAmbiguousCreate(t *testing.T) {
	s := faulty.New(mem.New())
	s.Add(faulty.Rule{Op: faulty.Create, Before: faulty.ErrLost, Times: 1})
	_, err := bucket.CreateRecord(t.Context(), s, key, lease{})
	if bucket.OutcomeOf(err) != bucket.Ambiguous || !errors.Is(err, faulty.ErrLost) {
		t.Errorf("absent after a lost create: %v, want still unknown", err)
	}
	s.Add(faulty.Rule{Op: faulty.Create, After: faulty.ErrLost, Times: 1})
	if _, err = bucket.CreateRecord(t.Context(), s, key, lease{}); err != nil {
		t.Errorf("reply lost: %v, want applied", err)
	}
}

func TestSettlingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulty.New(mem.New())
		old, _ := bucket.CreateRecord(t.Context(), s, key, lease{})
		ctx, cancel := context.WithCancel(t.Context())
		s.Add(faulty.Rule{Op: faulty.Swap, After: faulty.ErrLost, Hook: func(string) { cancel() }})
		if _, err := bucket.SwapRecord(ctx, s, key, old, lease{}); bucket.OutcomeOf(err) != bucket.Ambiguous {
			t.Errorf("%v, want still unknown", err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"nonce":"n","session":"a","load":{"cells":1,"x":{}},"y":null}`))
	f.Add([]byte(`{"V":1,"Nonce":"n","SESSION":"a","Load":null}`))
	f.Add([]byte(`{"v":2,"nonce":"n"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ctx, s := t.Context(), mem.New()
		s.Put(ctx, key, body)
		rec, err := bucket.ReadRecord[lease](ctx, s, key)
		if err != nil {
			return
		}
		// Whatever could be read can be rewritten, and reads back as the same value.
		next, err := bucket.SwapRecord(ctx, s, key, rec, rec.Value)
		if err != nil {
			if strings.Contains(err.Error(), "larger than") {
				return
			}
			t.Fatalf("rewrite: %v", err)
		}
		again, err := bucket.ReadRecord[lease](ctx, s, key)
		if err != nil {
			t.Fatalf("read back: %v", err)
		}
		was, _ := json.Marshal(rec.Value)
		is, _ := json.Marshal(again.Value)
		if string(was) != string(is) || again.Nonce != next.Nonce {
			t.Errorf("%s became %s", was, is)
		}
	})
}
