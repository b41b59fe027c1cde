package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"celld/internal/call"
	"celld/internal/deploy"
	"celld/internal/deploy/engine"
	"celld/internal/worker"
)

// app is one adopted deployment: its scripts, loaded.
type app struct {
	version string
	scripts map[string]*worker.Script
	first   *worker.Script // the default one
	classes map[string]*worker.Script
}

// apps holds the deployment that serves, and replaces it.
type apps struct {
	rt      *worker.Runtime
	options func() worker.Options
	log     *slog.Logger
	current atomic.Pointer[app]
	// moved is told when another deployment serves: resident cells follow it
	// until ctx ends.
	moved func(ctx context.Context)
	// grace is how long the old scripts may go on with what they have begun.
	grace time.Duration
}

var (
	errNothingDeployed = fmt.Errorf("nothing is deployed yet: %w", call.ErrNotStarted)
	errReplaced        = errors.New("the code was replaced by a newer deployment")
)

// adopt loads a deployment beside the one that serves, and switches to it.
func (a *apps) adopt(_ context.Context, d *deploy.Deployment) error {
	next := &app{version: d.Version, scripts: map[string]*worker.Script{}, classes: map[string]*worker.Script{}}
	for _, b := range engine.Bundles(d) {
		o := a.options()
		o.Service = next.service
		s, err := a.rt.Load(b, o)
		if err != nil {
			next.close(err)
			return err
		}
		next.scripts[b.Name] = s
		if next.first == nil {
			next.first = s
		}
		for _, c := range b.Classes {
			next.classes[c.Namespace] = s
		}
	}
	old := a.current.Swap(next)
	if old == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.grace)
	go func() {
		defer cancel()
		if a.moved != nil {
			a.moved(ctx)
		}
		<-ctx.Done() // what began on the old code may end on it
		old.close(errReplaced)
	}()
	return nil
}

func (p *app) close(cause error) {
	for _, s := range p.scripts {
		s.Close(cause)
	}
}

// service is an entrypoint of another script of the same deployment.
func (p *app) service(script, entrypoint string) (call.Service, error) {
	s := p.scripts[script]
	if s == nil {
		return nil, fmt.Errorf("the deployment has no script named %q", script)
	}
	return s.Entrypoint(entrypoint), nil
}

// script is who has the class of a cell now.
func (a *apps) script(class string) (*worker.Script, error) {
	p := a.current.Load()
	if p == nil {
		return nil, errNothingDeployed
	}
	s := p.classes[class]
	if s == nil {
		return nil, fmt.Errorf("deployment %s has no Durable Object class for cells of %q", p.version, class)
	}
	return s, nil
}

// entrypoint is what public requests reach.
func (a *apps) entrypoint() call.Service {
	p := a.current.Load()
	if p == nil {
		return refuser{errNothingDeployed}
	}
	return p.first.Entrypoint("")
}

func (a *apps) version() string {
	if p := a.current.Load(); p != nil {
		return p.version
	}
	return ""
}

func (a *apps) close(cause error) {
	if p := a.current.Load(); p != nil {
		p.close(cause)
	}
}

// refuser answers every call with one error.
type refuser struct{ err error }

func (r refuser) Fetch(context.Context, *call.Request) (*call.Response, error) { return nil, r.err }
func (r refuser) RPC(context.Context) (call.Pipe, error)                       { return nil, r.err }
