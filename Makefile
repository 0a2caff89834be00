# SPDX-License-Identifier: BSD-2-Clause
# make demo   sets up what is missing and shows the whole job on this machine
# make test   everything that has to pass, as CI runs it
# make package   the package for FreeBSD, in dist/, made on any system

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null)
BIN     ?= bin
# Static programs, and one set of compiled packages for programs and tests.
export CGO_ENABLED = 0
LDFLAGS  = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

.PHONY: all build setup demo test soak vet bench package clean

all: build

build:
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/satld ./cmd/satl ./cmd/satl-init

setup:
	scripts/debian-setup

demo: setup build
	scripts/demo

vet:
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	$(GO) vet ./...
	GOOS=freebsd $(GO) vet -tags freebsdhost ./...
	GOOS=freebsd $(GO) test -tags freebsdhost -c -o /dev/null ./image ./jail/... ./network/... ./traffic
	$(GO) vet -tags fakefreebsd ./cmd/satld ./e2e/freebsd/... ./jail/...

# The rings of docs/architecture.md: pure and virtual time, adapters, and the
# real thing (e2e). One package at a time: the rings share one machine.
test: setup vet
	scripts/test

# What make test does with two or three leaders, for longer: see docs/cluster.md.
soak: setup
	$(GO) test -count=1 -timeout 60m -parallel 1 -v ./e2e -run '^(TestSoak|TestLostNode|TestHistory)$$' \
		-election 5s -rate 40 -kills 30 -lost 5 -history-kills 20 -history-operations 20000

bench: setup build
	bench/run

# The package for FreeBSD: programs built for it, the tree as it is installed,
# the manifest, and the archive for pkg-add(8). See packaging/freebsd.
DIST ?= dist
ARCH ?= amd64
package:
	GOOS=freebsd GOARCH=$(ARCH) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(DIST)/programs/ ./cmd/satld ./cmd/satl
	$(GO) run ./scripts/mkpackage -version '$(VERSION)' -arch $(ARCH) -binaries $(DIST)/programs -out $(DIST) \
		-time $$(git log -1 --format=%ct 2>/dev/null || echo 0)

clean:
	rm -rf $(BIN) $(DIST)
