package wrangler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Migration is one step of the history of the classes.
type Migration struct {
	Tag                     string
	New, NewSQLite, Deleted []string
	Renamed                 []Rename
	Transferred             []Transfer
	at                      *tree
}

// Rename gives a class another name; ids and data stay.
type Rename struct{ From, To string }

// Transfer takes a class with its data from another Worker.
type Transfer struct{ From, FromScript, To string }

// Class is a class that lives, and where its data lives.
type Class struct {
	Name string
	// Namespace names the class in the bucket. It is the name at birth and never changes, so
	// that a rename keeps ids and data. A class born under a name that was used before gets
	// a number behind a dot, which no class name can hold: it must not see the data of
	// the former.
	Namespace string
	// Script is the Worker that the class was born in, if it is not this one.
	Script string
	SQLite bool
}

func (d *decoder) migrations(m member) {
	d.each(m, []string{"tag"}, func(i int) map[string]func(member) {
		d.cfg.Migrations = append(d.cfg.Migrations, Migration{at: m.value.items[i]})
		s := &d.cfg.Migrations[len(d.cfg.Migrations)-1]
		return map[string]func(member){
			"tag":                 d.text(&s.Tag),
			"new_classes":         func(m member) { s.New = d.classes(m) },
			"new_sqlite_classes":  func(m member) { s.NewSQLite = d.classes(m) },
			"deleted_classes":     func(m member) { s.Deleted = d.classes(m) },
			"renamed_classes":     func(m member) { s.Renamed = d.renames(m) },
			"transferred_classes": func(m member) { s.Transferred = d.transfers(m) },
		}
	})
}

func (d *decoder) classes(m member) []string {
	out := d.strings(m)
	for _, c := range out {
		if !identifier(c) || len(c) > maxClass {
			d.errorf(m.value.pos, m.value.end, "", "%q is not the name of a class", c)
		}
	}
	return out
}

func (d *decoder) renames(m member) (out []Rename) {
	d.each(m, []string{"from", "to"}, func(int) map[string]func(member) {
		out = append(out, Rename{})
		r := &out[len(out)-1]
		return map[string]func(member){"from": d.class(&r.From), "to": d.class(&r.To)}
	})
	return out
}

func (d *decoder) transfers(m member) (out []Transfer) {
	d.each(m, []string{"from", "from_script", "to"}, func(int) map[string]func(member) {
		out = append(out, Transfer{})
		r := &out[len(out)-1]
		return map[string]func(member){"from": d.class(&r.From), "from_script": d.text(&r.FromScript), "to": d.class(&r.To)}
	})
	return out
}

// history is the replay of the migrations.
type history struct {
	*decoder
	live   map[string]Class
	births map[string]int    // how often a class of this name was born
	died   map[string]string // why a name is not alive any more
	step   *Migration
}

// replay runs the history from the first step to the classes that live now,
// and holds the bindings against them.
func (d *decoder) replay() {
	if len(d.found) > 0 {
		return // half a history tells nothing
	}
	h := &history{decoder: d, live: map[string]Class{}, births: map[string]int{}, died: map[string]string{}}
	tags := map[string]bool{}
	for i := range d.cfg.Migrations {
		h.step = &d.cfg.Migrations[i]
		if tags[h.step.Tag] {
			h.bad("give each step its own tag", "migration tag %q is used twice", h.step.Tag)
		}
		tags[h.step.Tag] = true
		h.apply()
	}
	h.unlisted()
	for _, c := range h.live {
		d.cfg.Classes = append(d.cfg.Classes, c)
	}
	slices.SortFunc(d.cfg.Classes, func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
	h.holdBindings()
}

func (h *history) apply() {
	// Names are taken away before names are given, so that one step can
	// rename Old to New and give birth to another Old.
	for _, name := range h.step.Deleted {
		if _, ok := h.take(name, "delete"); ok {
			h.died[name] = "deleted"
		}
	}
	moved := make([]Class, 0, len(h.step.Renamed))
	for _, r := range h.step.Renamed {
		if c, ok := h.take(r.From, "rename"); ok {
			h.died[r.From] = "renamed to " + r.To
			c.Name = r.To
			moved = append(moved, c)
		}
	}
	for _, c := range moved {
		h.put(c)
	}
	for _, name := range h.step.New {
		h.born(name, false)
	}
	for _, name := range h.step.NewSQLite {
		h.born(name, true)
	}
	for _, t := range h.step.Transferred {
		h.put(Class{Name: t.To, Namespace: t.From, Script: t.FromScript, SQLite: true})
	}
}

func (h *history) take(name, verb string) (Class, bool) {
	c, ok := h.live[name]
	if !ok {
		why := "no step before it creates that class"
		if d := h.died[name]; d != "" {
			why = "it was " + d + " before"
		}
		h.bad("add the step that creates it to new_sqlite_classes, or remove this one", "migration %q cannot %s class %q: %s", h.step.Tag, verb, name, why)
	}
	delete(h.live, name)
	return c, ok
}

func (h *history) put(c Class) {
	if _, taken := h.live[c.Name]; taken {
		h.bad("delete or rename the other one first", "migration %q cannot create class %q: it exists already", h.step.Tag, c.Name)
		return
	}
	h.live[c.Name] = c
	delete(h.died, c.Name)
}

func (h *history) born(name string, sqlite bool) {
	h.births[name]++
	h.put(Class{Name: name, Namespace: namespace(name, h.births[name]), SQLite: sqlite})
}

func namespace(name string, birth int) string {
	if birth == 1 {
		return name
	}
	return fmt.Sprintf("%s.%d", name, birth)
}

func (h *history) bad(note, format string, args ...any) {
	h.errorf(h.step.at.pos, h.step.at.pos+1, note, format, args...)
}

// unlisted takes the bound classes as new where no history is kept at all.
func (h *history) unlisted() {
	if len(h.cfg.Migrations) > 0 {
		return
	}
	var names []string
	for _, b := range h.cfg.DurableObjects {
		if _, ok := h.live[b.Class]; b.Script == "" && !ok {
			h.live[b.Class] = Class{Name: b.Class, Namespace: b.Class, SQLite: true}
			names = append(names, b.Class)
		}
	}
	if len(names) > 0 {
		at := h.cfg.where["durable_objects"]
		h.noticef(at.pos, at.end, fmt.Sprintf(`add "migrations": [{"tag": "v1", "new_sqlite_classes": ["%s"]}]`, strings.Join(names, `", "`)),
			"there are no migrations; the classes %s are taken as new", strings.Join(names, ", "))
	}
}

// holdBindings reports bindings to classes that do not live.
func (h *history) holdBindings() {
	for _, b := range h.cfg.DurableObjects {
		if _, ok := h.live[b.Class]; ok || b.Script != "" && b.Script != h.cfg.Name {
			continue
		}
		at := h.cfg.where["durable_objects"]
		note := fmt.Sprintf(`add {"tag": "…", "new_sqlite_classes": ["%s"]} to the migrations`, b.Class)
		why := "no migration creates it"
		if d := h.died[b.Class]; d != "" {
			why, note = "a migration says it was "+d, "bind the class that lives now"
		}
		h.errorf(at.pos, at.end, note, "binding %q names class %q, but %s", b.Binding, b.Class, why)
	}
}
