package deploy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"celld/internal/wrangler"
)

// bindings are the properties of env, in order of their names.
func (b *building) bindings() ([]Binding, error) {
	c := b.cfg
	var out []Binding
	vars, err := b.vars()
	if err != nil {
		return nil, err
	}
	for name, v := range vars {
		out = append(out, variable(name, v))
	}
	for _, o := range c.DurableObjects {
		script := o.Script
		if script == c.Name {
			script = ""
		}
		out = append(out, Binding{Name: o.Binding, Type: DurableObject, Class: o.Class, Script: script})
	}
	for _, s := range c.Services {
		out = append(out, Binding{Name: s.Binding, Type: ServiceBinding, Script: s.Service, Entrypoint: s.Entrypoint, JSON: s.Props})
	}
	for _, k := range c.KV {
		out = append(out, Binding{Name: k.Binding, Type: KVNamespace, Resource: cmp.Or(k.ID, k.Binding)})
	}
	for _, d := range c.D1 {
		out = append(out, Binding{Name: d.Binding, Type: D1, Resource: cmp.Or(d.Name, d.ID, d.Binding)})
	}
	for _, r := range c.R2 {
		out = append(out, Binding{Name: r.Binding, Type: R2Bucket, Resource: cmp.Or(r.Name, r.Binding)})
	}
	for _, q := range c.Producers {
		out = append(out, Binding{Name: q.Binding, Type: Queue, Resource: q.Queue, Delay: q.DeliveryDelay})
	}
	for _, w := range c.Workflows {
		out = append(out, Binding{Name: w.Binding, Type: WorkflowBinding, Resource: w.Name, Class: w.Class, Script: w.Script})
	}
	for _, l := range c.WorkerLoaders {
		out = append(out, Binding{Name: l, Type: WorkerLoader})
	}
	if c.AI != "" {
		out = append(out, Binding{Name: c.AI, Type: AI})
	}
	if c.VersionInfo != "" {
		out = append(out, Binding{Name: c.VersionInfo, Type: VersionMetadata})
	}
	if c.Assets != nil && c.Assets.Binding != "" {
		out = append(out, Binding{Name: c.Assets.Binding, Type: AssetsBinding})
	}
	slices.SortFunc(out, func(x, y Binding) int { return cmp.Compare(x.Name, y.Name) })
	return out, nil
}

// vars are the Worker's vars, and in development the .dev.vars over them.
func (b *building) vars() (map[string]json.RawMessage, error) {
	vars := maps.Clone(b.cfg.Vars)
	if !b.opts.Dev {
		return vars, nil
	}
	for _, file := range wrangler.DevVarsFiles(b.dir, b.cfg.Env) {
		b.inputs[file] = true
	}
	dev, err := wrangler.LoadDevVars(b.dir, b.cfg.Env)
	if err != nil {
		return nil, err
	}
	if vars == nil {
		vars = map[string]json.RawMessage{}
	}
	for k, v := range dev {
		quoted, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		vars[k] = quoted
	}
	for _, name := range b.cfg.Secrets {
		if _, given := vars[name]; !given {
			b.Notices = append(b.Notices, fmt.Sprintf("▲ [NOTICE] the secret %s has no value: add it to %s", name, filepath.Join(b.cfg.Dir, ".dev.vars")))
		}
	}
	return vars, nil
}

func variable(name string, v json.RawMessage) Binding {
	var s string
	if json.Unmarshal(v, &s) == nil && string(v) != "null" {
		return Binding{Name: name, Type: PlainText, Text: s}
	}
	return Binding{Name: name, Type: JSONValue, JSON: v}
}

func consumers(c *wrangler.Config) (out []Consumer) {
	for _, q := range c.Consumers {
		out = append(out, Consumer{
			Queue: q.Queue, DeadLetterQueue: q.DeadLetterQueue, MaxBatchSize: q.MaxBatchSize, MaxBatchTimeout: q.MaxBatchTimeout,
			MaxRetries: q.MaxRetries, MaxConcurrency: q.MaxConcurrency, RetryDelay: q.RetryDelay,
		})
	}
	return out
}

// connect names the namespace of every class and joins the bindings to them,
// across the scripts of the deployment.
func connect(d *Deployment, cfgs []*wrangler.Config) error {
	type origin struct{ script, namespace string }
	owner := map[string]origin{} // whose data a namespace is
	for i, cfg := range cfgs {
		s := &d.Manifest.Scripts[i]
		for _, c := range cfg.Classes {
			from := origin{cmp.Or(c.Script, cfg.Name), c.Namespace}
			space := c.Namespace
			if other, taken := owner[space]; taken && other != from {
				// Names of classes are the Worker's own; the bucket has one space for all.
				space += "-" + from.script // no class name holds a dash
			}
			if other, taken := owner[space]; taken {
				return cfg.Problem("migrations", "delete the class in one of them", "class %q has the same data as a class of Worker %q", c.Name, other.script)
			}
			owner[space] = from
			s.Classes = append(s.Classes, Class{Name: c.Name, Namespace: space, SQLite: c.SQLite})
		}
	}
	for i, cfg := range cfgs {
		s := &d.Manifest.Scripts[i]
		for j := range s.Bindings {
			if b := &s.Bindings[j]; b.Type == DurableObject {
				if err := join(d, s, b, cfg); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func join(d *Deployment, s *Script, b *Binding, cfg *wrangler.Config) error {
	there := s
	if b.Script != "" {
		if there = d.Script(b.Script); there == nil {
			return cfg.Problem("durable_objects", fmt.Sprintf("deploy both together: -c %s -c …", cfg.File),
				"binding %q names class %q of Worker %q, which is not in this deployment", b.Name, b.Class, b.Script)
		}
	}
	for _, c := range there.Classes {
		if c.Name == b.Class {
			b.Namespace = c.Namespace
			return nil
		}
	}
	return cfg.Problem("durable_objects", "", "binding %q names class %q, which Worker %q does not have", b.Name, b.Class, there.Name)
}
