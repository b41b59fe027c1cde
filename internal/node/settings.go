package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Settings are everything an operator can say about a node. A flag and its
// environment name are equals; a flag wins where both are given.
type Settings struct {
	Bucket, Endpoint, Region string

	Listen, InternalListen, Advertise string
	UnsafePublicAdvertise             bool
	TrustForwarded                    bool
	OperatorToken                     string

	Node, WorkDir string

	TTL               time.Duration
	OperationDeadline time.Duration
	ShutdownTotal     time.Duration
	DurabilityTimeout time.Duration
	Durability        string

	Activations  int
	MaxResident  int
	IdleEvict    time.Duration
	MaxRSS       int64
	WakerTick    time.Duration
	DeployPoll   time.Duration
	DeployMaxAge time.Duration
	Weight       int
	Rebalance    time.Duration
	Zone         string

	MaxCellRequests int
	MaxBody         int64
	HeapLimit       int64
	CPULimit        time.Duration
	StatelessPool   int
	MaxRequests     int
	AdmissionWait   time.Duration
}

// setting is one row of the one table that flags, environment, help and errors come from.
type setting struct {
	Env, Flag, Usage string
	Bool             bool
	set              func(*Settings, string) error
	get              func(*Settings) string // what stands there now, for help
}

// Table lists every setting.
var Table = []setting{
	text("CELLD_BUCKET", "bucket", "bucket of the fleet: file:///DIR, s3://NAME/PREFIX, gs://NAME/PREFIX or az://CONTAINER/PREFIX", func(s *Settings) *string { return &s.Bucket }),
	text("S3_ENDPOINT", "endpoint", "endpoint of an S3-compatible store", func(s *Settings) *string { return &s.Endpoint }),
	text("AWS_REGION", "region", "region of the bucket", func(s *Settings) *string { return &s.Region }),
	addr("CELLD_ADDR", "listen", "address of the public listener", func(s *Settings) *string { return &s.Listen }),
	addr("CELLD_INTERNAL_ADDR", "internal-listen", "address of the internal listener (operators and peers)", func(s *Settings) *string { return &s.InternalListen }),
	addr("CELLD_ADVERTISE", "advertise", "host:port at which peers reach the internal listener", func(s *Settings) *string { return &s.Advertise }),
	flag("CELLD_UNSAFE_PUBLIC_ADVERTISE", "unsafe-public-advertise", "allow a public IP address in --advertise", func(s *Settings) *bool { return &s.UnsafePublicAdvertise }),
	flag("CELLD_TRUST_FORWARDED_HEADERS", "trust-forwarded-headers", "take host, scheme and client address from X-Forwarded-*", func(s *Settings) *bool { return &s.TrustForwarded }),
	text("CELLD_OPERATOR_TOKEN", "", "bearer token that the internal listener asks of operators; without one it answers loopback only", func(s *Settings) *string { return &s.OperatorToken }),
	node("CELLD_NODE", "node", "stable name of this node; generated once and kept in the work directory if not given", func(s *Settings) *string { return &s.Node }),
	text("CELLD_WATCH", "work-dir", "directory for local work files", func(s *Settings) *string { return &s.WorkDir }),
	millis("CELLD_TTL_MS", "node lease", 500*time.Millisecond, func(s *Settings) *time.Duration { return &s.TTL }),
	millis("CELLD_OPERATION_DEADLINE_MS", "bound on routing one call", time.Millisecond, func(s *Settings) *time.Duration { return &s.OperationDeadline }),
	millis("CELLD_SHUTDOWN_TOTAL_MS", "bound on a graceful shutdown", time.Millisecond, func(s *Settings) *time.Duration { return &s.ShutdownTotal }),
	seconds("CELLD_LTX_DURABILITY_TIMEOUT_SECS", "how long an output waits for its proof", time.Second, func(s *Settings) *time.Duration { return &s.DurabilityTimeout }),
	choice("CELLD_DURABILITY", "which proof lets an output go: fleet (whichever comes first) or bucket", []string{"fleet", "bucket"}, func(s *Settings) *string { return &s.Durability }),
	count("CELLD_ACTIVATIONS", "cells woken at once", 1, func(s *Settings) *int { return &s.Activations }),
	count("CELLD_MAX_RESIDENT_CELLS", "cells in memory at once (0: no limit)", 0, func(s *Settings) *int { return &s.MaxResident }),
	seconds("CELLD_IDLE_EVICT_S", "evict a cell that was idle so long (0: never)", 0, func(s *Settings) *time.Duration { return &s.IdleEvict }),
	megabytes("CELLD_MAX_RSS_MB", "shed idle cells above this much resident memory (0: 80 % of the machine's)", 0, func(s *Settings) *int64 { return &s.MaxRSS }),
	millis("CELLD_WAKER_TICK_MS", "how often the wake index is scanned", time.Millisecond, func(s *Settings) *time.Duration { return &s.WakerTick }),
	seconds("CELLD_DEPLOY_POLL_S", "how often the deployment pointer is read", time.Second, func(s *Settings) *time.Duration { return &s.DeployPoll }),
	seconds("CELLD_DEPLOY_MAX_AGE_S", "how long old code may stay with cells that find no safe point", 0, func(s *Settings) *time.Duration { return &s.DeployMaxAge }),
	count("CELLD_PLACEMENT_WEIGHT", "share of the fleet's cells this node takes", 1, func(s *Settings) *int { return &s.Weight }),
	millis("CELLD_REBALANCE_INTERVAL_MS", "how often idle cells are given to nodes that have fewer than their share", 100*time.Millisecond, func(s *Settings) *time.Duration { return &s.Rebalance }),
	text("CELLD_ZONE", "", "failure zone of this node; followers are spread over zones", func(s *Settings) *string { return &s.Zone }),
	count("CELLD_MAX_CELL_REQUESTS", "requests under way in one cell; more are refused with 503", 1, func(s *Settings) *int { return &s.MaxCellRequests }),
	bytesOf("CELLD_MAX_REQUEST_BODY_BYTES", "longest request body; a longer one gets 413", func(s *Settings) *int64 { return &s.MaxBody }),
	megabytes("CELLD_V8_HEAP_LIMIT_MB", "JavaScript heap of one isolate", 16<<20, func(s *Settings) *int64 { return &s.HeapLimit }),
	millis("CELLD_CPU_LIMIT_MS", "CPU time of one event", time.Millisecond, func(s *Settings) *time.Duration { return &s.CPULimit }),
	count("CELLD_MAX_STATELESS_ISOLATES", "isolates for stateless requests of one script", 1, func(s *Settings) *int { return &s.StatelessPool }),
	count("CELLD_MAX_REQUESTS", "stateless requests under way on this node (0: no limit)", 0, func(s *Settings) *int { return &s.MaxRequests }),
	millis("CELLD_ADMISSION_WAIT_MS", "how long a request over that limit waits before 503", 0, func(s *Settings) *time.Duration { return &s.AdmissionWait }),
}

