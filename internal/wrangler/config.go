package wrangler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile bounds a configuration file.
const maxFile = 4 << 20

// names are the configuration files that Load looks for, in this order.
var names = []string{"wrangler.json", "wrangler.jsonc", "wrangler.toml"}

// Config is one Worker's configuration, its environment laid over it.
type Config struct {
	File string // the configuration file
	Dir  string // its directory; paths below are relative to it
	Env  string // the environment that was chosen, or ""

	Name               string
	Main               string
	CompatibilityDate  string // "" if not given
	CompatibilityFlags []string

	DurableObjects []DurableObject
	Migrations     []Migration
	Classes        []Class // what the migrations leave alive, in order of their names

	Vars    map[string]json.RawMessage
	Secrets []string // names that must have a value
	Crons   []string

	Bundling
	Build Build

	Assets        *Assets
	Services      []Service
	KV            []KVNamespace
	D1            []D1Database
	R2            []R2Bucket
	Producers     []QueueProducer
	Consumers     []QueueConsumer
	Workflows     []Workflow
	WorkerLoaders []string // bindings
	AI            string   // binding
	TailConsumers []string // Workers
	VersionInfo   string   // binding of version_metadata
	CPULimitMS    int64    // limits.cpu_ms; 0: the node's limit

	// Notices say what was accepted and means nothing here.
	Notices Problems

	src   *source
	where map[string]member // top-level keys that are in effect
}

// Bundling is how the modules are made.
type Bundling struct {
	Define                map[string]string
	Alias                 map[string]string
	Rules                 []Rule
	NoBundle              bool
	FindAdditionalModules bool
	BaseDir               string
	PreserveFileNames     bool
	Minify                bool
	KeepNames             bool
	TSConfig              string
	JSXFactory            string
	JSXFragment           string
}

// Build is a command that runs before bundling.
type Build struct {
	Command  string
	Dir      string
	WatchDir []string
}

// Rule gives the files that match Globs a module type.
type Rule struct {
	Type        string // ESModule, CommonJS, Text, Data, CompiledWasm
	Globs       []string
	Fallthrough bool
}

// DurableObject binds a class.
type DurableObject struct {
	Binding, Class string
	Script         string // another Worker that has the class, or ""
}

// Service binds another Worker.
type Service struct {
	Binding, Service, Entrypoint string
	Props                        json.RawMessage
}

// KVNamespace, D1Database and R2Bucket bind stores by their names.
type KVNamespace struct{ Binding, ID string }
type D1Database struct {
	Binding, Name, ID             string
	MigrationsDir, MigrationTable string
}
type R2Bucket struct{ Binding, Name string }

// QueueProducer and QueueConsumer are the two ends of a queue.
type QueueProducer struct {
	Binding, Queue string
	DeliveryDelay  int64 // seconds
}
type QueueConsumer struct {
	Queue, DeadLetterQueue        string
	MaxBatchSize, MaxBatchTimeout int64 // -1: the default
	MaxRetries, MaxConcurrency    int64 // -1: the default
	RetryDelay                    int64 // seconds; -1: the default
}

// Workflow binds a workflow class.
type Workflow struct{ Binding, Name, Class, Script string }

// Assets are static files.
type Assets struct {
	Directory, Binding string
	HTMLHandling       string
	NotFoundHandling   string
	RunWorkerFirst     bool
	WorkerFirst        []string // route patterns, when RunWorkerFirst is a list
}

// Options choose what Load reads.
type Options struct {
	Env string // environment; "" is the top level
}

// Find is the configuration file that path means: the file itself, or the one
// in the directory.
func Find(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no %s: give the directory of a Worker or its configuration file", path)
	}
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return path, nil
	}
	for _, name := range names {
		if file := filepath.Join(path, name); isFile(file) {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s holds no configuration: create wrangler.jsonc with at least name, main and compatibility_date", path)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Load reads the configuration at path, a file or a directory that holds one.
func Load(path string, opts Options) (*Config, error) {
	file, err := Find(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB: that is no configuration", file, maxFile>>20)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, body, opts)
}

// Parse reads body as the contents of file, whose name tells the format.
func Parse(file string, body []byte, opts Options) (*Config, error) {
	src := &source{name: file, text: body}
	root := src.parse()
	if root == nil || len(src.found) > 0 {
		return nil, src.err()
	}
	if root.kind != object {
		src.errorf(root.pos, root.end, "", "the configuration must be an object, not %s", root.kind)
		return nil, src.err()
	}
	d := &decoder{source: src, cfg: &Config{File: file, Dir: filepath.Dir(file), Env: opts.Env, src: src}}
	effective := d.inherit(root, opts.Env)
	d.decode(effective)
	d.check()
	d.replay()
	d.cfg.Notices = src.notes
	if err := src.err(); err != nil {
		return nil, err
	}
	return d.cfg, nil
}

func (s *source) parse() *tree {
	switch ext := strings.ToLower(filepath.Ext(s.name)); ext {
	case ".toml":
		return parseTOML(s)
	case ".json", ".jsonc":
		return parseJSON(s)
	default:
		s.errorf(-1, -1, "", "a configuration is .jsonc, .json or .toml, not %q", ext)
		return nil
	}
}

// Require stops at sections that are in use and not in supported: to leave them
// out silently would change what the Worker does.
func (c *Config) Require(supported map[string]bool) error {
	src := &source{name: c.File, text: c.src.text}
	for _, s := range served {
		at, used := c.where[s.key]
		if !used || supported[s.key] || empty(at.value) {
			continue
		}
		src.errorf(at.pos, at.end, "remove "+s.key+", or "+s.instead,
			"%q is not supported yet: %s", s.key, s.why)
	}
	return src.err()
}

func empty(t *tree) bool {
	return t.kind == null || t.kind == list && len(t.items) == 0 || t.kind == object && len(t.members) == 0
}

// Problem is an error at the place of a top-level key, for checks that are
// made outside: a class that main does not export, a file that is not there.
func (c *Config) Problem(key, note, format string, args ...any) error {
	src := &source{name: c.File, text: c.src.text}
	pos, end := -1, -1
	if at, ok := c.where[key]; ok {
		pos, end = at.pos, at.end
	}
	src.errorf(pos, end, note, format, args...)
	return src.err()
}

// Class is the live class of that name.
func (c *Config) Class(name string) (Class, bool) {
	i := slices.IndexFunc(c.Classes, func(k Class) bool { return k.Name == name })
	if i < 0 {
		return Class{}, false
	}
	return c.Classes[i], true
}
