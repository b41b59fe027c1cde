package deploy

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"celld/internal/wrangler"
)

// notes guards what the bundler's goroutines write down about a build.
var notes sync.Mutex

// maxAdditional bounds the files that are gathered for one Worker.
const maxAdditional = 5000

// gathering are the rules that hold behind a Worker's own when modules are
// taken as they are.
var gathering = []wrangler.Rule{
	{Type: "ESModule", Globs: []string{"**/*.js", "**/*.mjs"}},
	{Type: "CommonJS", Globs: []string{"**/*.cjs"}},
}

func moduleType(rule string) ModuleType {
	switch rule {
	case "ESModule":
		return ESModule
	case "CommonJS":
		return CommonJS
	case "Text":
		return Text
	case "Data":
		return Data
	case "CompiledWasm":
		return CompiledWasm
	}
	return ""
}

// gather takes main and the modules beside it as they are (no_bundle).
func (b *building) gather(main string) (string, error) {
	switch ext := filepath.Ext(main); ext {
	case ".js", ".mjs":
	default:
		return "", b.cfg.Problem("no_bundle", "remove no_bundle, or point main at JavaScript", "a main module of type %q needs the bundler", ext)
	}
	loose := map[string]string{}
	name, err := b.additional(main, loose)
	if err != nil {
		return "", err
	}
	body, err := os.ReadFile(main)
	if err != nil {
		return "", err
	}
	b.inputs[main] = true
	return name, b.add(name, ESModule, body, beside(main))
}

// additional finds the modules below the base directory, and the name that
// main has there.
func (b *building) additional(main string, loose map[string]string) (string, error) {
	base := filepath.Dir(main)
	if b.cfg.BaseDir != "" {
		base = filepath.Join(b.dir, b.cfg.BaseDir)
	}
	rel, err := filepath.Rel(base, main)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "", b.cfg.Problem("base_dir", "base_dir must contain main", "the main module %s is not below base_dir %s", b.cfg.Main, b.cfg.BaseDir)
	}
	matcher, err := wrangler.NewMatcher(append(append([]wrangler.Rule(nil), b.cfg.Rules...), gathering...))
	if err != nil {
		return "", err
	}
	if err := b.walk(base, main, matcher, loose); err != nil {
		return "", err
	}
	name := filepath.ToSlash(rel)
	if !b.cfg.NoBundle {
		name = strings.TrimSuffix(name, path.Ext(name)) + ".js"
	}
	return name, nil
}

func (b *building) walk(base, main string, matcher *wrangler.Matcher, loose map[string]string) error {
	return filepath.WalkDir(base, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if file != base && (e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".")) {
				return filepath.SkipDir
			}
			b.Dirs = append(b.Dirs, file)
			return nil
		}
		rel, err := filepath.Rel(base, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		kind := moduleType(matcher.Type(name))
		if kind == "" || file == main || !e.Type().IsRegular() {
			return nil
		}
		if len(loose) >= maxAdditional {
			return fmt.Errorf("%s holds more than %d modules: set base_dir to a smaller directory", base, maxAdditional)
		}
		loose[file] = name
		b.inputs[file] = true
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return b.add(name, kind, body, beside(file))
	})
}

// beside is the source map next to a file, or nil.
func beside(file string) []byte {
	body, err := os.ReadFile(file + ".map")
	if err != nil {
		return nil
	}
	return body
}

// fromMain is how the main module imports the module name.
func (p *plugin) fromMain(name string) string {
	rel, err := filepath.Rel(path.Dir(p.main), name)
	if err != nil {
		return "./" + name
	}
	rel = filepath.ToSlash(rel)
	if !strings.HasPrefix(rel, ".") {
		rel = "./" + rel
	}
	return rel
}
