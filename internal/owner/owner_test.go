package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"celld/internal/bucket"
	"celld/internal/call"
	"celld/internal/id"
)

const cell = id.Cell("Counter:00ff")

var me = Self{Session: "a.1", Node: "a", Address: "10.0.0.1:1"}

// world is a bucket with one record and a list of sessions, and the trace of
// everything that was asked of them.
type world struct {
	bucket.Store // the rest is not used here
	mu           sync.Mutex
	body         []byte
	version      int
	faults       map[string][]fault // by verb; one is used up by each operation
	leases       map[id.Session]bool
	sealErr      []error
	onSeal       func()
	late         []byte
	trace        []string
}

// fault is what happens to one operation.
type fault int

const (
	none     fault = iota
	refused        // nothing happens, unclear error
	lost           // it happens, the reply is lost
	straggle       // the reply is lost, and it happens only after the next read

)

var errUnclear = errors.New("connection reset")

func (w *world) note(what string) fault {
	w.trace = append(w.trace, what)
	if q := w.faults[what]; len(q) > 0 {
		w.faults[what] = q[1:]
		return q[0]
	}
	return none
}

func (w *world) Get(_ context.Context, key string) ([]byte, bucket.Version, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key != Key(cell) {
		return nil, "", fmt.Errorf("unexpected key %s", key)
	}
	if w.note("get") != none {
		return nil, "", errUnclear
	}
	if w.body == nil {
		return nil, "", bucket.ErrNotFound
	}
	body, ver := w.body, w.ver()
	if w.late != nil {
		w.body, w.version, w.late = w.late, w.version+1, nil
	}
	return body, ver, nil
}

func (w *world) ver() bucket.Version { return bucket.Version(strconv.Itoa(w.version)) }

func (w *world) Create(_ context.Context, _ string, body []byte) (bucket.Version, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write("create", body, w.body == nil)
}

func (w *world) Swap(_ context.Context, _ string, body []byte, old bucket.Version) (bucket.Version, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write("swap", body, w.body != nil && w.ver() == old)
}

func (w *world) write(verb string, body []byte, ok bool) (bucket.Version, error) {
	f := w.note(verb)
	if f == refused {
		return "", errUnclear
	}
	if !ok {
		return "", bucket.ErrPrecondition
	}
	if f == straggle {
		w.late = body
		return "", errUnclear
	}
	w.body, w.version = body, w.version+1
	if f == lost {
		return "", errUnclear
	}
	return w.ver(), nil
}

func (w *world) Lease(_ context.Context, s id.Session) (Lease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("lease " + string(s))
	return Lease{Live: w.leases[s]}, nil
}

func (w *world) Seal(_ context.Context, s id.Session) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("seal " + string(s))
	if w.onSeal != nil {
		w.onSeal()
	}
	if len(w.sealErr) > 0 {
		err := w.sealErr[0]
		w.sealErr = w.sealErr[1:]
		return err
	}
	return nil
}

func (w *world) set(s id.Session, epoch id.Epoch, state State) {
	w.version++
	w.body = encode(Record{Session: s, Node: s.Node(), Address: "old:1", Epoch: epoch, State: state})
}

func encode(r Record) []byte {
	body, err := json.Marshal(map[string]any{"v": 1, "nonce": "theirs", "session": r.Session, "node": r.Node,
		"address": r.Address, "epoch": r.Epoch, "state": r.State, "from_the_future": true})
	if err != nil {
		panic(err)
	}
	return body
}

