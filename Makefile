# make run     the counter example under `celld dev`, on http://127.0.0.1:9876
# make test    everything CI runs
# make build   bin/celld
# make bench   the figures of docs/numbers.md, side by side with workerd
#
# Needs Go 1.26, a C++ compiler, Node 20 with npm. Everything else is fetched by them.

GO ?= go
RUNTIME := runtime/dist/runtime.js

.PHONY: run build test bench vet tools examples arm64 clean

run: build
	bin/celld dev examples/counter

build: prepare
	$(GO) build -o bin/celld ./cmd/celld

# What is generated and not committed: the link to V8's headers, and the runtime's bundle.
.PHONY: prepare
prepare: $(RUNTIME) internal/v8/include

internal/v8/include: go.mod
	$(GO) generate ./internal/v8

runtime/node_modules/.package-lock.json: runtime/package-lock.json
	cd runtime && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

$(RUNTIME): runtime/node_modules/.package-lock.json $(shell find runtime/src runtime/build -type f)
	$(GO) run ./runtime/build

# What tests compare with: workerd; and what the examples import.
tools: tools/node_modules/.package-lock.json examples/todo/node_modules/.package-lock.json

tools/node_modules/.package-lock.json: tools/package-lock.json
	cd tools && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

examples/todo/node_modules/.package-lock.json: examples/todo/package-lock.json
	cd examples/todo && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

test: prepare tools vet arm64
	$(GO) test -timeout 20m ./...

vet:
	@test -z "$$(gofmt -l cmd internal runtime)" || { gofmt -l cmd internal runtime; echo "these files want gofmt"; exit 1; }
	$(GO) vet ./...
	cd runtime && npx tsc --noEmit

# arm64 must compile; its C++ needs a cross compiler, so only the Go of packages without it is checked.
arm64:
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) vet $$($(GO) list ./... | grep -v -e internal/v8 -e internal/worker -e internal/webapi -e internal/lease -e internal/node -e internal/deploy/engine -e cmd/celld -e internal/route -e internal/sim -e internal/webcrypto)

bench: build tools
	$(GO) run ./internal/bench

clean:
	rm -rf bin runtime/dist runtime/node_modules tools/node_modules examples/*/node_modules internal/v8/include
