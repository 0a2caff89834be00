// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

var update = flag.Bool("update", false, "write the golden files")

// The bundles of both drivers are pure, so both are checked everywhere.
func TestBundles(t *testing.T) {
	who := identity{uid: 1000, gid: 1000, groups: []uint32{44}, home: "/home/web"}
	plain := Spec{ID: strings.Repeat("a", 64), Rootfs: "/state/rootfs", Args: []string{"/bin/web", "-f"}, Env: []string{"A=1"}, Hostname: "web", NetNS: "/run/netns/x"}
	full := plain
	full.Cwd, full.TTY, full.ReadOnly, full.Domainname = "/srv", true, true, "example.org"
	full.Mounts = []Mount{
		{Type: "bind", Source: "/state/hosts", Target: "/etc/hosts", ReadOnly: true},
		{Type: "tmpfs", Target: "/tmp", Options: []string{"size=1m", "exec"}},
		{Type: "tmpfs", Target: "/dev/shm", Options: []string{"size=2m"}},
	}
	full.MemoryBytes, full.NanoCPUs, full.Pids, full.OOMScoreAdj = 64<<20, 1.5e9, 100, 10
	full.CapAdd, full.CapDrop, full.NoNewPrivileges = []string{"net_admin"}, []string{"CAP_MKNOD"}, true
	full.Ulimits, full.Sysctls = []Ulimit{{"nofile", 10, 20}}, map[string]string{"net.core.somaxconn": "1024"}
	host := full
	host.HostNetwork, host.NetNS, host.Sysctls, host.Privileged = true, "", nil, true
	jailed := plain
	jailed.Cwd, jailed.Mounts = "/srv", full.Mounts[:2]
	shared := jailed
	shared.HostNetwork, shared.Address = true, netip.MustParseAddr("10.0.0.7")
	r := runc{path: "/usr/sbin/runc", root: "/state/runtime", host: hostFacts{capBounding: ^uint64(0)}}
	o := ocijail{path: "/usr/local/bin/ocijail", root: "/state/runtime"}
	for _, c := range []struct {
		name string
		d    driver
		spec Spec
	}{
		{"runc-plain", r, plain}, {"runc-full", r, full}, {"runc-privileged", r, host},
		{"ocijail-vnet", o, jailed}, {"ocijail-shared", o, shared},
	} {
		config, err := c.d.config(c.spec, who)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := json.MarshalIndent(config, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", c.name+".json")
		if *update {
			os.MkdirAll("testdata", 0o755)
			if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || string(want) != string(got)+"\n" {
			t.Errorf("%s is not as in %s (-update writes it): %v\n%s", c.name, path, err, got)
		}
	}
}

func TestJailsRefuseWhatTheyCannotDo(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"capabilities": func(s *Spec) { s.CapAdd = []string{"NET_ADMIN"} }, "dropped": func(s *Spec) { s.CapDrop = []string{"ALL"} },
		"privileged": func(s *Spec) { s.Privileged = true }, "no-new-privileges": func(s *Spec) { s.NoNewPrivileges = true },
		"ulimits": func(s *Spec) { s.Ulimits = []Ulimit{{"nofile", 1, 2}} }, "sysctls": func(s *Spec) { s.Sysctls = map[string]string{"a": "b"} },
		"init": func(s *Spec) { s.Init = true },
	} {
		var s Spec
		change(&s)
		if _, err := (ocijail{}).config(s, identity{}); !errdefs.IsNotImplemented(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	all := ^uint64(0)
	for _, c := range []struct {
		add, drop  []string
		privileged bool
		held       uint64
		has, not   []string
		n          int
		err        bool
	}{
		{held: all, n: 14, has: []string{"CAP_CHOWN", "CAP_NET_RAW"}, not: []string{"CAP_SYS_ADMIN"}},
		{add: []string{"sys_admin"}, held: all, n: 15, has: []string{"CAP_SYS_ADMIN"}},
		{drop: []string{"ALL"}, held: all, n: 0},
		{drop: []string{"all"}, add: []string{"NET_BIND_SERVICE"}, held: all, n: 1},
		{add: []string{"ALL"}, drop: []string{"CAP_SYS_ADMIN"}, held: all, n: 40, not: []string{"CAP_SYS_ADMIN"}},
		{privileged: true, held: all, n: 41},
		{privileged: true, held: all &^ (1 << 24), n: 40, not: []string{"CAP_SYS_RESOURCE"}},
		{add: []string{"SYS_RESOURCE"}, held: all &^ (1 << 24), err: true},
		{add: []string{"CAP_FLYING"}, held: all, err: true},
	} {
		got, err := capabilities(c.add, c.drop, c.privileged, c.held)
		if (err != nil) != c.err || err == nil && len(got) != c.n {
			t.Errorf("%+v: %d %v, %v", c, len(got), got, err)
		}
		for _, n := range c.has {
			if !slices.Contains(got, n) {
				t.Errorf("%+v: no %s", c, n)
			}
		}
		for _, n := range c.not {
			if slices.Contains(got, n) {
				t.Errorf("%+v: %s", c, n)
			}
		}
	}
}

func TestRuntimeText(t *testing.T) {
	for log, want := range map[string]string{
		`{"level":"error","msg":"runc create failed: unable to start container process: exec: \"x\": executable file not found in $PATH","time":"2026"}`:                              `unable to start container process: exec: "x": executable file not found in $PATH`,
		"{\"level\":\"warning\",\"msg\":\"careful\",\"time\":\"2026\"}\n{\"level\":\"error\",\"msg\":\"exec failed: no\",\"time\":\"2026\"}\n{\"level\":\"warning\",\"msg\":\"x\"}\n": "no",
		"opening state lock: No such file or directory\n": "opening state lock: No such file or directory",
		"": "",
	} {
		if got := runtimeText([]byte(log)); got != want {
			t.Errorf("%q: %q", log, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := strings.Join(environment([]string{"PATH=/x", "B=2"}, "web", "/root", true), " ")
	if got != "HOSTNAME=web TERM=xterm PATH=/x B=2 HOME=/root" {
		t.Error(got)
	}
	if got := strings.Join(mergeEnv([]string{"A=1", "B=2"}, []string{"B=3", "C=4"}), " "); got != "A=1 B=3 C=4" {
		t.Error(got)
	}
}
