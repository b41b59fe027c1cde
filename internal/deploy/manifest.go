package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

const (
	// manifestFormat is the newest format this build reads and the one it writes.
	manifestFormat = 1
	// maxModule and maxModules bound one module, and all of a script together.
	maxModule  = 64 << 20
	maxModules = 256 << 20
	// maxManifest bounds the manifest; vars count in it.
	maxManifest = 16 << 20
)

// Digest is the SHA-256 of a blob, in hex.
type Digest string

func digest(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest(hex.EncodeToString(sum[:]))
}

func (d Digest) valid() bool {
	b, err := hex.DecodeString(string(d))
	return err == nil && len(b) == sha256.Size && strings.ToLower(string(d)) == string(d)
}

// key is where the blob lies in the bucket.
func (d Digest) key() string { return "deploy-blobs/sha256/" + string(d[:2]) + "/" + string(d) }

func manifestKey(version string) string { return "deploy/" + version + "/manifest.json" }

// Manifest is everything that a deployment is, but for the bytes of its blobs.
type Manifest struct {
	Format   int      `json:"format"`
	Features []string `json:"required_features,omitempty"` // a node that does not know one refuses the deployment
	Scripts  []Script `json:"scripts"`                     // the first is the default one
}

// Script is one Worker.
type Script struct {
	Name               string     `json:"name"`
	Main               string     `json:"main"` // name of the main module
	CompatibilityDate  string     `json:"compatibility_date"`
	CompatibilityFlags []string   `json:"compatibility_flags,omitempty"`
	Modules            []Module   `json:"modules"`
	Classes            []Class    `json:"classes,omitempty"`
	Bindings           []Binding  `json:"bindings,omitempty"`
	Crons              []string   `json:"crons,omitempty"`
	Consumers          []Consumer `json:"queue_consumers,omitempty"`
	TailConsumers      []string   `json:"tail_consumers,omitempty"`
	RequiredSecrets    []string   `json:"required_secrets,omitempty"`
	CPULimitMS         int64      `json:"cpu_limit_ms,omitempty"` // 0: the node's limit
}

// ModuleType is how a module's bytes are read.
type ModuleType string

// The module types.
const (
	ESModule     ModuleType = "esm"
	CommonJS     ModuleType = "cjs"
	Text         ModuleType = "text"
	Data         ModuleType = "data"
	CompiledWasm ModuleType = "wasm"
	JSON         ModuleType = "json"
)

// Module is one module of a script. Names are relative paths with slashes;
// imports resolve against them like URLs.
type Module struct {
	Name      string     `json:"name"`
	Type      ModuleType `json:"type"`
	Size      int64      `json:"size"`
	SHA256    Digest     `json:"sha256"`
	SourceMap *Blob      `json:"source_map,omitempty"`
}

// Blob names bytes in the bucket.
type Blob struct {
	Size   int64  `json:"size"`
	SHA256 Digest `json:"sha256"`
}

// Class is a Durable Object class that lives in a script.
type Class struct {
	Name string `json:"name"`
	// Namespace is the class part of cell names. It stays when the class is renamed.
	Namespace string `json:"namespace"`
	SQLite    bool   `json:"sqlite,omitempty"`
}

// The types of bindings.
const (
	PlainText       = "plain_text"
	JSONValue       = "json"
	DurableObject   = "durable_object_namespace"
	ServiceBinding  = "service"
	KVNamespace     = "kv_namespace"
	D1              = "d1"
	R2Bucket        = "r2_bucket"
	Queue           = "queue"
	WorkflowBinding = "workflow"
	AssetsBinding   = "assets"
	WorkerLoader    = "worker_loader"
	AI              = "ai"
	VersionMetadata = "version_metadata"
)

// Binding is one property of env.
type Binding struct {
	Name string          `json:"name"`
	Type string          `json:"type"`
	Text string          `json:"text,omitempty"`
	JSON json.RawMessage `json:"json,omitempty"` // a value, or the props of a service

	Class      string `json:"class_name,omitempty"`
	Script     string `json:"script_name,omitempty"` // where the class or service is; "": this script
	Namespace  string `json:"namespace,omitempty"`   // class part of the cells' names
	Entrypoint string `json:"entrypoint,omitempty"`
	// Resource names the store, queue or workflow behind the binding.
	Resource string `json:"resource,omitempty"`
	Delay    int64  `json:"delivery_delay,omitempty"` // seconds
}

// Consumer takes messages of a queue. -1 stands for the default.
type Consumer struct {
	Queue           string `json:"queue"`
	DeadLetterQueue string `json:"dead_letter_queue,omitempty"`
	MaxBatchSize    int64  `json:"max_batch_size"`
	MaxBatchTimeout int64  `json:"max_batch_timeout"`
	MaxRetries      int64  `json:"max_retries"`
	MaxConcurrency  int64  `json:"max_concurrency"`
	RetryDelay      int64  `json:"retry_delay"`
}

