package wrangler

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// decoder fills a Config from a tree.
type decoder struct {
	*source
	cfg  *Config
	root *tree
}

// inherit lays the environment over the top level by wrangler's rules.
func (d *decoder) inherit(root *tree, env string) *tree {
	d.root = root
	if env == "" {
		return root
	}
	e, ok := d.environment(root, env)
	if !ok {
		return root
	}
	out := &tree{kind: object, pos: e.pos, end: e.end}
	for _, f := range fields() {
		top, above := root.get(f.key)
		mine, here := e.get(f.key)
		switch {
		case here && f.rule == topOnly:
			d.errorf(mine.pos, mine.end, "move it to the top level", "%q cannot stand inside an environment", f.key)
		case here:
			out.members = append(out.members, mine)
		case above && f.key == "name":
			out.members = append(out.members, envName(top, env))
		case above && f.rule == inherits:
			out.members = append(out.members, top)
		case above && f.rule == own && !empty(top.value):
			d.noticef(top.pos, top.end, "add it to env."+env+" if the environment needs it",
				"%q is not inherited by environments, and env.%s does not have it", f.key, env)
		}
	}
	for _, m := range append(slices.Clone(root.members), e.members...) {
		if !slices.ContainsFunc(fields(), func(f field) bool { return f.key == m.name }) {
			out.members = append(out.members, m)
		}
	}
	return out
}

func (d *decoder) environment(root *tree, env string) (*tree, bool) {
	all, ok := root.get("env")
	if !ok || all.value.kind != object {
		d.errorf(-1, -1, "remove the environment's name from the command, or add env."+env, "there is no environment %q: the configuration has no env section", env)
		return nil, false
	}
	m, ok := all.value.get(env)
	if !ok {
		var known []string
		for _, m := range all.value.members {
			known = append(known, m.name)
		}
		d.errorf(all.pos, all.end, "known environments: "+strings.Join(known, ", "), "there is no environment %q", env)
		return nil, false
	}
	if m.value.kind != object {
		d.wrong(m, object)
		return nil, false
	}
	return m.value, true
}

// envName is the name of an environment that gives none of its own.
func envName(top member, env string) member {
	v := *top.value
	v.str += "-" + env
	top.value = &v
	return top
}

// decode reads every key of the effective configuration.
func (d *decoder) decode(t *tree) {
	d.cfg.KeepNames = true
	d.cfg.where = map[string]member{}
	table := map[string]func(member){}
	for _, f := range fields() {
		table[f.key] = func(m member) {
			d.cfg.where[m.name] = m
			if m.value.kind != null {
				f.read(d, m)
			}
		}
	}
	var ignored []member
	for _, key := range meaningless {
		table[key] = func(m member) { ignored = append(ignored, m) }
	}
	for key, instead := range refused {
		table[key] = func(m member) {
			if !empty(m.value) {
				d.errorf(m.pos, m.end, instead, "%q is not supported", m.name)
			}
		}
	}
	d.object(t, "", table)
	d.mention(ignored)
	d.otherEnvironments()
}

// otherEnvironments checks at least the keys of the environments that were not
// chosen, so that a slip there shows before the day it is deployed.
func (d *decoder) otherEnvironments() {
	all, ok := d.root.get("env")
	if !ok {
		return
	}
	if all.value.kind != object {
		d.wrong(all, object)
		return
	}
	table := map[string]func(member){}
	for _, f := range fields() {
		table[f.key] = func(member) {}
	}
	for _, key := range append(slices.Collect(maps.Keys(refused)), meaningless...) {
		table[key] = func(member) {}
	}
	for _, m := range all.value.members {
		if m.name != d.cfg.Env {
			d.object(m.value, "env."+m.name, table)
		}
	}
}

// mention says once which keys mean nothing here.
func (d *decoder) mention(ignored []member) {
	var keys []string
	for _, m := range ignored {
		if m.name != "$schema" && !slices.Contains(keys, m.name) {
			keys = append(keys, m.name)
		}
	}
	if len(keys) > 0 {
		d.noticef(-1, -1, "", "accepted, without effect on your own machines: %s", strings.Join(keys, ", "))
	}
}

// check is what can only be said of the whole.
func (d *decoder) check() {
	if d.cfg.Name == "" && d.need("name") {
		d.errorf(-1, -1, `add "name": "my-worker"`, "the Worker has no name")
	}
	if d.cfg.Main == "" && d.cfg.Assets == nil && d.need("main") {
		d.errorf(-1, -1, `add "main": "src/index.ts"`, "there is no main module")
	}
	seen := map[string]string{}
	for _, b := range d.bindings() {
		if first, twice := seen[b.name]; twice {
			at := d.cfg.where[b.section]
			d.errorf(at.pos, at.end, "rename one of the two", "binding %q is given twice: in %s and in %s", b.name, first, b.section)
		}
		seen[b.name] = b.section
	}
}

func (d *decoder) need(key string) bool {
	_, given := d.cfg.where[key]
	return !given // a bad value was reported already
}

type bound struct{ name, section string }