// removed are names that older versions of such systems knew. Taking them for
// granted would be worse than stopping, so they stop the start.
var removed = []string{
	"CELLD_OUTPUT_GATE", "CELLD_STORAGE_PROBE", "CELLD_VARS_FILE", "CELLD_WORKER_LOADER", "CELLD_MAX_LOADED_WORKERS",
	"CELLD_SHUTDOWN_DRAIN_MS", "CELLD_DRAIN_TOKEN_WAIT_MS", "CELLD_EVICTIONS", "CELLD_LOG_BUNDLE", "CELLD_LOG_CAPTURE_WORKERS",
	"CELLD_LOG_GROUP_COMMIT_MS", "CELLD_QUEUE_PRODUCER_GROUP_MS", "CELLD_REBALANCE_BATCH_CELLS", "CELLD_PACED_HANDOFF",
	"CELLD_PRESENCE_SHADOW", "CELLD_OTEL_SINK",
}

// Defaults are the settings of a node that was told nothing.
func Defaults() Settings {
	cpus := runtime.GOMAXPROCS(0)
	return Settings{
		Listen: "127.0.0.1:8080", InternalListen: "127.0.0.1:0",
		TTL: 10 * time.Second, OperationDeadline: 15 * time.Second, ShutdownTotal: 40 * time.Second, DurabilityTimeout: 10 * time.Second,
		Durability: "fleet", Activations: min(max(8*cpus, 16), 128), WakerTick: time.Minute, DeployPoll: 30 * time.Second,
		DeployMaxAge: time.Minute, Weight: cpus, Rebalance: 5 * time.Second, MaxCellRequests: 64, MaxBody: 1 << 30, HeapLimit: 128 << 20, CPULimit: 30 * time.Second,
		StatelessPool: cpus, AdmissionWait: time.Second,
	}
}

// FromEnv reads every setting that the environment holds.
func (s *Settings) FromEnv(environ []string) error {
	env := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	for _, name := range removed {
		if _, set := env[name]; set {
			return fmt.Errorf("%s is not a setting of this version: remove it from the environment", name)
		}
	}
	for _, row := range Table {
		if v, set := env[row.Env]; set && v != "" {
			if err := row.set(s, v); err != nil {
				return fmt.Errorf("%s: %w", row.Env, err)
			}
		}
	}
	return nil
}

// Set gives one setting by its row.
func (row setting) Set(s *Settings, v string) error {
	if err := row.set(s, v); err != nil {
		return fmt.Errorf("--%s: %w", row.Flag, err)
	}
	return nil
}

// Get is the value of a setting as text.
func (row setting) Get(s *Settings) string { return row.get(s) }

