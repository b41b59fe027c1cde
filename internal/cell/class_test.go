package cell_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"celld/internal/call"
	"celld/internal/cell"
	"celld/internal/cell/goengine"
	"celld/internal/storage"
)

// engine is the one class of the stories. A request's method is the operation
// and its URL the argument.
func (w *world) engine(n *node) goengine.Engine {
	return goengine.Engine{"Counter": {
		New: func(_ context.Context, c *goengine.Cell) error {
			return w.construct(c)
		},
		Fetch: func(ctx context.Context, c *goengine.Cell, r *call.Request) (*call.Response, error) {
			text, err := w.operate(ctx, c, r.Method, r.URL)
			if err != nil {
				return nil, err
			}
			return goengine.Text(text), nil
		},
		Alarm: func(ctx context.Context, c *goengine.Cell, a cell.AlarmInfo) error {
			return w.alarm(ctx, n, c, a)
		},
	}}
}

func (w *world) construct(c *goengine.Cell) error {
	if mode := w.takeMode("construct"); mode != "" {
		return errors.New(mode)
	}
	return nil
}

// takeMode is what a story told the next handler to do.
func (w *world) takeMode(of string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.modes[of]) == 0 {
		return ""
	}
	mode := w.modes[of][0]
	w.modes[of] = w.modes[of][1:]
	return mode
}

func (w *world) operate(ctx context.Context, c *goengine.Cell, op, arg string) (text string, err error) {
	switch op {
	case "get":
		err = c.Turn(func(st *storage.Storage) error { n, err := get(st); text = strconv.Itoa(n); return err })
	case "inc":
		err = c.Turn(func(st *storage.Storage) error { n, err := inc(st); text = strconv.Itoa(n); return err })
	case "inc-hold": // writes, then waits to be let go
		if text, err = w.operate(ctx, c, "inc", ""); err == nil {
			err = w.wait(ctx, arg)
		}
	case "hold":
		err = w.wait(ctx, arg)
	case "linger": // work without a caller
		c.Go(func(ctx context.Context) { w.wait(ctx, arg) })
	case "throw":
		err = errors.New(arg)
	case "reset":
		c.Reset(errors.New(arg))
		err = errors.New("still here")
	case "epoch":
		text = c.Epoch().Dir()
	case "resting": // the database is closed
		err = c.Turn(func(st *storage.Storage) error { text = strconv.FormatBool(st.Resting()); return nil })
	case "sync":
		return "synced", w.sync(ctx, c)
	case "begin", "commit", "unfinished", "finished":
		err = c.Turn(func(st *storage.Storage) error { return transact(c, st, op) })
	case "arm":
		err = c.Turn(func(st *storage.Storage) error { return setAlarm(st, arg) })
	case "armed":
		err = c.Turn(func(st *storage.Storage) (err error) { text, err = getAlarm(st); return err })
	case "disarm":
		err = c.Turn(func(st *storage.Storage) error { return deleteAlarm(st) })
	default:
		err = fmt.Errorf("no operation %q", op)
	}
	return text, err
}

func (w *world) wait(ctx context.Context, name string) error {
	select {
	case <-w.held(name):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *world) sync(ctx context.Context, c *goengine.Cell) error {
	done := make(chan error, 1)
	if err := c.Turn(func(*storage.Storage) error {
		c.Sync(func(err error) { done <- err })
		return nil
	}); err != nil {
		return err
	}
	return <-done
}

// alarm does what the story's modes say, "ok" if they say nothing.
func (w *world) alarm(ctx context.Context, n *node, c *goengine.Cell, a cell.AlarmInfo) error {
	w.note(fmt.Sprintf("%s:%s#%d", n.session, c.ID().Object(), a.RetryCount))
	mode, arg, _ := strings.Cut(w.takeMode("alarm"), " ")
	_, err := w.operate(ctx, c, "inc", "")
	if err != nil {
		return err
	}
	switch mode {
	case "":
		return nil
	case "throw":
		return errors.New("the handler failed")
	case "armed":
		text, err := w.operate(ctx, c, "armed", "")
		w.note("armed=" + text)
		return err
	default:
		_, err := w.operate(ctx, c, mode, arg)
		return err
	}
}

// The storage of the stories.

func get(st *storage.Storage) (int, error) {
	v, err := st.Get("n")
	if err != nil || v == nil {
		return 0, err
	}
	return strconv.Atoi(string(v))
}

func inc(st *storage.Storage) (int, error) {
	n, err := get(st)
	if err != nil {
		return 0, err
	}
	return n + 1, st.Put("n", []byte(strconv.Itoa(n+1)))
}

// transact begins and ends a transaction, or a write that is half read.
func transact(c *goengine.Cell, st *storage.Storage, op string) (err error) {
	switch op {
	case "begin":
		c.Value, err = st.Begin()
	case "commit":
		err = st.End(c.Value.(string), true)
	case "unfinished":
		if _, err = st.Exec("CREATE TABLE IF NOT EXISTS t (x)"); err != nil {
			return err
		}
		c.Value, err = st.Exec("INSERT INTO t VALUES (1), (2) RETURNING x")
	default:
		c.Value.(*storage.Cursor).Close()
	}
	return err
}

func setAlarm(st *storage.Storage, arg string) error {
	d, err := time.ParseDuration(arg)
	if err != nil {
		return err
	}
	return st.SetAlarm(storage.AlarmRow{At: time.Now().Add(d)})
}

func getAlarm(st *storage.Storage) (string, error) {
	row, err := st.Alarm()
	if err != nil || row.At.IsZero() || row.Running {
		return "none", err
	}
	return time.Until(row.At).Round(time.Millisecond).String(), nil
}

func deleteAlarm(st *storage.Storage) error { return st.SetAlarm(storage.AlarmRow{}) }
