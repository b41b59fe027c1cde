package worker

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/go-sourcemap/sourcemap"

	"celld/internal/v8"
)

// sourceMaps turn places in the bundle back into places in what the user wrote.
type sourceMaps struct {
	mu     sync.Mutex
	raw    map[string][]byte
	parsed map[string]*sourcemap.Consumer
	wasm   map[string]*v8.Wasm // compiled once, shared by all isolates
}

func (s *Script) readMaps() error {
	s.maps.raw = map[string][]byte{}
	s.maps.parsed = map[string]*sourcemap.Consumer{}
	s.maps.wasm = map[string]*v8.Wasm{}
	for _, m := range s.bundle.Modules {
		if len(m.SourceMap) > 0 {
			s.maps.raw[m.Name] = m.SourceMap
		}
	}
	return nil
}

// consumer parses a map when the first error needs it.
func (s *sourceMaps) consumer(name string) *sourcemap.Consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.parsed[name]; ok {
		return c
	}
	raw, ok := s.raw[name]
	if !ok {
		return nil
	}
	c, err := sourcemap.Parse("", raw)
	if err != nil {
		c = nil // a broken map costs its stacks, nothing else
	}
	s.parsed[name] = c
	return c
}

// place finds "name:line:column" in a stack; the name of a module has no blank or parenthesis.
var place = regexp.MustCompile(`([^\s()@]+):(\d+):(\d+)`)

// mapStack rewrites the places of a stack.
func (s *Script) mapStack(stack string) string {
	if len(s.maps.raw) == 0 || stack == "" {
		return stack
	}
	return place.ReplaceAllStringFunc(stack, func(m string) string {
		p := place.FindStringSubmatch(m)
		c := s.maps.consumer(p[1])
		if c == nil {
			return m
		}
		line, _ := strconv.Atoi(p[2])
		col, _ := strconv.Atoi(p[3])
		source, _, l, cl, ok := c.Source(line, col-1)
		if !ok {
			return m
		}
		for strings.HasPrefix(source, "../") {
			source = source[3:]
		}
		return fmt.Sprintf("%s:%d:%d", source, l, cl+1)
	})
}

// wasm compiles a module once for all isolates.
func (s *Script) wasm(i *isolate, m *Module) (*v8.Wasm, error) {
	s.maps.mu.Lock()
	defer s.maps.mu.Unlock()
	if w := s.maps.wasm[m.Name]; w != nil {
		return w, nil
	}
	w, err := i.v.CompileWasm(i.ctx, m.Body)
	if err == nil {
		s.maps.wasm[m.Name] = w
	}
	return w, err
}

// LoadError is what is wrong with the code of a script.
type LoadError struct {
	Script string
	Detail string // message and mapped stack
	cause  error
}

func (e *LoadError) Error() string { return "script " + e.Script + " does not load:\n" + e.Detail }
func (e *LoadError) Unwrap() error { return e.cause }

func (s *Script) explain(err error) error {
	var js *v8.JSError
	if errors.As(err, &js) {
		return &LoadError{s.bundle.Name, s.mapStack(js.Msg), err}
	}
	return &LoadError{s.bundle.Name, err.Error(), err}
}
