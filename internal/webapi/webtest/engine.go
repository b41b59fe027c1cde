// Package webtest runs the web platform's API in V8 without the rest of the
// engine: the bundle of runtime/src/web, host functions of given tables, and a
// loop that settles what they promised. For tests.
package webtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"celld/internal/hostcall"
	"celld/internal/v8"
	"celld/runtime/build/bundle"
)

// Engine is one isolate with the web platform on its global object.
type Engine struct {
	t     testing.TB
	iso   *v8.Isolate
	ctx   int
	ops   []hostcall.Op
	actor actor

	mu     sync.Mutex
	done   []result
	signal chan struct{}
	Log    []string // lines of console
}

type result struct {
	promise uint32
	value   hostcall.Value
	err     error
}

// actor is the request that all host calls belong to.
type actor struct{ ctx context.Context }

func (a actor) Context() context.Context { return a.ctx }

// platform is evaluated before anything that the prelude imports.
const platform = `
import { install } from "%[1]s/src/web/index.ts";
import { errorOf } from "%[1]s/src/web/exception.ts";
import { async, sync } from "%[1]s/src/host.ts";
import * as http from "%[1]s/src/web/http.ts";
install(globalThis);
const wait = async("test.wait");
const live = new Set();
let last = 0;
const timer = (f, ms, again, args) => {
  const id = ++last;
  live.add(id);
  const run = () => wait(Number(ms) || 0).then(() => {
    if (!live.has(id)) return;
    if (!again) live.delete(id);
    try { f(...args); } catch (e) { reportError(e); }
    if (again) run();
  });
  run();
  return id;
};
globalThis.setTimeout = (f, ms, ...args) => timer(f, ms, false, args);
globalThis.setInterval = (f, ms, ...args) => timer(f, ms, true, args);
globalThis.clearTimeout = globalThis.clearInterval = (id) => { live.delete(id); };
globalThis.http = http;
globalThis.makeError = errorOf;
globalThis.finish = sync("test.finish");
`

// New starts an isolate with the platform installed; prelude is JavaScript or
// TypeScript that is bundled behind it, and may import.
func New(t testing.TB, prelude string, tables ...[]hostcall.Op) *Engine {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{t: t, actor: actor{ctx}, signal: make(chan struct{}, 1)}
	t.Cleanup(cancel)
	e.ops = append([]hostcall.Op{{}}, e.own()...)
	for _, l := range tables {
		e.ops = append(e.ops, l...)
	}
	numbers := map[string]int{}
	for n, op := range e.ops {
		numbers[op.Name] = n
	}
	js := e.bundle(prelude)
	list, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	e.iso = v8.New(v8.Options{})
	t.Cleanup(e.iso.Close)
	e.iso.Host = e.host
	e.iso.Unhandled = func(_ int, msg string) { t.Log("unhandled:", msg) }
	e.ctx = e.iso.NewContext(false)
	if _, err := e.iso.Eval(e.ctx, "globalThis.__ops = "+string(list)+";\n"+js, "runtime.js", 0); err != nil {
		t.Fatal(err)
	}
	f, err := e.iso.Eval(e.ctx, "makeError", "make.js", v8.WantHandle)
	if err != nil {
		t.Fatal(err)
	}
	e.iso.SetErrorFactory(f.ID())
	return e
}

func (e *Engine) bundle(prelude string) string {
	root, err := filepath.Abs(repositoryRoot(e.t) + "/runtime")
	if err != nil {
		e.t.Fatal(err)
	}
	dir := e.t.TempDir()
	for name, text := range map[string]string{"platform.ts": fmt.Sprintf(platform, root), "entry.ts": "import \"./platform.ts\";\n" + prelude} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			e.t.Fatal(err)
		}
	}
	js, err := bundle.Entry(filepath.Join(dir, "entry.ts"), false)
	if err != nil {
		e.t.Fatal(err)
	}
	return string(js)
}

func repositoryRoot(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("go.mod not found above the test")
		}
		dir = filepath.Dir(dir)
	}
}