// Check tells whether the settings can start a node together.
func (s *Settings) Check() error {
	if s.Bucket == "" {
		return errors.New("no bucket: give --bucket or CELLD_BUCKET, such as file:///var/lib/celld/bucket or s3://name")
	}
	if !loopback(s.Listen) && s.InternalListen == Defaults().InternalListen {
		return fmt.Errorf("--listen %s is open to others, so --internal-listen must be given: operators and peers use that port, and it must not be public", s.Listen)
	}
	if s.Advertise != "" && !s.UnsafePublicAdvertise {
		host, _, _ := net.SplitHostPort(s.Advertise)
		if ip, err := netip.ParseAddr(host); err == nil && !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			return fmt.Errorf("--advertise %s is a public IP address: peers must talk over a private network (or give --unsafe-public-advertise)", s.Advertise)
		}
	}
	return nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// The kinds of rows.

func text(env, flag, usage string, at func(*Settings) *string) setting {
	return setting{Env: env, Flag: flag, Usage: usage, get: func(s *Settings) string { return *at(s) },
		set: func(s *Settings, v string) error { *at(s) = strings.TrimSpace(v); return nil }}
}

func checked(env, flag, usage string, at func(*Settings) *string, check func(string) error) setting {
	row := text(env, flag, usage, at)
	row.set = func(s *Settings, v string) error {
		v = strings.TrimSpace(v)
		if err := check(v); err != nil {
			return err
		}
		*at(s) = v
		return nil
	}
	return row
}

func addr(env, flag, usage string, at func(*Settings) *string) setting {
	return checked(env, flag, usage, at, func(v string) error {
		_, port, err := net.SplitHostPort(v)
		if err != nil {
			return fmt.Errorf("%q is not of the form host:port", v)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return fmt.Errorf("%q has no port between 0 and 65535", v)
		}
		return nil
	})
}

func node(env, flag, usage string, at func(*Settings) *string) setting {
	return checked(env, flag, usage, at, func(v string) error {
		if len(v) > 128 || strings.Trim(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			return fmt.Errorf("%q is not 1 to 128 letters, digits, dots, dashes or underscores", v)
		}
		return nil
	})
}

func choice(env, usage string, of []string, at func(*Settings) *string) setting {
	return checked(env, "", usage, at, func(v string) error {
		for _, o := range of {
			if v == o {
				return nil
			}
		}
		return fmt.Errorf("%q is none of %s", v, strings.Join(of, ", "))
	})
}

func flag(env, name, usage string, at func(*Settings) *bool) setting {
	return setting{Env: env, Flag: name, Usage: usage, Bool: true,
		get: func(s *Settings) string { return strconv.FormatBool(*at(s)) },
		set: func(s *Settings, v string) error {
			switch v {
			case "1", "true":
				*at(s) = true
			case "0", "false":
				*at(s) = false
			default:
				return fmt.Errorf("%q is neither 0 nor 1", v)
			}
			return nil
		}}
}

func number(env, usage, unit string, least int64, get func(*Settings) int64, put func(*Settings, int64)) setting {
	return setting{Env: env, Usage: usage + ", in " + unit,
		get: func(s *Settings) string { return strconv.FormatInt(get(s), 10) },
		set: func(s *Settings, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < least {
				return fmt.Errorf("%q is not a whole number of %s from %d up", v, unit, least)
			}
			put(s, n)
			return nil
		}}
}

func duration(env, usage, name string, unit, least time.Duration, at func(*Settings) *time.Duration) setting {
	return number(env, usage, name, int64((least+unit-1)/unit),
		func(s *Settings) int64 { return int64(*at(s) / unit) },
		func(s *Settings, n int64) { *at(s) = time.Duration(n) * unit })
}

func millis(env, usage string, least time.Duration, at func(*Settings) *time.Duration) setting {
	return duration(env, usage, "milliseconds", time.Millisecond, least, at)
}

func seconds(env, usage string, least time.Duration, at func(*Settings) *time.Duration) setting {
	return duration(env, usage, "seconds", time.Second, least, at)
}

func count(env, usage string, least int, at func(*Settings) *int) setting {
	row := number(env, usage, "units", int64(least), func(s *Settings) int64 { return int64(*at(s)) }, func(s *Settings, n int64) { *at(s) = int(n) })
	row.Usage = usage
	return row
}

func bytesOf(env, usage string, at func(*Settings) *int64) setting {
	return number(env, usage, "bytes", 0, func(s *Settings) int64 { return *at(s) }, func(s *Settings, n int64) { *at(s) = n })
}

func megabytes(env, usage string, least int64, at func(*Settings) *int64) setting {
	return number(env, usage, "MiB", least>>20, func(s *Settings) int64 { return *at(s) >> 20 }, func(s *Settings, n int64) { *at(s) = n << 20 })
}

// bucketURL turns a bare path into a URL and makes relative directories absolute.
func bucketURL(v string) (string, error) {
	rest, isFile := strings.CutPrefix(v, "file://")
	if !isFile && strings.Contains(v, "://") {
		return v, nil
	}
	if rest == "" {
		return "", errors.New("the directory of the bucket is empty")
	}
	abs, err := filepath.Abs(rest)
	return "file://" + abs, err
}
