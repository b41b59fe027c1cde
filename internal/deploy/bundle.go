package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"celld/internal/wrangler"
)

// BuildError is what the bundler found wrong.
type BuildError struct{ Messages []api.Message }

// Error shows each message with its file, its line and a mark under the place.
func (e *BuildError) Error() string { return strings.TrimRight(e.Format(false), "\n") }

// Format is Error, in colour if asked for.
func (e *BuildError) Format(color bool) string {
	return strings.Join(api.FormatMessages(e.Messages, api.FormatMessagesOptions{Kind: api.ErrorMessage, Color: color}), "")
}

// bundle makes one ES module of main and everything that it imports.
func (b *building) bundle(main string) (string, error) {
	matcher, err := wrangler.NewMatcher(b.cfg.Rules)
	if err != nil {
		return "", err
	}
	name := strings.TrimSuffix(filepath.Base(main), filepath.Ext(main)) + ".js"
	loose := map[string]string{} // files that stay modules of their own, and their names
	if b.cfg.FindAdditionalModules {
		if name, err = b.additional(main, loose); err != nil {
			return "", err
		}
	}
	p := &plugin{building: b, matcher: matcher, loose: loose, main: name, looked: map[string]bool{}}
	result := api.Build(b.buildOptions(main, p))
	if len(result.Errors) > 0 {
		b.Dirs = append(b.Dirs, slices.Sorted(maps.Keys(p.looked))...)
		return "", &BuildError{result.Errors}
	}
	if len(result.Warnings) > 0 {
		b.Notices = append(b.Notices, api.FormatMessages(result.Warnings, api.FormatMessagesOptions{Kind: api.WarningMessage})...)
	}
	if err := b.collect(name, result); err != nil {
		return "", err
	}
	return name, nil
}

func (b *building) buildOptions(main string, p *plugin) api.BuildOptions {
	o := api.BuildOptions{
		EntryPoints: []string{main}, AbsWorkingDir: b.dir,
		// Nothing is written; source maps are relative to this name.
		Outfile: filepath.Join(b.dir, "celld.bundle.js"), AllowOverwrite: true,
		Bundle: true, Format: api.FormatESModule, Target: api.ES2024, Platform: api.PlatformBrowser,
		Conditions: []string{"workerd", "worker", "browser"},
		Sourcemap:  api.SourceMapExternal, SourcesContent: api.SourcesContentInclude, Metafile: true,
		KeepNames: b.cfg.KeepNames, MinifyWhitespace: b.cfg.Minify, MinifyIdentifiers: b.cfg.Minify, MinifySyntax: b.cfg.Minify,
		JSXFactory: b.cfg.JSXFactory, JSXFragment: b.cfg.JSXFragment,
		Loader:   map[string]api.Loader{".js": api.LoaderJSX, ".mjs": api.LoaderJSX, ".cjs": api.LoaderJSX},
		Define:   b.define(),
		Alias:    b.alias(),
		Plugins:  []api.Plugin{{Name: "celld", Setup: p.setup}},
		LogLevel: api.LogLevelSilent, LogLimit: 50,
		// Top-level await and the names of classes are the user's own; nothing else is dropped.
		TreeShaking: api.TreeShakingTrue,
	}
	b.inputs[filepath.Join(b.dir, "package.json")] = true
	b.inputs[filepath.Join(b.dir, "tsconfig.json")] = true
	if b.cfg.TSConfig != "" {
		o.Tsconfig = filepath.Join(b.dir, b.cfg.TSConfig)
		b.inputs[o.Tsconfig] = true
	}
	return o
}

// define is what wrangler defines, and the Worker's own on top.
func (b *building) define() map[string]string {
	mode := "production"
	if b.opts.Dev {
		mode = "development"
	}
	if v := os.Getenv("NODE_ENV"); v != "" {
		mode = v
	}
	quoted, _ := json.Marshal(mode)
	out := map[string]string{}
	for _, root := range []string{"", "global.", "globalThis."} {
		out[root+"process.env.NODE_ENV"] = string(quoted)
	}
	for k, v := range b.cfg.Define {
		out[k] = v
	}
	return out
}

// alias makes relative targets relative to the configuration file.
func (b *building) alias() map[string]string {
	out := map[string]string{}
	for k, v := range b.cfg.Alias {
		if strings.HasPrefix(v, "./") || strings.HasPrefix(v, "../") {
			v = filepath.Join(b.dir, v)
		}
		out[k] = v
	}
	return out
}

// collect takes the bundle, its source map and its exports.
func (b *building) collect(name string, result api.BuildResult) error {
	var body, sourceMap []byte
	for _, f := range result.OutputFiles {
		switch filepath.Ext(f.Path) {
		case ".map":
			sourceMap = f.Contents
		case ".js":
			body = f.Contents
		}
	}
	if body == nil {
		return fmt.Errorf("bug: the bundler made no %s", name)
	}
	var meta struct {
		Outputs map[string]struct {
			EntryPoint string
			Exports    []string
			Imports    []struct{ Path, Kind string }
		}
	}
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return fmt.Errorf("bug: the bundler's metafile does not decode: %w", err)
	}
	for _, out := range meta.Outputs {
		if out.EntryPoint == "" {
			continue
		}
		b.exports = append([]string{}, out.Exports...)
	}
	if strings.Contains(string(body), "export * from") {
		b.exports = nil // something outside of the bundle is passed on
	}
	return b.add(name, ESModule, body, sourceMap)
}

// plugin answers the bundler's questions about single files.
type plugin struct {
	*building
	matcher *wrangler.Matcher
	loose   map[string]string
	main    string
	looked  map[string]bool // directories that relative imports point into
}

