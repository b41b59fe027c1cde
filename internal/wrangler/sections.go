package wrangler

import (
	"encoding/json"
	"slices"
	"strings"
)

const (
	// maxName is DNS's limit for one label.
	maxName = 63
	// maxClass leaves room for ":" and the 64 digits of an id in a cell's name.
	maxClass = 128
)

func (d *decoder) name(m member) {
	if !d.string(m, &d.cfg.Name) {
		return
	}
	n := d.cfg.Name
	if len(n) < 1 || len(n) > maxName || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		d.errorf(m.value.pos, m.value.end, "", "name %q is not 1 to %d lower-case letters, digits and dashes", n, maxName)
	}
}

func (d *decoder) date(m member) {
	if d.string(m, &d.cfg.CompatibilityDate) && !validDate(d.cfg.CompatibilityDate) {
		d.errorf(m.value.pos, m.value.end, "write it as YYYY-MM-DD", "compatibility_date %q is no date", d.cfg.CompatibilityDate)
	}
}

func (d *decoder) flags(m member) {
	flags := d.strings(m)
	for i, f := range flags {
		if j := slices.Index(flags[:i], f); j >= 0 {
			d.errorf(m.value.pos, m.value.end, "remove one of the two", "compatibility flag %q is given twice", f)
		}
		if j := slices.IndexFunc(flags[:i], func(g string) bool { return contradict(f, g) }); j >= 0 {
			d.errorf(m.value.pos, m.value.end, "remove one of the two", "compatibility flags %q and %q contradict each other", flags[j], f)
		}
	}
	d.cfg.CompatibilityFlags = flags
}

// opposites are flags whose names do not show that they contradict. Names that
// do are NAME with no_NAME, and NAME with its verb turned.
var opposites = [][2]string{
	{"delete_all_deletes_alarm", "delete_all_preserves_alarm"},
	{"url_standard", "url_original"},
	{"response_redirect_url_standard", "response_redirect_url_original"},
	{"streams_enable_constructors", "streams_disable_constructors"},
	{"transformstream_enable_standard_constructor", "transformstream_disable_standard_constructor"},
	{"export_commonjs_default", "export_commonjs_namespace"},
	{"capture_async_api_throws", "do_not_capture_async_api_throws"},
	{"dont_substitute_null_on_type_error", "substitute_null_on_type_error"},
	{"formdata_parser_supports_files", "formdata_parser_converts_files_to_strings"},
	{"fetch_refuses_unknown_protocols", "fetch_treats_unknown_protocols_as_http"},
	{"durable_object_fetch_requires_full_url", "durable_object_fetch_allows_relative_url"},
	{"streams_byob_reader_detaches_buffer", "streams_byob_reader_does_not_detach_buffer"},
	{"workers_api_getters_setters_on_prototype", "workers_api_getters_setters_on_instance"},
	{"dynamic_dispatch_tunnel_exceptions", "dynamic_dispatch_treat_exceptions_as_500"},
	{"websocket_standard_binary_type", "no_websocket_standard_binary_type"},
	{"enable_ctx_exports", "disable_ctx_exports"},
	{"enable_nodejs_process_v2", "disable_nodejs_process_v2"},
	{"nodejs_compat_populate_process_env", "nodejs_compat_do_not_populate_process_env"},
	{"fetcher_no_get_put_delete", "fetcher_has_get_put_delete"},
}

func contradict(a, b string) bool {
	turned := func(a, b string) bool {
		return a == "no_"+b || strings.HasPrefix(a, "enable_") && "disable_"+a[len("enable_"):] == b
	}
	return turned(a, b) || turned(b, a) || slices.ContainsFunc(opposites, func(p [2]string) bool {
		return p == [2]string{a, b} || p == [2]string{b, a}
	})
}

func (d *decoder) durableObjects(m member) {
	d.entry(m.value, m.name, nil, map[string]func(member){"bindings": func(m member) {
		d.each(m, []string{"name", "class_name"}, func(int) map[string]func(member) {
			d.cfg.DurableObjects = append(d.cfg.DurableObjects, DurableObject{})
			b := &d.cfg.DurableObjects[len(d.cfg.DurableObjects)-1]
			return map[string]func(member){
				"name": d.binding(&b.Binding), "class_name": d.class(&b.Class), "script_name": d.text(&b.Script),
				"environment": func(m member) {
					d.errorf(m.pos, m.end, "write the full name in script_name, such as worker-staging", "%q is not supported in bindings", m.name)
				},
			}
		})
	}})
}

func (d *decoder) class(to *string) func(member) {
	return func(m member) {
		if d.string(m, to) && (!identifier(*to) || len(*to) > maxClass) {
			d.errorf(m.value.pos, m.value.end, "", "%q is not the name of a class", *to)
		}
	}
}