// Deployment is a manifest with its bytes at hand.
type Deployment struct {
	Version  string
	Manifest Manifest
	blobs    map[Digest][]byte
}

// Default is the script that answers requests.
func (d *Deployment) Default() *Script { return &d.Manifest.Scripts[0] }

// Script is the script of that name, or nil.
func (d *Deployment) Script(name string) *Script {
	for i := range d.Manifest.Scripts {
		if d.Manifest.Scripts[i].Name == name {
			return &d.Manifest.Scripts[i]
		}
	}
	return nil
}

// Body is the bytes of a module. Nobody may change them.
func (d *Deployment) Body(m Module) []byte { return d.blobs[m.SHA256] }

// SourceMap is the source map of a module, or nil.
func (d *Deployment) SourceMap(m Module) []byte {
	if m.SourceMap == nil {
		return nil
	}
	return d.blobs[m.SourceMap.SHA256]
}

// Module is the module of that name, or nil.
func (s *Script) Module(name string) *Module {
	for i := range s.Modules {
		if s.Modules[i].Name == name {
			return &s.Modules[i]
		}
	}
	return nil
}

// seal fixes the version of a deployment that was put together.
func (d *Deployment) seal() error {
	if n := len(d.Manifest.encode()); n > maxManifest {
		return fmt.Errorf("the manifest (vars count in it) has %d bytes; the limit is %d", n, maxManifest)
	}
	if err := d.Manifest.check(); err != nil {
		return err
	}
	d.Version = version(d.Manifest.encode())
	return nil
}

// version is a manifest's name: half a SHA-256 is collision-free enough and
// can still be read aloud in pieces.
func version(manifest []byte) string { return string(digest(manifest)[:32]) }

func (m *Manifest) encode() []byte {
	body, err := json.Marshal(m)
	if err != nil { // raw JSON inside was checked when it was read
		panic(fmt.Sprintf("deploy: bug: manifest does not encode: %v", err))
	}
	return body
}

// ErrUnfit: this build cannot run the deployment; reading it again changes nothing.
var ErrUnfit = errors.New("this node cannot run the deployment")

// Features are the required_features that this build knows.
var Features = map[string]bool{}

// decodeManifest reads and checks a manifest. The error is an ErrUnfit.
func decodeManifest(body []byte) (*Manifest, error) {
	var head struct{ Format int }
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, fmt.Errorf("%w: the manifest is not JSON: %w", ErrUnfit, err)
	}
	if head.Format > manifestFormat {
		return nil, fmt.Errorf("%w: its format is %d and this celld reads up to %d: upgrade this node", ErrUnfit, head.Format, manifestFormat)
	}
	m := new(Manifest)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: the manifest does not decode: %w", ErrUnfit, err)
	}
	for _, f := range m.Features {
		if !Features[f] {
			return nil, fmt.Errorf("%w: it needs feature %q: upgrade this node", ErrUnfit, f)
		}
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	if m.Format != manifestFormat {
		return fmt.Errorf("the manifest has format %d, not %d", m.Format, manifestFormat)
	}
	if len(m.Scripts) == 0 {
		return errors.New("the manifest holds no script")
	}
	names := map[string]bool{}
	for i := range m.Scripts {
		s := &m.Scripts[i]
		if names[s.Name] {
			return fmt.Errorf("two Workers are named %q: give one of them another name", s.Name)
		}
		names[s.Name] = true
		if err := s.check(); err != nil {
			return fmt.Errorf("Worker %q: %w", s.Name, err)
		}
	}
	return nil
}

func (s *Script) check() error {
	if s.Module(s.Main) == nil {
		return fmt.Errorf("the main module %q is not among the modules", s.Main)
	}
	total := int64(0)
	seen := map[string]bool{}
	for _, m := range s.Modules {
		switch {
		case m.Name == "" || path.IsAbs(m.Name) || path.Clean(m.Name) != m.Name || strings.HasPrefix(m.Name, ".."):
			return fmt.Errorf("module name %q is not a relative path", m.Name)
		case seen[m.Name]:
			return fmt.Errorf("two modules are named %q", m.Name)
		case !m.SHA256.valid() || m.SourceMap != nil && !m.SourceMap.SHA256.valid():
			return fmt.Errorf("module %q has no valid SHA-256", m.Name)
		case m.Size < 0 || m.Size > maxModule || m.SourceMap != nil && (m.SourceMap.Size < 0 || m.SourceMap.Size > maxModule):
			return fmt.Errorf("module %q has %d bytes; the limit is %d", m.Name, m.Size, maxModule)
		}
		seen[m.Name] = true
		if total += m.Size; total > maxModules {
			return fmt.Errorf("the modules have more than %d bytes together", maxModules)
		}
	}
	return nil
}
