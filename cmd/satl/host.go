// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

const (
	// EnvHost names the daemon to talk to; -H goes before it.
	EnvHost = "SATL_HOST"
	// DefaultHost is where satld listens unless it is told otherwise.
	DefaultHost = "unix:///var/run/satl.sock"
)

// ignored are docker's variables that would lead a command elsewhere than
// satld, or have it do what satl does not: they are meant for docker.
// DOCKER_CONFIG and DOCKER_AUTH_CONFIG stay: they hold registry logins.
var ignored = []string{
	"DOCKER_HOST", "DOCKER_CONTEXT",
	"DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH",
	"DOCKER_CONTENT_TRUST", "DOCKER_CONTENT_TRUST_SERVER",
	"DOCKER_CUSTOM_HEADERS", "DOCKER_BUILDKIT",
	"DOCKER_CLI_HOOKS", "DOCKER_CLI_HINTS", "DOCKER_HIDE_LEGACY_COMMANDS",
	"DOCKER_CLI_OTEL_EXPORTER_OTLP_ENDPOINT",
}

// forget drops the ignored variables from this process's environment.
func forget(unset func(string) error) {
	for _, name := range ignored {
		_ = unset(name) // fails only for a name that cannot be one
	}
}

// resolveHost is the daemon to talk to: the flag's, the environment's, or the
// default one. A path is the socket there.
func resolveHost(flag []string, env string) (string, error) {
	host := DefaultHost
	switch {
	case len(flag) > 0:
		host = flag[0]
	case env != "":
		host = env
	}
	scheme, _, ok := strings.Cut(host, "://")
	switch {
	case host == "":
		return "", errors.New("satl: the host is empty: give -H unix:///path/of/satl.sock, or leave it out")
	case filepath.IsAbs(host):
		return "unix://" + host, nil
	case !ok:
		return "", fmt.Errorf("satl: host %q is neither a path nor unix:// nor tcp://", host)
	case scheme == "ssh":
		// docker's own helper would run docker on the other side.
		return "", fmt.Errorf("satl: ssh:// is not supported; forward the socket: ssh -nNT -L /tmp/satl.sock:/var/run/satl.sock %s", strings.TrimPrefix(host, "ssh://"))
	}
	return host, nil
}