// asked marks resolutions of our own, which must not come back to us.
type asked struct{}

const outside = "celld-outside" // namespace of required modules that stay outside

func (p *plugin) setup(build api.PluginBuild) {
	build.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
		if _, own := a.PluginData.(asked); own || a.Kind == api.ResolveEntryPoint {
			return api.OnResolveResult{}, nil
		}
		return p.resolve(build, a)
	})
	build.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: outside}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		// require() cannot reach outside of an ES module, import can.
		quoted, _ := json.Marshal(a.Path)
		body := fmt.Sprintf("import whole from %s;\nmodule.exports = whole;\n", quoted)
		return api.OnLoadResult{Contents: &body, Loader: api.LoaderJS, ResolveDir: p.dir}, nil
	})
	build.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: "file"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		p.note(a.Path)
		return api.OnLoadResult{}, nil
	})
}

// note remembers a file that was read. Load callbacks run on many goroutines.
func (p *plugin) note(path string) {
	notes.Lock()
	defer notes.Unlock()
	p.inputs[path] = true
}

func (p *plugin) resolve(build api.PluginBuild, a api.OnResolveArgs) (api.OnResolveResult, error) {
	if a.Namespace == outside {
		return api.OnResolveResult{Path: a.Path, External: true}, nil
	}
	if name := p.outsideName(a.Path); name != "" {
		return external(name, a.Kind), nil
	}
	p.lookedIn(a)
	kind := p.matcher.Type(a.Path)
	builtin := slices.Contains(builtins, a.Path)
	if kind == "" && !builtin && len(p.loose) == 0 && len(p.cfg.Rules) == 0 {
		return api.OnResolveResult{}, nil // the bundler's own way, and the fast one
	}
	found := build.Resolve(strings.TrimSuffix(a.Path, "?module"), api.ResolveOptions{
		Importer: a.Importer, Namespace: a.Namespace, ResolveDir: a.ResolveDir, Kind: a.Kind, PluginData: asked{}, With: a.With,
	})
	if len(found.Errors) > 0 && builtin {
		return api.OnResolveResult{Errors: []api.Message{{
			Text:  fmt.Sprintf("%q is a module of Node, which this Worker does not have", a.Path),
			Notes: []api.Note{{Text: `add "compatibility_flags": ["nodejs_compat"] to the configuration`}},
		}}}, nil
	}
	if len(found.Errors) > 0 {
		return api.OnResolveResult{}, nil // the bundler says it better, with the place
	}
	if name, ok := p.loose[found.Path]; ok {
		return external(p.fromMain(name), a.Kind), nil
	}
	if kind == "" && found.Namespace == "file" {
		if rel, err := filepath.Rel(p.dir, found.Path); err == nil {
			kind = p.matcher.Type(filepath.ToSlash(rel))
		}
	}
	if t := moduleType(kind); t == Text || t == Data || t == CompiledWasm {
		return p.keep(found.Path, t, a.Kind)
	}
	return api.OnResolveResult{}, nil
}

// lookedIn remembers where a relative import points: if the build fails, a file
// that appears there may be the one that was missing.
func (p *plugin) lookedIn(a api.OnResolveArgs) {
	if !strings.HasPrefix(a.Path, ".") || strings.Contains(a.ResolveDir, "node_modules") {
		return
	}
	notes.Lock()
	defer notes.Unlock()
	p.looked[filepath.Dir(filepath.Join(a.ResolveDir, a.Path))] = true
}

// external leaves a module outside of the bundle.
func external(name string, kind api.ResolveKind) api.OnResolveResult {
	if kind == api.ResolveJSRequireCall {
		return api.OnResolveResult{Path: name, Namespace: outside}
	}
	return api.OnResolveResult{Path: name, External: true}
}

// outsideName is the name of a module that the runtime brings, or "".
func (p *plugin) outsideName(path string) string {
	switch {
	case strings.HasPrefix(path, "cloudflare:"), strings.HasPrefix(path, "node:"), strings.HasPrefix(path, "workerd:"):
		return path
	case slices.Contains(builtins, path) && slices.Contains(p.cfg.CompatibilityFlags, "nodejs_compat") && p.cfg.Alias[path] == "":
		return "node:" + path
	}
	return ""
}

// builtins are Node's modules that may be imported without "node:".
var builtins = strings.Fields(`_http_agent _http_client _http_common _http_incoming _http_outgoing _http_server _stream_duplex
	_stream_passthrough _stream_readable _stream_transform _stream_wrap _stream_writable _tls_common _tls_wrap assert assert/strict
	async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns dns/promises domain events fs
	fs/promises http http2 https inspector inspector/promises module net os path path/posix path/win32 perf_hooks process punycode
	querystring readline readline/promises repl stream stream/consumers stream/promises stream/web string_decoder sys timers
	timers/promises tls trace_events tty url util util/types v8 vm wasi worker_threads zlib`)

// keep makes a file a module beside the bundle. Its name holds its digest, so
// that two files of one name do not meet.
func (p *plugin) keep(path string, t ModuleType, kind api.ResolveKind) (api.OnResolveResult, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return api.OnResolveResult{}, err
	}
	name := string(digest(body)[:20]) + "-" + filepath.Base(path)
	if p.cfg.PreserveFileNames {
		name = filepath.Base(path)
	}
	p.note(path)
	notes.Lock()
	defer notes.Unlock()
	if err := p.add(name, t, body, nil); err != nil {
		return api.OnResolveResult{}, err
	}
	return external(p.fromMain(name), kind), nil
}
