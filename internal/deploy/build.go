package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"celld/internal/wrangler"
)

// Supported are the sections of a configuration that this build serves, for
// wrangler.Config.Require. Whoever serves another section adds its key.
var Supported = map[string]bool{"build": true}

// Options are how to build.
type Options struct {
	// Dev takes .dev.vars as vars, says "development" in process.env.NODE_ENV, and
	// does without a compatibility date.
	Dev bool
	// Output receives what the build command prints; nil: nothing.
	Output io.Writer
}

// Built is what Build found out, also when it failed.
type Built struct {
	*Deployment
	// Inputs are the files that were read: whoever watches, watches these.
	Inputs []string
	// Dirs are directories whose new files may matter.
	Dirs []string
	// Notices are for a person to read.
	Notices []string
}

// Build makes one deployment of one or more Workers; the first is the default.
// The Inputs are set even if the error is not nil.
func Build(ctx context.Context, cfgs []*wrangler.Config, opts Options) (*Built, error) {
	b := &Built{Deployment: &Deployment{Manifest: Manifest{Format: manifestFormat}, blobs: map[Digest][]byte{}}}
	if len(cfgs) == 0 {
		return b, errors.New("no Worker was given")
	}
	var failed []error
	for _, cfg := range cfgs {
		one := &building{Built: b, cfg: cfg, opts: opts, dir: absolute(cfg.Dir), inputs: map[string]bool{}}
		if err := one.script(ctx); err != nil {
			failed = append(failed, err)
		}
		b.Inputs = append(b.Inputs, slices.Sorted(maps.Keys(one.inputs))...)
	}
	if len(failed) > 0 {
		return b, errors.Join(failed...)
	}
	if err := connect(b.Deployment, cfgs); err != nil {
		return b, err
	}
	return b, b.seal()
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// building is one script on its way.
type building struct {
	*Built
	cfg     *wrangler.Config
	opts    Options
	dir     string
	inputs  map[string]bool
	modules []Module
	exports []string // of main; nil: unknown
}

func (b *building) script(ctx context.Context) error {
	b.inputs[absolute(b.cfg.File)] = true
	for _, n := range b.cfg.Notices {
		b.Notices = append(b.Notices, n.Format())
	}
	if err := b.cfg.Require(b.supported()); err != nil {
		return err
	}
	date, err := b.date()
	if err != nil {
		return err
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	main, err := b.gatherOrBundle()
	if err != nil {
		return err
	}
	if err := b.holdExports(); err != nil {
		return err
	}
	s := Script{
		Name: b.cfg.Name, Main: main, CompatibilityDate: date, CompatibilityFlags: slices.Clone(b.cfg.CompatibilityFlags),
		Modules: b.modules, Crons: b.cfg.Crons, TailConsumers: b.cfg.TailConsumers, RequiredSecrets: b.cfg.Secrets,
		CPULimitMS: b.cfg.CPULimitMS, Consumers: consumers(b.cfg),
	}
	if s.Bindings, err = b.bindings(); err != nil {
		return err
	}
	slices.SortFunc(s.Modules, func(x, y Module) int { return cmp.Compare(x.Name, y.Name) })
	b.Manifest.Scripts = append(b.Manifest.Scripts, s)
	return nil
}

// supported is Supported; in development .dev.vars hold the secrets.
func (b *building) supported() map[string]bool {
	if !b.opts.Dev {
		return Supported
	}
	out := maps.Clone(Supported)
	out["secrets"] = true
	return out
}

// devDate is the date that dev takes where none is given: fixed, so that a
// Worker does not change from one day to the next.
const devDate = "2026-11-01"

func (b *building) date() (string, error) {
	if b.cfg.CompatibilityDate != "" {
		return b.cfg.CompatibilityDate, nil
	}
	if b.opts.Dev {
		b.Notices = append(b.Notices, fmt.Sprintf("▲ [NOTICE] %s gives no compatibility_date; taking %s", b.cfg.File, devDate))
		return devDate, nil
	}
	return "", b.cfg.Problem("", `add "compatibility_date": "`+devDate+`"`, "there is no compatibility_date: it fixes which behaviour of the platform the Worker gets")
}

// run runs the Worker's own build command.
func (b *building) run(ctx context.Context) error {
	for _, dir := range b.cfg.Build.WatchDir {
		b.Dirs = append(b.Dirs, filepath.Join(b.dir, dir))
	}
	if b.cfg.Build.Command == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", b.cfg.Build.Command)
	cmd.Dir = filepath.Join(b.dir, b.cfg.Build.Dir)
	cmd.Stdout, cmd.Stderr = b.opts.Output, b.opts.Output
	if err := cmd.Run(); err != nil {
		return b.cfg.Problem("build", "run it by hand in "+cmd.Dir, "the build command failed: %s: %v", b.cfg.Build.Command, err)
	}
	return nil
}

func (b *building) gatherOrBundle() (string, error) {
	main := filepath.Join(b.dir, b.cfg.Main)
	if b.cfg.Main == "" {
		return "", b.cfg.Problem("assets", `add "main"`, "a Worker of assets alone is not supported yet")
	}
	if info, err := os.Stat(main); err != nil || !info.Mode().IsRegular() {
		b.Dirs = append(b.Dirs, filepath.Dir(main))
		return "", b.cfg.Problem("main", "the path is relative to the configuration file", "the main module %s is not there", b.cfg.Main)
	}
	if b.cfg.NoBundle {
		return b.gather(main)
	}
	return b.bundle(main)
}

// add keeps a module and its source map.
func (b *building) add(name string, kind ModuleType, body, sourceMap []byte) error {
	if len(body) > maxModule {
		return fmt.Errorf("module %s has %d bytes; the limit is %d", name, len(body), maxModule)
	}
	m := Module{Name: name, Type: kind, Size: int64(len(body)), SHA256: b.blob(body)}
	if sourceMap != nil {
		m.SourceMap = &Blob{Size: int64(len(sourceMap)), SHA256: b.blob(sourceMap)}
	}
	for _, have := range b.modules {
		if have.Name == name {
			if have.SHA256 == m.SHA256 {
				return nil
			}
			return fmt.Errorf("two different modules are named %s", name)
		}
	}
	b.modules = append(b.modules, m)
	return nil
}

func (b *building) blob(body []byte) Digest {
	d := digest(body)
	b.blobs[d] = body
	return d
}

// holdExports compares the classes that are bound with what main exports, as
// far as the bundler could tell. The engine has the last word, see Checker.
func (b *building) holdExports() error {
	if b.exports == nil {
		return nil
	}
	if len(b.exports) == 0 {
		return b.cfg.Problem("main", "export default { fetch(request, env, ctx) { … } }; addEventListener is not supported",
			"the main module %s exports nothing", b.cfg.Main)
	}
	for _, o := range b.cfg.DurableObjects {
		own := o.Script == "" || o.Script == b.cfg.Name
		if own && !slices.Contains(b.exports, o.Class) {
			return missingClass(b.cfg, o.Class, b.exports)
		}
	}
	return nil
}

func missingClass(cfg *wrangler.Config, class string, exports []string) error {
	return cfg.Problem("durable_objects", fmt.Sprintf("export class %s extends DurableObject { … }; it exports %v now", class, exports),
		"the main module %s does not export class %q, which a binding names", cfg.Main, class)
}