func (w *world) record(t *testing.T) Record {
	t.Helper()
	r, err := Read(t.Context(), &world{body: w.body}, cell)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAcquire(t *testing.T) {
	tests := []struct {
		name   string
		setup  func(*world)
		likely id.Session
		want   string // "epoch N" or the error's start
		trace  string
	}{
		{"nobody ever owned it", func(w *world) {}, "", "epoch 1", "get, create"},
		{"released", func(w *world) { w.set("b.1", 4, Released) }, "", "epoch 5", "get, swap"},
		{"local wake advances the epoch", func(w *world) { w.set("a.1", 4, Owned) }, "", "epoch 5", "get, swap"},
		{"own earlier session is sealed like any other", func(w *world) { w.set("a.0", 4, Owned) }, "",
			"epoch 5", "get, lease a.0, seal a.0, swap"},
		{"the owner lives", func(w *world) { w.set("b.1", 4, Owned); w.leases["b.1"] = true }, "",
			"cell Counter:00ff is owned by b.1 at epoch 4 (old:1)", "get, lease b.1"},
		{"the owner is dead: seal, then take", func(w *world) { w.set("b.1", 4, Owned) }, "",
			"epoch 5", "get, lease b.1, seal b.1, swap"},
		{"the owner renews before the seal", func(w *world) {
			w.set("b.1", 4, Owned)
			w.sealErr = []error{ErrLives}
			w.onSeal = func() { w.leases["b.1"] = true }
		}, "", "cell Counter:00ff is owned by b.1", "get, lease b.1, seal b.1, get, lease b.1"},
		{"no complete follower: never restore past the seal", func(w *world) {
			w.set("b.1", 4, Owned)
			w.sealErr = []error{errors.New("no member of the term has the tail")}
		}, "", "acquire Counter:00ff: seal b.1: no member", "get, lease b.1, seal b.1"},
		{"another node is faster between seal and write", func(w *world) {
			w.set("b.1", 4, Owned)
			w.leases["c.1"] = true
			w.onSeal = func() { w.set("c.1", 5, Owned) }
		}, "", "cell Counter:00ff is owned by c.1 at epoch 5", "get, lease b.1, seal b.1, swap, get, get, lease c.1"},
		{"the reply to the create is lost", func(w *world) { w.faults["create"] = []fault{lost} }, "",
			"epoch 1", "get, create, get"},
		{"the create is lost", func(w *world) { w.faults["create"] = []fault{refused} }, "",
			"epoch 1", "get, create, get, get, create"},
		{"the reply to the swap is lost", func(w *world) { w.set("a.1", 4, Owned); w.faults["swap"] = []fault{lost} }, "",
			"epoch 5", "get, swap, get"},
		{"unclear for ever", func(w *world) {
			w.set("a.1", 4, Owned)
			w.faults["swap"] = slices.Repeat([]fault{refused}, 9)
		}, "", "acquire Counter:00ff: write record cells/Counter:00ff/owner.json: still unknown",
			"get, swap, get, get, swap, get, get, swap, get, get, swap, get, get, swap, get"},
		{"the record cannot be read", func(w *world) { w.faults["get"] = []fault{refused} }, "",
			"acquire Counter:00ff: read record cells/Counter:00ff/owner.json: connection reset", "get"},
		{"the record is from the future", func(w *world) {
			w.version, w.body = 1, []byte(`{"v":2,"nonce":"x","session":"b.1","epoch":3,"state":"owned"}`)
		}, "", "acquire Counter:00ff: read record cells/Counter:00ff/owner.json: the record was written by a newer version", "get"},
		{"the record is broken", func(w *world) { w.set("", 0, "") }, "",
			"acquire Counter:00ff: read record cells/Counter:00ff/owner.json: the record is not valid", "get"},
		{"a straggler of an unclear write lands later", func(w *world) {
			w.set("a.1", 4, Owned)
			w.faults["swap"] = []fault{straggle}
		}, "", "epoch 6", "get, swap, get, get, swap"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				tt.setup(w)
				got := acquire(t.Context(), w, tt.likely)
				if !strings.HasPrefix(got, tt.want) {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				if trace := strings.Join(w.trace, ", "); trace != tt.trace {
					t.Errorf("trace %q, want %q", trace, tt.trace)
				}
			})
		})
	}
}

func newWorld() *world {
	return &world{faults: map[string][]fault{}, leases: map[id.Session]bool{}}
}

func acquire(ctx context.Context, w *world, likely id.Session) string {
	held, err := New(w, me, w).Acquire(ctx, cell, likely)
	if err != nil {
		return err.Error()
	}
	if rec, err := Read(ctx, &world{body: w.body}, cell); err != nil || !rec.names(me.Session, held.Epoch) || rec.Address != me.Address {
		return fmt.Sprintf("acquired epoch %d but the record says %s", held.Epoch, w.body)
	}
	return fmt.Sprintf("epoch %d", held.Epoch)
}

// slowWorld takes a second for each read, so that two in a row can be told from two at once.
type slowWorld struct{ *world }

