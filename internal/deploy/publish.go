package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"celld/internal/bucket"
)

const (
	// pointerKey names the active deployment.
	pointerKey = "deploy/current.json"
	// parallel is how many blobs travel at once.
	parallel = 8
	// maxRaces bounds how often a publication gives way to another one; then it
	// is an error, because somebody deploys in a loop.
	maxRaces = 10
)

// Pointer says which deployment is active.
type Pointer struct {
	Version    string `json:"version"`
	Previous   string `json:"previous,omitempty"`
	DeployedMS int64  `json:"deployed_ms"`
}

// Checker loads a script in the real engine without serving it. It returns the
// names that the main module exports. An error is the script's own: its
// syntax, an import that is missing, what it threw at its top level.
type Checker interface {
	Check(ctx context.Context, d *Deployment, s *Script) (exports []string, err error)
}

// ErrRejected: the deployment was refused before anything was uploaded; the
// active one is untouched.
var ErrRejected = errors.New("the deployment was rejected, the active one is unchanged")

// Publish makes d the active deployment. check may be nil where no engine is at
// hand; then nodes find out. Publishing the active version again is allowed,
// and makes nodes that refused it try again.
func Publish(ctx context.Context, store bucket.Store, d *Deployment, check Checker) (Pointer, error) {
	// Load it in the engine: nothing that cannot start is uploaded.
	if err := d.Check(ctx, check); err != nil {
		return Pointer{}, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	// Blobs before the manifest that names them.
	if err := uploadBlobs(ctx, store, d); err != nil {
		return Pointer{}, err
	}
	// The manifest before the pointer that names it.
	if _, err := store.Put(ctx, manifestKey(d.Version), d.Manifest.encode()); err != nil {
		return Pointer{}, fmt.Errorf("upload the manifest: %w", err)
	}
	// Only now is anything visible to nodes.
	return movePointer(ctx, store, d)
}

// Check holds every script against the engine.
func (d *Deployment) Check(ctx context.Context, check Checker) error {
	if check == nil {
		return nil
	}
	for i := range d.Manifest.Scripts {
		s := &d.Manifest.Scripts[i]
		exports, err := check.Check(ctx, d, s)
		if err != nil {
			return fmt.Errorf("Worker %q does not start: %w", s.Name, err)
		}
		if err := d.holdClasses(s, exports); err != nil {
			return err
		}
	}
	return nil
}

// holdClasses wants every class that a binding of any script names.
func (d *Deployment) holdClasses(s *Script, exports []string) error {
	have := map[string]bool{}
	for _, e := range exports {
		have[e] = true
	}
	for i := range d.Manifest.Scripts {
		from := &d.Manifest.Scripts[i]
		for _, b := range from.Bindings {
			there := b.Script
			if there == "" {
				there = from.Name
			}
			if b.Type == DurableObject && there == s.Name && !have[b.Class] {
				return fmt.Errorf("binding %q of Worker %q names class %q, which the main module %s of Worker %q does not export (it exports %v)",
					b.Name, from.Name, b.Class, s.Main, s.Name, exports)
			}
		}
	}
	return nil
}

func uploadBlobs(ctx context.Context, store bucket.Store, d *Deployment) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for sum, body := range d.blobs {
		g.Go(func() error {
			if err := uploadBlob(ctx, store, sum, body); err != nil {
				return fmt.Errorf("upload blob %s: %w", sum, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// uploadBlob writes a blob unless it is there, and whole. One that was damaged
// is written anew: publishing again repairs.
func uploadBlob(ctx context.Context, store bucket.Store, sum Digest, body []byte) error {
	have, err := readBlob(ctx, store, sum, int64(len(body)))
	if err == nil && digest(have) == sum {
		return nil
	}
	if err != nil && !errors.Is(err, bucket.ErrNotFound) {
		return err
	}
	_, err = store.Put(ctx, sum.key(), body)
	return err
}

// readBlob reads at most one byte more than size, so that a blob that grew is noticed
// and not taken into memory.
func readBlob(ctx context.Context, store bucket.Store, sum Digest, size int64) ([]byte, error) {
	r, _, err := store.Open(ctx, sum.key(), 0, size+1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, size+1))
}

// movePointer names d the active deployment. The last one who deploys wins; but
// nobody may move data away from under its class.
func movePointer(ctx context.Context, store bucket.Store, d *Deployment) (Pointer, error) {
	var last error
	for range maxRaces {
		old, err := bucket.ReadRecord[Pointer](ctx, store, pointerKey)
		if err != nil && !errors.Is(err, bucket.ErrNotFound) {
			return Pointer{}, err
		}
		next := Pointer{Version: d.Version, DeployedMS: time.Now().UnixMilli()}
		if old != nil {
			next.Previous = old.Value.Version
			if err := keepsData(ctx, store, old.Value.Version, d); err != nil {
				return Pointer{}, fmt.Errorf("%w: %w", ErrRejected, err)
			}
			_, err = bucket.SwapRecord(ctx, store, pointerKey, old, next)
		} else {
			_, err = bucket.CreateRecord(ctx, store, pointerKey, next)
		}
		switch bucket.OutcomeOf(err) {
		case bucket.Applied:
			return next, nil
		case bucket.Rejected:
			last = err // somebody else deployed meanwhile: look again
		default:
			return Pointer{}, fmt.Errorf("move the pointer: %w", err)
		}
	}
	return Pointer{}, fmt.Errorf("move the pointer: others deployed %d times meanwhile: %w", maxRaces, last)
}

// keepsData refuses a deployment in which a class that is there before and after
// would find another class's data, or none.
func keepsData(ctx context.Context, store bucket.Store, active string, d *Deployment) error {
	m, err := readManifest(ctx, store, active)
	if err != nil {
		return nil // an active deployment that nobody can read holds nothing back
	}
	for i := range m.Scripts {
		before := &m.Scripts[i]
		after := d.Script(before.Name)
		if after == nil {
			continue
		}
		for _, was := range before.Classes {
			for _, is := range after.Classes {
				if was.Name == is.Name && was.Namespace != is.Namespace && !renamedFrom(after, was) {
					return fmt.Errorf("class %q of Worker %q keeps its data under %q, and this deployment would look under %q: keep the migrations' history, and the order of the Workers (-c)",
						was.Name, before.Name, was.Namespace, is.Namespace)
				}
			}
		}
	}
	return nil
}

// renamedFrom tells whether the data of a class is reached under another name
// now, or the class was deleted and born again: both are said by a migration.
func renamedFrom(after *Script, was Class) bool {
	for _, c := range after.Classes {
		if c.Namespace == was.Namespace || c.Name == was.Name && len(c.Namespace) > len(was.Name) && c.Namespace[len(was.Name)] == '.' {
			return true
		}
	}
	return false
}

// Current is the pointer; the error is bucket.ErrNotFound if nothing was deployed.
func Current(ctx context.Context, store bucket.Store) (Pointer, error) {
	rec, err := bucket.ReadRecord[Pointer](ctx, store, pointerKey)
	if err != nil {
		return Pointer{}, err
	}
	return rec.Value, nil
}

// Load reads the active deployment and checks every byte of it.
func Load(ctx context.Context, store bucket.Store) (*Deployment, error) {
	p, err := Current(ctx, store)
	if err != nil {
		return nil, err
	}
	return LoadVersion(ctx, store, p.Version)
}

// Tampered: bytes in the bucket are not those that were deployed.
type Tampered struct {
	What      string // "module index.js of Worker web"
	Key       string
	Want, Got Digest
}

func (t *Tampered) Error() string {
	return fmt.Sprintf("%s was changed in the bucket: %s should have SHA-256 %s and has %s; deploy again to repair it", t.What, t.Key, t.Want, t.Got)
}

// LoadVersion reads one deployment and checks every byte of it.
func LoadVersion(ctx context.Context, store bucket.Store, v string) (*Deployment, error) {
	m, err := readManifest(ctx, store, v)
	if err != nil {
		return nil, err
	}
	d := &Deployment{Version: v, Manifest: *m, blobs: map[Digest][]byte{}}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for what, blob := range m.blobs() {
		g.Go(func() error {
			body, err := loadBlob(ctx, store, what, blob)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			d.blobs[blob.SHA256] = body
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("load deployment %s: %w", v, err)
	}
	return d, nil
}

// blobs yields every blob of the manifest, with a name for people.
func (m *Manifest) blobs() func(yield func(string, Blob) bool) {
	return func(yield func(string, Blob) bool) {
		for i := range m.Scripts {
			s := &m.Scripts[i]
			for _, mod := range s.Modules {
				what := fmt.Sprintf("module %s of Worker %s", mod.Name, s.Name)
				if !yield(what, Blob{mod.Size, mod.SHA256}) {
					return
				}
				if mod.SourceMap != nil && !yield("the source map of "+what, *mod.SourceMap) {
					return
				}
			}
		}
	}
}

func loadBlob(ctx context.Context, store bucket.Store, what string, blob Blob) ([]byte, error) {
	body, err := readBlob(ctx, store, blob.SHA256, blob.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if got := digest(body); got != blob.SHA256 {
		return nil, &Tampered{What: what, Key: blob.SHA256.key(), Want: blob.SHA256, Got: got}
	}
	return body, nil
}

func readManifest(ctx context.Context, store bucket.Store, v string) (*Manifest, error) {
	if !Digest(v + v).valid() { // half a digest
		return nil, fmt.Errorf("%w: the pointer names %q, which is no version", ErrUnfit, v)
	}
	key := manifestKey(v)
	r, _, err := store.Open(ctx, key, 0, maxManifest+1)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	defer r.Close()
	body, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	if got := version(body); got != v {
		return nil, &Tampered{What: "the manifest of deployment " + v, Key: key, Want: Digest(v), Got: Digest(got)}
	}
	m, err := decodeManifest(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return m, nil
}
