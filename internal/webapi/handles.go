package webapi

import (
	"context"
	"sync"

	"celld/internal/hostcall"
)

// Handles keeps Go values that JavaScript refers to by number.
type Handles[T any] struct {
	mu   sync.Mutex
	next uint32
	live map[uint32]handle[T]
}

type handle[T any] struct {
	value  T
	unbind func() bool
}

// lifetime is what an actor may tell about itself.
type lifetime interface{ Context() context.Context }

// Add keeps v, until Drop or until the actor of f ends; close is then called if it is not nil.
func (h *Handles[T]) Add(f hostcall.Frame, v T, close func()) uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live == nil {
		h.live = map[uint32]handle[T]{}
	}
	h.next++
	id := h.next
	e := handle[T]{value: v, unbind: func() bool { return true }}
	if a, ok := f.Actor().(lifetime); ok {
		e.unbind = context.AfterFunc(a.Context(), func() {
			h.remove(id)
			if close != nil {
				close()
			}
		})
	}
	h.live[id] = e
	return id
}

// Get is the value under id.
func (h *Handles[T]) Get(id int) (v T, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.live[uint32(id)]
	return e.value, ok
}

// Drop forgets id and returns what it was; the caller closes it.
func (h *Handles[T]) Drop(id int) (v T, ok bool) {
	e, ok := h.remove(uint32(id))
	if ok {
		e.unbind()
	}
	return e.value, ok
}

func (h *Handles[T]) remove(id uint32) (handle[T], bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.live[id]
	delete(h.live, id)
	return e, ok
}

// Len counts what is held; for tests.
func (h *Handles[T]) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.live)
}