func (d *decoder) vars(m member) {
	if m.value.kind != object {
		d.wrong(m, object)
		return
	}
	d.cfg.Vars = map[string]json.RawMessage{}
	for _, v := range m.value.members {
		if !identifier(v.name) {
			d.errorf(v.pos, v.end, "use letters, digits and _", "%q is not a name for a variable", v.name)
			continue
		}
		d.cfg.Vars[v.name] = v.value.json()
	}
}

var ruleTypes = []string{"ESModule", "CommonJS", "Text", "Data", "CompiledWasm"}

func (d *decoder) rules(m member) {
	d.each(m, []string{"type", "globs"}, func(int) map[string]func(member) {
		d.cfg.Rules = append(d.cfg.Rules, Rule{})
		r := &d.cfg.Rules[len(d.cfg.Rules)-1]
		return map[string]func(member){
			"type": func(m member) {
				if d.string(m, &r.Type) && !slices.Contains(ruleTypes, r.Type) {
					d.errorf(m.value.pos, m.value.end, "known types: "+strings.Join(ruleTypes, ", "), "%q is not a module type that is supported", r.Type)
				}
			},
			"globs": func(m member) {
				r.Globs = d.strings(m)
				for _, g := range r.Globs {
					if _, err := compileGlob(g); err != nil {
						d.errorf(m.value.pos, m.value.end, "", "glob %q: %v", g, err)
					}
				}
			},
			"fallthrough": func(m member) { d.bool(m, &r.Fallthrough) },
		}
	})
}

func (d *decoder) build(m member) {
	b := &d.cfg.Build
	d.entry(m.value, m.name, nil, map[string]func(member){
		"command": d.text(&b.Command),
		"cwd":     func(m member) { d.path(m, &b.Dir) },
		"watch_dir": func(m member) {
			if m.value.kind == text {
				b.WatchDir = []string{m.value.str}
				return
			}
			b.WatchDir = d.strings(m)
		},
		"upload": func(m member) {
			d.errorf(m.pos, m.end, "give main, rules and no_bundle at the top level", "build.upload is no longer understood")
		},
	})
}

func (d *decoder) limits(m member) {
	d.entry(m.value, m.name, nil, map[string]func(member){"cpu_ms": d.num(&d.cfg.CPULimitMS), "subrequests": skip})
}

func (d *decoder) secrets(m member) {
	if m.value.kind == list {
		d.cfg.Secrets = d.strings(m)
		return
	}
	d.entry(m.value, m.name, nil, map[string]func(member){"required": func(m member) { d.cfg.Secrets = d.strings(m) }})
}

func (d *decoder) triggers(m member) {
	d.entry(m.value, m.name, nil, map[string]func(member){"crons": func(m member) { d.cfg.Crons = d.strings(m) }})
}

func (d *decoder) assets(m member) {
	a := &Assets{}
	d.cfg.Assets = a
	d.entry(m.value, m.name, nil, map[string]func(member){
		"directory": func(m member) { d.path(m, &a.Directory) }, "binding": d.binding(&a.Binding),
		"html_handling":      d.oneOf(&a.HTMLHandling, "auto-trailing-slash", "force-trailing-slash", "drop-trailing-slash", "none"),
		"not_found_handling": d.oneOf(&a.NotFoundHandling, "single-page-application", "404-page", "none"),
		"run_worker_first": func(m member) {
			if m.value.kind == list {
				a.WorkerFirst = d.strings(m)
				return
			}
			d.bool(m, &a.RunWorkerFirst)
		},
	})
}

func (d *decoder) oneOf(to *string, of ...string) func(member) {
	return func(m member) {
		if d.string(m, to) && !slices.Contains(of, *to) {
			d.errorf(m.value.pos, m.value.end, "known: "+strings.Join(of, ", "), "%q is not a value of %s", *to, m.name)
		}
	}
}

func (d *decoder) services(m member) {
	d.each(m, []string{"binding", "service"}, func(int) map[string]func(member) {
		d.cfg.Services = append(d.cfg.Services, Service{})
		b := &d.cfg.Services[len(d.cfg.Services)-1]
		return map[string]func(member){
			"binding": d.binding(&b.Binding), "service": d.text(&b.Service), "entrypoint": d.text(&b.Entrypoint),
			"props": func(m member) { b.Props = m.value.json() }, "remote": skip, "experimental_remote": skip,
			"environment": func(m member) {
				d.errorf(m.pos, m.end, "write the full name in service, such as worker-staging", "%q is not supported in services", m.name)
			},
		}
	})
}

func (d *decoder) kvNamespaces(m member) {
	d.each(m, []string{"binding"}, func(int) map[string]func(member) {
		d.cfg.KV = append(d.cfg.KV, KVNamespace{})
		b := &d.cfg.KV[len(d.cfg.KV)-1]
		return map[string]func(member){"binding": d.binding(&b.Binding), "id": d.text(&b.ID), "preview_id": skip, "remote": skip, "experimental_remote": skip}
	})
}

