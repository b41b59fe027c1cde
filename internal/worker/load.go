package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"celld/internal/v8"
)

// bufferFactor: ArrayBuffers of an isolate together may take this many times its heap limit.
const bufferFactor = 4

// newIsolate makes an isolate from the snapshot and loads the script into it.
func (s *Script) newIsolate() (*isolate, error) {
	i := &isolate{script: s, actors: map[uint32]*actor{}}
	i.v = v8.New(v8.Options{HeapLimit: int(s.opts.HeapLimit), BufferLimit: int(s.opts.HeapLimit) * bufferFactor, Snapshot: s.rt.snapshot})
	i.v.Host = i.host
	i.v.Resolve = func(_ *v8.Isolate, _ int, spec, referrer string, _ bool) int { return i.resolve(spec, referrer) }
	i.v.Unhandled = func(_ int, msg string) { i.unhandled(msg) }
	i.v.Fatal = func(msg string) { i.fatal(msg) }
	i.v.OnWake(func() { i.later(i.pump) })
	i.ctx = i.v.NewContext(false)
	s.rt.watch.add(i)
	err := i.load0()
	if err != nil {
		s.rt.watch.remove(i)
		i.v.Close()
		return nil, err
	}
	return i, nil
}

func (i *isolate) load0() error {
	i.running = true // nothing else may come in between
	defer i.handOver()
	defer i.args.Reset()
	if err := i.takeHandles(); err != nil {
		return err
	}
	l := &loader{isolate: i, ids: map[string]int{}}
	i.loader = l
	i.beginTurn(nil)
	err := l.run()
	if over := i.endTurn(); over != nil && errors.Is(classify(err), errTerminated) {
		err = over
	}
	if err != nil {
		return i.script.explain(err)
	}
	return nil
}

// takeHandles gets the runtime's functions and hides its globals from user code.
func (i *isolate) takeHandles() error {
	for name, h := range map[string]*uint32{
		"fetch": &i.fn.fetch, "construct": &i.fn.construct, "alarm": &i.fn.alarm, "abort": &i.fn.abort, "drop": &i.fn.drop,
		"rpcOpen": &i.fn.rpcOpen, "pipeMessage": &i.fn.pipeMessage, "pipeClosed": &i.fn.pipeClosed, "socketFrame": &i.fn.socketFrame,
		"socketClosed": &i.fn.socketClosed, "scheduled": &i.fn.scheduled,
		"load": &i.fn.load, "makeError": &i.fn.makeError, "fileModule": &i.fn.fileModule, "builtin": &i.fn.builtin,
	} {
		v, err := i.v.Eval(i.ctx, "__celld."+name, "celld:handles", v8.WantHandle|v8.NoMicro)
		if err != nil {
			return fmt.Errorf("bug: the runtime has no %s: %w", name, err)
		}
		*h = v.ID()
	}
	i.v.SetErrorFactory(i.fn.makeError)
	_, err := i.v.Eval(i.ctx, "delete globalThis.__celld; delete globalThis.__host; delete globalThis.__ops; undefined", "celld:handles", v8.NoMicro)
	return err
}

// loader compiles the modules of a script, each once, as imports ask for them.
type loader struct {
	isolate *isolate
	ids     map[string]int // module ids by name
	err     error          // the first thing that went wrong while resolving
}

// run loads the main module and hands its exports to the runtime.
func (l *loader) run() error {
	i, b := l.isolate, l.isolate.script.bundle
	// env is there before the first line of the script runs: it can be imported.
	env, err := json.Marshal(envSpec(b))
	if err != nil {
		return err
	}
	main, err := l.module(b.Main)
	if err != nil {
		return err
	}
	i.args.Reset()
	i.args.Str(string(env))
	i.args.Undefined()
	if _, err := i.v.CallArgs(i.ctx, i.fn.load, 0, &i.args); err != nil {
		return err
	}
	if err := i.v.Instantiate(i.ctx, main); err != nil {
		return errors.Join(l.err, err)
	}
	v, err := i.v.Evaluate(i.ctx, main, 0)
	if err != nil {
		return errors.Join(l.err, err)
	}
	if v.Tag == v8.Promise {
		return errors.New("the main module waits at its top level for something that never comes: I/O is not allowed there")
	}
	ns, err := i.v.Export(i.ctx, main, "")
	if err != nil {
		return err
	}
	i.args.Reset()
	i.args.Str(string(env))
	i.args.Handle(ns)
	got, err := i.v.CallArgs(i.ctx, i.fn.load, 0, &i.args)
	if err != nil {
		return err
	}
	return json.Unmarshal(got.B, &i.exports)
}

// resolve finds the module that an import names; it is called by V8.
func (i *isolate) resolve(spec, referrer string) int {
	n, err := i.loader.module(i.loader.find(spec, referrer))
	if err != nil {
		if i.loader.err == nil {
			i.loader.err = err
		}
		return -1
	}
	return n
}

