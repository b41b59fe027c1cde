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
	$(GO) test -timeout 10m ./...

vet:
	@test -z "$$(gofmt -l cmd internal runtime)" || { gofmt -l cmd internal runtime; echo "these files want gofmt"; exit 1; }
	$(GO) vet ./...
	cd runtime && npx tsc --noEmit

# arm64 must compile: the Go and the C++ of it.
CROSS := aarch64-linux-gnu

arm64: prepare
	@command -v $(CROSS)-g++ >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq -y g++-$(CROSS) >/dev/null; } \
		|| { echo "install g++-$(CROSS) to check that arm64 compiles"; exit 1; }
	CC=$(CROSS)-gcc CXX=$(CROSS)-g++ GOOS=linux GOARCH=arm64 CGO_ENABLED=1 $(GO) build -o /dev/null ./cmd/celld

bench: build tools
	$(GO) run ./internal/bench

clean:
	rm -rf bin runtime/dist runtime/node_modules tools/node_modules examples/*/node_modules internal/v8/include
