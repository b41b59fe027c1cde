package wrangler

import "slices"

// rule says how a key behaves when an environment is chosen.
type rule uint8

const (
	inherits rule = iota // the environment's own value, else the top level's
	own                  // each environment must give its own
	topOnly              // never inside an environment
)

// field is a key with a meaning here.
type field struct {
	key  string
	rule rule
	read func(*decoder, member)
}

// fields are decoded in this order. (A function, because reading an environment refers back to it.)
func fields() []field {
	return []field{
		{"name", inherits, (*decoder).name},
		{"main", inherits, func(d *decoder, m member) { d.path(m, &d.cfg.Main) }},
		{"compatibility_date", inherits, (*decoder).date},
		{"compatibility_flags", inherits, (*decoder).flags},
		{"durable_objects", own, (*decoder).durableObjects},
		{"migrations", inherits, (*decoder).migrations},
		{"vars", own, (*decoder).vars},
		{"define", own, func(d *decoder, m member) { d.cfg.Define = d.stringMap(m) }},
		{"alias", inherits, func(d *decoder, m member) { d.cfg.Alias = d.stringMap(m) }},
		{"rules", inherits, (*decoder).rules},
		{"no_bundle", inherits, func(d *decoder, m member) { d.bool(m, &d.cfg.NoBundle) }},
		{"find_additional_modules", inherits, func(d *decoder, m member) { d.bool(m, &d.cfg.FindAdditionalModules) }},
		{"base_dir", inherits, func(d *decoder, m member) { d.path(m, &d.cfg.BaseDir) }},
		{"preserve_file_names", inherits, func(d *decoder, m member) { d.bool(m, &d.cfg.PreserveFileNames) }},
		{"minify", inherits, func(d *decoder, m member) { d.bool(m, &d.cfg.Minify) }},
		{"keep_names", inherits, func(d *decoder, m member) { d.bool(m, &d.cfg.KeepNames) }},
		{"tsconfig", inherits, func(d *decoder, m member) { d.path(m, &d.cfg.TSConfig) }},
		{"jsx_factory", inherits, func(d *decoder, m member) { d.string(m, &d.cfg.JSXFactory) }},
		{"jsx_fragment", inherits, func(d *decoder, m member) { d.string(m, &d.cfg.JSXFragment) }},
		{"build", inherits, (*decoder).build},
		{"limits", inherits, (*decoder).limits},
		{"secrets", own, (*decoder).secrets},
		{"triggers", inherits, (*decoder).triggers},
		{"assets", inherits, (*decoder).assets},
		{"services", own, (*decoder).services},
		{"kv_namespaces", own, (*decoder).kvNamespaces},
		{"d1_databases", own, (*decoder).d1Databases},
		{"r2_buckets", own, (*decoder).r2Buckets},
		{"queues", own, (*decoder).queues},
		{"workflows", own, (*decoder).workflows},
		{"worker_loaders", own, (*decoder).workerLoaders},
		{"ai", own, func(d *decoder, m member) { d.cfg.AI = d.bindingOf(m, "remote", "experimental_remote", "staging") }},
		{"version_metadata", own, func(d *decoder, m member) { d.cfg.VersionInfo = d.bindingOf(m) }},
		{"tail_consumers", own, (*decoder).tailConsumers},
		{"env", topOnly, func(*decoder, member) {}},
	}
}

// served are the sections that Require checks.
var served = []struct{ key, why, instead string }{
	{"assets", "static files would not be served", "serve the files from the Worker"},
	{"services", "calls through the binding would fail", "call the other Worker over HTTP with fetch"},
	{"kv_namespaces", "the binding would be missing", "keep the values in a Durable Object"},
	{"d1_databases", "the binding would be missing", "keep the tables in a Durable Object (ctx.storage.sql)"},
	{"r2_buckets", "the binding would be missing", "reach the object store with fetch"},
	{"queues", "messages would never be delivered", "keep the work in a Durable Object and use an alarm"},
	{"workflows", "the binding would be missing", "use a Durable Object with an alarm"},
	{"worker_loaders", "the binding would be missing", "bundle the code into this Worker"},
	{"ai", "the binding would be missing", "call a model over HTTP with fetch"},
	{"triggers", "the schedule would never fire", "use a Durable Object's alarm"},
	{"secrets", "the names could not be checked", "give the values in vars or .dev.vars"},
	{"version_metadata", "the binding would be missing", "give the version in vars"},
	{"tail_consumers", "no events would be sent", "read the node's logs"},
	{"build", "the command would not be run", "run it before the deploy"},
	{"limits", "the limit would not be kept", "set CELLD_CPU_LIMIT_MS on the node"},
}

// meaningless keys configure the machines or the account that celld replaces.
var meaningless = []string{
	"$schema", "observability", "upload_source_maps", "placement", "workers_dev", "preview_urls", "routes", "route",
	"account_id", "send_metrics", "logpush", "dev", "keep_vars", "legacy_env", "first_party_worker", "compliance_region",
	"usage_model", "zone_id", "cloudchamber", "python_modules", "previews",
}

// refused keys are known and would change what the Worker does.
var refused = map[string]string{
	"analytics_engine_datasets": "write the data points to a Durable Object",
	"browser":                   "drive a browser of your own over HTTP",
	"containers":                "run the containers beside celld and reach them with fetch",
	"data_blobs":                "import the file in a module instead (rules with type Data)",
	"dispatch_namespaces":       "route to the Workers in your own code",
	"hyperdrive":                "connect to the database from the Worker itself",
	"images":                    "call an image service with fetch",
	"logfwdr":                   "read the node's logs",
	"media":                     "call a media service with fetch",
	"mtls_certificates":         "put a proxy that holds the certificate in front",
	"pages_build_output_dir":    "deploy a Worker: give main, and assets for the files",
	"pipelines":                 "write the records to a Durable Object",
	"ratelimits":                "count in a Durable Object",
	"secrets_store_secrets":     "give the values as secrets",
	"send_email":                "send mail through a service with fetch",
	"site":                      "use assets",
	"streaming_tail_consumers":  "read the node's logs",
	"text_blobs":                "import the file in a module instead (rules with type Text)",
	"unsafe":                    "remove it; it reaches into Cloudflare's own machines",
	"unsafe_hello_world":        "remove it",
	"vectorize":                 "keep the vectors in a Durable Object or a service of your own",
	"vpc_services":              "reach the service with fetch",
	"wasm_modules":              "import the file in a module instead (rules with type CompiledWasm)",
}

// nearest is the known name that bad was probably meant to be, or "".
func nearest(bad string, known []string) string {
	best, least := "", 1+min(3, (len(bad)+2)/3)
	for _, k := range known {
		if d := distance(bad, k, least); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the edits (a swap of neighbours is one) between a and b. From
// limit on, the count is not exact.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := func() []int { return make([]int, len(b)+1) }
	before, last, now := row(), row(), row()
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

func isMeaningless(key string) bool { return slices.Contains(meaningless, key) }