// bindings are all names that env will hold.
func (d *decoder) bindings() []bound {
	var out []bound
	add := func(section, name string) {
		if name != "" {
			out = append(out, bound{name, section})
		}
	}
	c := d.cfg
	for _, name := range slices.Sorted(maps.Keys(c.Vars)) {
		add("vars", name)
	}
	for _, b := range c.DurableObjects {
		add("durable_objects", b.Binding)
	}
	for _, b := range c.Services {
		add("services", b.Binding)
	}
	for _, b := range c.KV {
		add("kv_namespaces", b.Binding)
	}
	for _, b := range c.D1 {
		add("d1_databases", b.Binding)
	}
	for _, b := range c.R2 {
		add("r2_buckets", b.Binding)
	}
	for _, b := range c.Producers {
		add("queues", b.Binding)
	}
	for _, b := range c.Workflows {
		add("workflows", b.Binding)
	}
	for _, b := range c.WorkerLoaders {
		add("worker_loaders", b)
	}
	add("ai", c.AI)
	add("version_metadata", c.VersionInfo)
	if c.Assets != nil {
		add("assets", c.Assets.Binding)
	}
	return out
}

// The kinds of values.

func (d *decoder) wrong(m member, want kind) {
	d.errorf(m.value.pos, m.value.end, "", "%q must be %s, not %s", m.name, want, m.value.kind)
}

func (d *decoder) string(m member, to *string) bool {
	if m.value.kind != text {
		d.wrong(m, text)
		return false
	}
	*to = m.value.str
	return true
}

func (d *decoder) bool(m member, to *bool) {
	if m.value.kind != boolean {
		d.wrong(m, boolean)
		return
	}
	*to = m.value.yes
}

// count is a whole number that is not negative.
func (d *decoder) count(m member, to *int64) {
	n, err := json.Number(m.value.str).Int64()
	if m.value.kind != number || err != nil || n < 0 {
		d.errorf(m.value.pos, m.value.end, "", "%q must be a whole number from 0 up", m.name)
		return
	}
	*to = n
}

// path is relative to the configuration file.
func (d *decoder) path(m member, to *string) {
	if !d.string(m, to) {
		return
	}
	if *to == "" || strings.ContainsRune(*to, 0) {
		d.errorf(m.value.pos, m.value.end, "", "%q must be the path of a file", m.name)
		return
	}
	*to = filepath.FromSlash(*to)
}

func (d *decoder) strings(m member) []string {
	if m.value.kind != list {
		d.wrong(m, "a list of strings")
		return nil
	}
	out := make([]string, 0, len(m.value.items))
	for _, item := range m.value.items {
		if item.kind != text {
			d.errorf(item.pos, item.end, "", "%q must hold strings, not %s", m.name, item.kind)
			continue
		}
		out = append(out, item.str)
	}
	return out
}

func (d *decoder) stringMap(m member) map[string]string {
	if m.value.kind != object {
		d.wrong(m, object)
		return nil
	}
	out := map[string]string{}
	for _, e := range m.value.members {
		var v string
		if d.string(e, &v) {
			out[e.name] = v
		}
	}
	return out
}

// object reads the members of t by table; every other member is an error.
func (d *decoder) object(t *tree, inside string, table map[string]func(member)) {
	if t.kind != object {
		d.errorf(t.pos, t.end, "", "%s must be an object, not %s", inside, t.kind)
		return
	}
	known := slices.Sorted(maps.Keys(table))
	for _, m := range t.members {
		if read, ok := table[m.name]; ok {
			read(m)
			continue
		}
		d.unknown(m, inside, known)
	}
}

func (d *decoder) unknown(m member, inside string, known []string) {
	note := "remove it"
	if near := nearest(m.name, known); near != "" {
		note = fmt.Sprintf("did you mean %q?", near)
	}
	if inside != "" {
		d.errorf(m.pos, m.end, note, "unknown key %q in %s", m.name, inside)
		return
	}
	d.errorf(m.pos, m.end, note, "unknown key %q", m.name)
}

// each reads a list of objects; need names the keys that every one must have.
func (d *decoder) each(m member, need []string, table func(i int) map[string]func(member)) {
	if m.value.kind != list {
		d.wrong(m, "a list of objects")
		return
	}
	for i, item := range m.value.items {
		d.entry(item, m.name, need, table(i))
	}
}

func (d *decoder) entry(t *tree, inside string, need []string, table map[string]func(member)) {
	d.object(t, inside, table)
	for _, key := range need {
		if _, ok := t.get(key); !ok && t.kind == object {
			d.errorf(t.pos, t.pos+1, "", "an entry of %s lacks %q", inside, key)
		}
	}
}

// binding is the name of a property of env.
func (d *decoder) binding(to *string) func(member) {
	return func(m member) {
		if d.string(m, to) && !identifier(*to) {
			d.errorf(m.value.pos, m.value.end, "use letters, digits and _", "%q is not a name for a binding", *to)
		}
	}
}

func (d *decoder) text(to *string) func(member) { return func(m member) { d.string(m, to) } }
func (d *decoder) num(to *int64) func(member)   { return func(m member) { d.count(m, to) } }
func skip(member)                               {}

// identifier tells whether JavaScript can write env.NAME. Cell names hold class
// names, so they are ASCII here.
func identifier(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '$'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

func validDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}