func (d *decoder) d1Databases(m member) {
	d.each(m, []string{"binding"}, func(int) map[string]func(member) {
		d.cfg.D1 = append(d.cfg.D1, D1Database{})
		b := &d.cfg.D1[len(d.cfg.D1)-1]
		return map[string]func(member){
			"binding": d.binding(&b.Binding), "database_name": d.text(&b.Name), "database_id": d.text(&b.ID), "preview_database_id": skip,
			"migrations_dir": d.text(&b.MigrationsDir), "migrations_table": d.text(&b.MigrationTable), "migrations_pattern": skip,
			"database_internal_env": skip, "remote": skip, "experimental_remote": skip,
		}
	})
}

func (d *decoder) r2Buckets(m member) {
	d.each(m, []string{"binding"}, func(int) map[string]func(member) {
		d.cfg.R2 = append(d.cfg.R2, R2Bucket{})
		b := &d.cfg.R2[len(d.cfg.R2)-1]
		return map[string]func(member){
			"binding": d.binding(&b.Binding), "bucket_name": d.text(&b.Name), "preview_bucket_name": skip, "jurisdiction": skip,
			"remote": skip, "experimental_remote": skip,
		}
	})
}

func (d *decoder) queues(m member) {
	d.entry(m.value, m.name, nil, map[string]func(member){"producers": d.producers, "consumers": d.consumers})
}

func (d *decoder) producers(m member) {
	d.each(m, []string{"binding", "queue"}, func(int) map[string]func(member) {
		d.cfg.Producers = append(d.cfg.Producers, QueueProducer{})
		p := &d.cfg.Producers[len(d.cfg.Producers)-1]
		return map[string]func(member){
			"binding": d.binding(&p.Binding), "queue": d.text(&p.Queue), "delivery_delay": d.num(&p.DeliveryDelay),
			"remote": skip, "experimental_remote": skip,
		}
	})
}

func (d *decoder) consumers(m member) {
	d.each(m, []string{"queue"}, func(int) map[string]func(member) {
		d.cfg.Consumers = append(d.cfg.Consumers, QueueConsumer{MaxBatchSize: -1, MaxBatchTimeout: -1, MaxRetries: -1, MaxConcurrency: -1, RetryDelay: -1})
		c := &d.cfg.Consumers[len(d.cfg.Consumers)-1]
		return map[string]func(member){
			"queue": d.text(&c.Queue), "dead_letter_queue": d.text(&c.DeadLetterQueue), "max_batch_size": d.num(&c.MaxBatchSize),
			"max_batch_timeout": d.num(&c.MaxBatchTimeout), "max_retries": d.num(&c.MaxRetries), "retry_delay": d.num(&c.RetryDelay),
			"max_concurrency": func(m member) {
				if m.value.kind != null { // null means no limit of its own
					d.count(m, &c.MaxConcurrency)
				}
			},
			"type": func(m member) {
				if m.value.str != "worker" {
					d.errorf(m.value.pos, m.value.end, "", "only queue consumers of type \"worker\" are supported")
				}
			},
		}
	})
}

func (d *decoder) workflows(m member) {
	d.each(m, []string{"binding", "name", "class_name"}, func(int) map[string]func(member) {
		d.cfg.Workflows = append(d.cfg.Workflows, Workflow{})
		w := &d.cfg.Workflows[len(d.cfg.Workflows)-1]
		return map[string]func(member){
			"binding": d.binding(&w.Binding), "name": d.text(&w.Name), "class_name": d.class(&w.Class), "script_name": d.text(&w.Script),
			"limits": skip, "remote": skip, "experimental_remote": skip,
		}
	})
}

func (d *decoder) workerLoaders(m member) {
	d.each(m, []string{"binding"}, func(int) map[string]func(member) {
		d.cfg.WorkerLoaders = append(d.cfg.WorkerLoaders, "")
		return map[string]func(member){"binding": d.binding(&d.cfg.WorkerLoaders[len(d.cfg.WorkerLoaders)-1])}
	})
}

func (d *decoder) tailConsumers(m member) {
	d.each(m, []string{"service"}, func(int) map[string]func(member) {
		d.cfg.TailConsumers = append(d.cfg.TailConsumers, "")
		return map[string]func(member){"service": d.text(&d.cfg.TailConsumers[len(d.cfg.TailConsumers)-1]), "environment": skip}
	})
}

// bindingOf reads {"binding": NAME}.
func (d *decoder) bindingOf(m member, also ...string) string {
	var name string
	table := map[string]func(member){"binding": d.binding(&name)}
	for _, key := range also {
		table[key] = skip
	}
	d.entry(m.value, m.name, []string{"binding"}, table)
	return name
}