func (s slowWorld) Get(ctx context.Context, key string) ([]byte, bucket.Version, error) {
	time.Sleep(time.Second)
	return s.world.Get(ctx, key)
}

func (s slowWorld) Lease(ctx context.Context, x id.Session) (Lease, error) {
	time.Sleep(time.Second)
	return s.world.Lease(ctx, x)
}

func TestLikelyOwnerIsReadBeside(t *testing.T) {
	for _, tt := range []struct {
		likely id.Session
		want   time.Duration
	}{{"b.1", time.Second}, {"", 2 * time.Second}, {"c.1", 2 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			w := slowWorld{newWorld()}
			w.set("b.1", 4, Owned)
			w.leases["b.1"] = true
			start := time.Now()
			_, err := New(w, me, w).Acquire(t.Context(), cell, tt.likely)
			var remote *Remote
			if !errors.As(err, &remote) || !errors.Is(err, call.ErrNotStarted) {
				t.Errorf("got %v, want a remote owner", err)
			}
			if took := time.Since(start); took != tt.want {
				t.Errorf("guess %q took %v, want %v", tt.likely, took, tt.want)
			}
		})
	}
}

// Invariants 1 and 3: of many claimants one wins each epoch.
func TestOneWinnerForEachEpoch(t *testing.T) {
	w := newWorld()
	w.faults["swap"] = []fault{lost, none, refused, none, lost, lost}
	var mu sync.Mutex
	won := map[id.Epoch]id.Session{}
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			self := Self{Session: id.Session(fmt.Sprintf("n%d.1", n)), Node: id.Node(fmt.Sprintf("n%d", n))}
			held, err := New(w, self, w).Acquire(context.Background(), cell, "")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other, taken := won[held.Epoch]; taken {
				t.Errorf("epoch %d was won by %s and %s", held.Epoch, other, self.Session)
			}
			won[held.Epoch] = self.Session
		})
	}
	wg.Wait()
	if len(won) != 20 {
		t.Errorf("%d epochs were won by 20 claimants", len(won))
	}
}

func TestVerify(t *testing.T) {
	w := newWorld()
	r := New(w, me, w)
	check := func(epoch id.Epoch, want string) {
		t.Helper()
		got := "ok"
		if err := r.Verify(t.Context(), cell, epoch); err != nil {
			got = err.Error()
			var s *Superseded
			if errors.As(err, &s) == errors.Is(err, errUnclear) {
				t.Errorf("%v: superseded and unclear must be told apart", err)
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("epoch %d: got %q, want %q", epoch, got, want)
		}
	}
	check(1, "its ownership record is gone")
	w.set("a.1", 3, Owned)
	check(3, "ok")
	check(2, "the record names a.1 at epoch 3 (owned)")
	w.set("a.1", 3, Released)
	check(3, "(released)")
	w.set("b.1", 3, Owned)
	check(3, "the record names b.1 at epoch 3")
	w.faults["get"] = []fault{refused}
	check(3, "connection reset")
}

func TestRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		faults []fault
		stolen bool
		trace  string
	}{
		"plain":              {nil, false, "get, swap"},
		"reply lost":         {[]fault{lost}, false, "get, swap, get"},
		"request lost":       {[]fault{refused}, false, "get, swap, get, get, swap"},
		"someone else's now": {nil, true, "get"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			r := New(w, me, w)
			held, err := r.Acquire(t.Context(), cell, "")
			if err != nil {
				t.Fatal(err)
			}
			if tt.stolen {
				w.set("b.1", 9, Owned)
			}
			w.trace, w.faults["swap"] = nil, tt.faults
			if err := r.Release(t.Context(), cell, held.Epoch); err != nil {
				t.Fatal(err)
			}
			rec := w.record(t)
			if tt.stolen != (rec.State == Owned) {
				t.Errorf("the record is %+v", rec)
			}
			if trace := strings.Join(w.trace, ", "); trace != tt.trace {
				t.Errorf("trace %q, want %q", trace, tt.trace)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(Record{Session: "a.1", Node: "a", Epoch: 7, State: Owned}))
	f.Add([]byte(`{"v":9}`))
	f.Add([]byte(`{"v":1,"nonce":"n","epoch":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Read(t.Context(), &world{body: body}, cell)
		if err == nil && (r.Session == "" || r.Epoch == 0) {
			t.Errorf("accepted %+v", r)
		}
	})
}
