# SPDX-License-Identifier: BSD-2-Clause
# make demo   sets up what is missing and shows the whole job on this machine
# make test   everything that has to pass, as CI runs it

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null)
BIN     ?= bin
# Static programs, and one set of compiled packages for programs and tests.
export CGO_ENABLED = 0
LDFLAGS  = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

.PHONY: all build setup demo test vet bench clean

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
	GOOS=freebsd $(GO) build ./...
	GOOS=freebsd $(GO) vet ./...

# The rings of docs/architecture.md: pure and virtual time, adapters, and the
# real thing (e2e). One package at a time: the rings share one machine.
test: setup vet
	scripts/test

bench: setup build
	bench/run

clean:
	rm -rf $(BIN)
