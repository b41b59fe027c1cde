package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"celld/internal/bucket"
	"celld/internal/id"
	"celld/internal/storage"
)

// FakeReplication replicates whole databases, which is slow and simple.
type FakeReplication struct{ Store bucket.Store }

func (f FakeReplication) Open(ctx context.Context, cell id.Cell, epoch id.Epoch, dir string, st *storage.Storage) (Stream, id.TXID, error) {
	d := &fakeStream{store: f.Store, cell: cell, epoch: epoch, path: st.Path(), bodies: map[id.TXID][]byte{}}
	if err := os.RemoveAll(dir); err != nil {
		return nil, 0, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, 0, err
	}
	err := d.restore(ctx)
	return d, d.pos, err
}

// fakeStream replicates whole databases: file and log as they are.
type fakeStream struct {
	store bucket.Store
	cell  id.Cell
	epoch id.Epoch
	path  string
	pos   id.TXID

	mu      sync.Mutex
	pending []Segment
	bodies  map[id.TXID][]byte
}

type fakeImage struct {
	Pos  id.TXID
	File []byte
	Log  []byte
}

func (d *fakeStream) key(e id.Epoch, pos id.TXID) string {
	return fmt.Sprintf("cells/%s/ltx/%s/0/%s-%s.ltx", d.cell.Segment(), e.Dir(), pos, pos)
}

func (d *fakeStream) restore(ctx context.Context) error {
	for e := d.epoch - 1; e > 0; e-- {
		last := ""
		for o, err := range d.store.List(ctx, fmt.Sprintf("cells/%s/ltx/%s/", d.cell.Segment(), e.Dir()), "") {
			if err != nil {
				return err
			}
			last = o.Key
		}
		if last == "" {
			continue
		}
		body, _, err := d.store.Get(ctx, last)
		if err != nil {
			return err
		}
		var im fakeImage
		if err := json.Unmarshal(body, &im); err != nil {
			return err
		}
		d.pos = im.Pos
		return errors.Join(os.WriteFile(d.path, im.File, 0o600), os.WriteFile(d.path+"-wal", im.Log, 0o600))
	}
	return nil
}

func (d *fakeStream) Capture() (id.TXID, error) {
	d.pos++
	im := fakeImage{Pos: d.pos}
	var err, err2 error
	im.File, err = os.ReadFile(filepath.Clean(d.path))
	im.Log, err2 = os.ReadFile(d.path + "-wal")
	body, err3 := json.Marshal(im)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bodies[d.pos] = body
	d.pending = append(d.pending, Segment{Min: d.pos, Max: d.pos})
	return d.pos, errors.Join(err, err2, err3)
}

func (d *fakeStream) Take() []Segment {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pending
	d.pending = nil
	return p
}

func (d *fakeStream) Upload(ctx context.Context, segs []Segment) error {
	for _, s := range segs {
		d.mu.Lock()
		body := d.bodies[s.Max]
		d.mu.Unlock()
		if _, err := d.store.Put(ctx, d.key(d.epoch, s.Max), body); err != nil {
			return err
		}
	}
	return nil
}

func (d *fakeStream) Rest() error  { return nil }
func (d *fakeStream) Close() error { return nil }
