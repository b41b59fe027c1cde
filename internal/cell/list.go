package cell

// list is the resident cells in the order of their use, linked through the
// slots themselves: a resident cell costs no list element.
type list struct{ root slot }

func (l *list) init() { l.root.prev, l.root.next = &l.root, &l.root }

// oldest is the least recently used cell, or nil.
func (l *list) oldest() *slot { return l.newer(&l.root) }

// newer is the cell used next after s, or nil.
func (l *list) newer(s *slot) *slot {
	if s.next == &l.root {
		return nil
	}
	return s.next
}

func (l *list) push(s *slot) {
	s.prev, s.next = l.root.prev, &l.root
	s.prev.next, l.root.prev = s, s
}

func (l *list) remove(s *slot) {
	if s.next != nil {
		s.prev.next, s.next.prev = s.next, s.prev
		s.prev, s.next = nil, nil
	}
}

// touch makes s the most recently used.
func (l *list) touch(s *slot) {
	if s.next != nil && s.next != &l.root {
		l.remove(s)
		l.push(s)
	}
}