func (e *Engine) own() []hostcall.Op {
	return []hostcall.Op{
		{Name: "test.wait", Async: func(f hostcall.Frame) (func(context.Context) (hostcall.Value, error), error) {
			d := time.Duration(f.Arg(0).Num() * float64(time.Millisecond))
			return func(ctx context.Context) (hostcall.Value, error) {
				select {
				case <-time.After(d):
				case <-ctx.Done():
				}
				return hostcall.Value{}, nil
			}, nil
		}},
		{Name: "worker.section", Sync: func(hostcall.Frame) error { return nil }},
		{Name: "test.finish", Sync: func(f hostcall.Frame) error {
			return errFinished{strings.Clone(f.Arg(0).Str())}
		}},
		{Name: "console.log", Sync: func(f hostcall.Frame) error {
			e.Log = append(e.Log, f.Arg(0).Str()+" "+f.Arg(1).Str())
			return nil
		}},
	}
}

type errFinished struct{ text string }

func (errFinished) Error() string { return "Error\x00finished" }

type frame struct {
	e    *Engine
	args []v8.Arg
	*v8.Ret
}

var undefined v8.Arg

func (f *frame) Len() int { return len(f.args) }
func (f *frame) Arg(i int) hostcall.Arg {
	if i >= len(f.args) {
		return &undefined
	}
	return &f.args[i]
}
func (f *frame) SetBool(b bool)              { f.Ret.Bool(b) }
func (f *frame) SetNum(n float64)            { f.Ret.Num(n) }
func (f *frame) SetStr(s string)             { f.Ret.Str(s) }
func (f *frame) SetBytes(b []byte)           { f.Ret.Bytes(b) }
func (f *frame) SetClone(b []byte)           { f.Ret.CloneOf(b) }
func (f *frame) SetNull()                    { f.Ret.Null() }
func (f *frame) SetTuple(v []hostcall.Value) { f.Ret.Tuple(v) }
func (f *frame) Actor() any                  { return f.e.actor }

func (e *Engine) host(_ *v8.Isolate, _ int, op, promise uint32, args []v8.Arg, ret *v8.Ret) error {
	f := &frame{e, args, ret}
	o := e.ops[op]
	if promise == 0 {
		err := o.Sync(f)
		var fin errFinished
		if errors.As(err, &fin) {
			e.settle(result{value: hostcall.Text(fin.text)})
			return nil
		}
		return wire(err)
	}
	work, err := o.Async(f)
	if err != nil {
		return wire(err)
	}
	go func() {
		v, err := work(e.actor.ctx)
		e.settle(result{promise, v, err})
	}()
	return nil
}

func wire(err error) error {
	var t *hostcall.Throw
	if errors.As(err, &t) {
		return errors.New(t.Class + "\x00" + t.Message)
	}
	if err != nil {
		return errors.New("Error\x00" + err.Error())
	}
	return nil
}

func (e *Engine) settle(r result) {
	e.mu.Lock()
	e.done = append(e.done, r)
	e.mu.Unlock()
	select {
	case e.signal <- struct{}{}:
	default:
	}
}

// Run evaluates an expression, awaits it, and returns it as a string.
func (e *Engine) Run(expression string) (string, error) {
	e.iso.Lock()
	defer e.iso.Unlock()
	src := `(async () => (` + expression + `))().then((v) => finish("+" + v), (e) => finish("-" + (e?.stack ?? e)))`
	if _, err := e.iso.Eval(e.ctx, src, "test.js", 0); err != nil {
		return "", err
	}
	limit := time.After(30 * time.Second)
	for {
		e.mu.Lock()
		batch := e.done
		e.done = nil
		e.mu.Unlock()
		for _, r := range batch {
			if r.promise == 0 {
				if text := r.value.Str; text[0] == '+' {
					return text[1:], nil
				} else {
					return "", errors.New(text[1:])
				}
			}
			if err := e.resolve(r); err != nil {
				return "", err
			}
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-e.signal:
		case <-limit:
			return "", errors.New("the expression did not settle")
		}
	}
}

func (e *Engine) resolve(r result) error {
	var args v8.Args
	reject := uint8(0)
	if r.err != nil {
		reject = 1
		r.value = hostcall.Text(wire(r.err).Error())
	}
	args.Value(r.value)
	defer args.Reset()
	return e.iso.Settle(e.ctx, []uint32{r.promise}, []uint8{reject}, &args, 0)
}
