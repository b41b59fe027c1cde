// Package engine is where deployments meet the JavaScript engine: a script of a
// manifest becomes a worker.Bundle, and the engine says whether it starts.
package engine

import (
	"context"
	"errors"
	"slices"

	"celld/internal/deploy"
	"celld/internal/worker"
)

// Bundles are the scripts of d as the engine takes them, the default one first.
func Bundles(d *deploy.Deployment) []*worker.Bundle {
	var out []*worker.Bundle
	for i := range d.Manifest.Scripts {
		out = append(out, Bundle(d, &d.Manifest.Scripts[i]))
	}
	return out
}

// Bundle is one script as the engine takes it. It shares d's bytes.
func Bundle(d *deploy.Deployment, s *deploy.Script) *worker.Bundle {
	b := &worker.Bundle{
		Name: s.Name, Version: d.Version, Main: s.Main,
		CompatibilityDate: s.CompatibilityDate, Flags: slices.Clone(s.CompatibilityFlags),
	}
	for _, m := range s.Modules {
		b.Modules = append(b.Modules, worker.Module{
			Name: m.Name, Type: worker.ModuleType(m.Type), Body: d.Body(m), SourceMap: d.SourceMap(m),
		})
	}
	for _, c := range s.Classes {
		b.Classes = append(b.Classes, worker.Class{Name: c.Name, Namespace: c.Namespace})
	}
	for _, x := range s.Bindings {
		b.Bindings = append(b.Bindings, worker.Binding{
			Name: x.Name, Type: x.Type, Text: x.Text, JSON: x.JSON, Namespace: x.Namespace,
			Script: x.Script, Entrypoint: x.Entrypoint, Resource: x.Resource,
		})
	}
	return b
}

// Checker loads scripts to see whether they start, and serves nothing. It
// is a deploy.Checker.
type Checker struct {
	Runtime *worker.Runtime
	Options worker.Options
}

var errChecked = errors.New("the script was only checked")

// Check loads one script into one isolate, and throws it away.
func (c Checker) Check(_ context.Context, d *deploy.Deployment, s *deploy.Script) ([]string, error) {
	o := c.Options
	o.Stateless, o.Cells = 1, 1
	script, err := c.Runtime.Load(Bundle(d, s), o)
	if err != nil {
		return nil, err
	}
	defer script.Close(errChecked)
	x := script.Exports()
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(x.Entrypoints, x.Classes)))), nil
}