// find is the name of what spec means in the module referrer.
func (l *loader) find(spec, referrer string) string {
	if strings.HasPrefix(spec, "./") || strings.HasPrefix(spec, "../") {
		return path.Join(path.Dir(referrer), spec)
	}
	return strings.TrimPrefix(spec, "/")
}

func (l *loader) module(name string) (int, error) {
	if n, ok := l.ids[name]; ok {
		return n, nil
	}
	n, err := l.compile(name)
	if err == nil {
		l.ids[name] = n
	}
	return n, err
}

func (l *loader) compile(name string) (int, error) {
	i := l.isolate
	for k := range i.script.bundle.Modules {
		m := &i.script.bundle.Modules[k]
		if m.Name != name {
			continue
		}
		if m.Type == ESModule {
			n, _, err := i.v.CompileModule(i.ctx, string(m.Body), m.Name, nil)
			return n, err
		}
		return l.synthetic(m)
	}
	return l.builtin(name)
}

// synthetic makes a module whose default export is the file's content.
func (l *loader) synthetic(m *Module) (int, error) {
	i := l.isolate
	i.args.Reset()
	defer i.args.Reset()
	switch m.Type {
	case Text:
		i.args.Str("text")
		i.args.Str(string(m.Body))
	case Data:
		i.args.Str("data")
		i.args.Bytes(m.Body)
	case JSON:
		i.args.Str("json")
		i.args.Str(string(m.Body))
	case Wasm:
		w, err := i.script.wasm(i, m)
		if err != nil {
			return 0, fmt.Errorf("%s is not a WebAssembly module that V8 takes: %w", m.Name, err)
		}
		h, err := i.v.WasmHandle(i.ctx, w)
		if err != nil {
			return 0, err
		}
		i.args.Str("wasm")
		i.args.Handle(h)
	case CommonJS:
		return 0, fmt.Errorf("%s is a CommonJS module: bundle it (no_bundle cannot serve those)", m.Name)
	default:
		return 0, fmt.Errorf("%s has the unknown module type %q", m.Name, m.Type)
	}
	exports, err := i.v.CallArgs(i.ctx, i.fn.fileModule, v8.NoMicro|v8.WantHandle, &i.args)
	if err != nil {
		return 0, err
	}
	return i.v.SyntheticModule(i.ctx, m.Name, exports.ID())
}

// builtin is a module of the runtime: cloudflare:workers, node:…
func (l *loader) builtin(name string) (int, error) {
	i := l.isolate
	i.args.Reset()
	defer i.args.Reset()
	i.args.Str(name)
	exports, err := i.v.CallArgs(i.ctx, i.fn.builtin, v8.NoMicro|v8.WantHandle, &i.args)
	if err != nil {
		return 0, err
	}
	return i.v.SyntheticModule(i.ctx, name, exports.ID())
}

// envSpec is what the runtime needs to build env and to know the script's classes.
func envSpec(b *Bundle) any {
	type class struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	classes := make([]class, 0, len(b.Classes))
	for _, c := range b.Classes {
		classes = append(classes, class(c))
	}
	bindings := b.Bindings
	if bindings == nil {
		bindings = []Binding{}
	}
	return map[string]any{"script": b.Name, "bindings": bindings, "classes": classes, "date": b.CompatibilityDate, "flags": append([]string{}, b.Flags...)}
}

// Exports are what the main module offers.
type Exports struct {
	Entrypoints []string `json:"entrypoints"` // handlers and WorkerEntrypoint classes
	Classes     []string `json:"classes"`     // classes that can be Durable Objects
}

// Exports of the script.
func (s *Script) Exports() Exports {
	return s.exports
}

// shut ends the isolate when its queue has run dry.
func (i *isolate) shut(cause error) {
	i.later(func() {
		for _, a := range i.actors {
			a.end(cause)
		}
		i.mu.Lock()
		never := i.die(cause)
		i.mu.Unlock()
		for _, j := range never {
			j.drop(cause)
		}
	})
	i.bury(cause)
}

// bury waits until nothing runs in a dead isolate and frees it. Where a turn
// ignores its termination the isolate is left alone for ever.
func (i *isolate) bury(cause error) {
	i.watchUntilIdle()
	i.mu.Lock()
	actors := i.actors
	i.actors = map[uint32]*actor{}
	i.mu.Unlock()
	for _, a := range actors {
		a.end(cause)
		if a.seat != nil {
			a.seat.Reset(cause)
		}
	}
	i.script.rt.watch.remove(i)
	if i.v.Dead.Load() == nil && !i.wedged.Load() {
		i.v.Close()
	}
}

// pump runs V8's own tasks, which its threads asked for.
func (i *isolate) pump() {
	i.v.Pump()
	i.v.Microtasks(i.ctx)
}
