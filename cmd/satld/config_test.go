// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"satld/mesh"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "satld.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsWinOverFile(t *testing.T) {
	path := writeConfig(t, "socket = \"/run/file.sock\"\nnetwork_name = \"file0\"\n")
	c, err := load("linux", []string{"--config", path, "--socket", "/run/flag.sock"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Socket != "/run/flag.sock" || c.NetworkName != "file0" || c.StateDir != "/var/lib/satl" {
		t.Errorf("got %+v", c)
	}
}

func TestDefaultsByPlatform(t *testing.T) {
	if c := defaults("freebsd"); c.StateDir != "/var/db/satl" || c.Redirect != "pf" || c.Runtime != "ocijail" {
		t.Errorf("freebsd: %+v", c)
	}
	if c := defaults("linux"); c.StateDir != "/var/lib/satl" || c.Redirect != "nft" || c.Runtime != "runc" {
		t.Errorf("linux: %+v", c)
	}
}

func TestBadConfigurations(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		file string
		want string
	}{
		"unknown flag":      {args: []string{"--bogus"}, want: "bogus"},
		"argument":          {args: []string{"serve"}, want: `unexpected argument "serve"`},
		"relative socket":   {args: []string{"--socket", "satl.sock"}, want: "--socket"},
		"long socket":       {args: []string{"--socket", "/" + strings.Repeat("x", 120)}, want: "too long"},
		"root as state":     {args: []string{"--state-dir", "/"}, want: "--state-dir"},
		"pool not a prefix": {args: []string{"--network-pool", "10.88.0.0"}, want: "--network-pool"},
		"pool with host":    {args: []string{"--network-pool", "10.88.0.1/16"}, want: "--network-pool"},
		"small overlays":    {args: []string{"--overlay-pool", "10.89.0.0/21"}, want: "--overlay-pool"},
		"pools overlap":     {args: []string{"--overlay-pool", "10.88.16.0/20"}, want: "must not overlap --network-pool"},
		"long name":         {args: []string{"--network-name", "satl0123456789abc"}, want: "--network-name"},
		"redirect":          {args: []string{"--redirect", "iptables"}, want: "--redirect"},
		"no port":           {args: []string{"--listen-addr", "0.0.0.0"}, want: "--listen-addr"},
		"level":             {args: []string{"--log-level", "loud"}, want: "--log-level"},
		"format":            {args: []string{"--log-format", "xml"}, want: "--log-format"},
		"unknown key":       {file: "sokcet = \"/x\"\n", want: "unknown key sokcet"},
		"no time":           {args: []string{"--node-health-interval", "5"}, want: "node-health-interval"},
		"never asked":       {args: []string{"--node-health-concurrency", "0"}, want: "--node-health-concurrency"},
		"no miss":           {file: "[node_health]\nfailure_threshold = 0\n", want: "--node-health-failure-threshold"},
		"bare number":       {file: "[node_health]\ntimeout = 2\n", want: "line 2"},
		"unknown in table":  {file: "[node_health]\nthreshold = 2\n", want: "unknown key node_health.threshold"},
		"wrong type":        {file: "socket = 3\n", want: "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			args := tc.args
			if tc.file != "" {
				args = append(args, "--config", writeConfig(t, tc.file))
			}
			_, err := load("linux", args)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want it to name %q", err, tc.want)
			}
		})
	}
}

func TestNodeHealth(t *testing.T) {
	c, err := load("linux", []string{"--config", writeConfig(t, "[node_health]\nenabled = false\ninterval = \"7s\"\n"), "--node-health-timeout", "1500ms"})
	if err != nil {
		t.Fatal(err)
	}
	want := mesh.DefaultSettings()
	want.Enabled, want.Interval, want.Timeout = false, 7*time.Second, 1500*time.Millisecond
	if got := c.NodeHealth.settings(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if w := c.NodeHealth.warning(); !strings.Contains(w, "node_health.enabled = false") {
		t.Errorf("warning %q", w)
	}
	if w := defaults("linux").NodeHealth.warning(); w != "" {
		t.Errorf("warning %q of the defaults", w)
	}
	if keys := differing(defaults("linux"), c); !slices.Equal(keys, []string{"node_health"}) {
		t.Errorf("differing %v", keys)
	}
}

func TestMissingConfigFile(t *testing.T) {
	_, err := load("linux", []string{"--config", "/nonexistent/satld.toml"})
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
}
