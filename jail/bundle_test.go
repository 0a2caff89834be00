// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"encoding/json"
	"errors"
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
	lin := jailed
	lin.OS, lin.ReadOnly, lin.TTY = "linux", true, true
	params := plain
	params.OS = "freebsd"
	params.JailParams = map[string]string{"allow.mlock": "true", "allow.mount.tmpfs": "1", "allow.sysvipc": "false", "sysvshm": "new"}
	params.Mounts = []Mount{
		{Type: "bind", Source: "/data dir", Target: "/data", Options: []string{"rbind", "rprivate", "noexec", "ro"}},
		{Type: "tmpfs", Target: "/run", Options: []string{"rw", "exec", "suid", "nodev", "mode=755", "uid=80", "nr_inodes=10"}},
	}
	r := runc{path: "/usr/sbin/runc", root: "/state/runtime", host: hostFacts{capBounding: ^uint64(0)}}
	o := ocijail{path: "/usr/local/bin/ocijail", root: "/state/runtime"}
	for _, c := range []struct {
		name string
		d    driver
		spec Spec
	}{
		{"runc-plain", r, plain}, {"runc-full", r, full}, {"runc-privileged", r, host},
		{"ocijail-vnet", o, jailed}, {"ocijail-shared", o, shared}, {"ocijail-linux", o, lin}, {"ocijail-params", o, params},
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
		"init": func(s *Spec) { s.Init = true }, "windows": func(s *Spec) { s.OS = "windows" },
		"a share of memory": func(s *Spec) { s.Mounts = []Mount{{Type: "tmpfs", Target: "/a", Options: []string{"size=50%"}}} },
		"a bind's size":     func(s *Spec) { s.Mounts = []Mount{{Type: "bind", Target: "/a", Options: []string{"size=1m"}}} },
		"unknown option":    func(s *Spec) { s.Mounts = []Mount{{Type: "bind", Target: "/a", Options: []string{"relatime"}}} },
	} {
		var s Spec
		change(&s)
		if _, err := (ocijail{}).config(s, identity{}); !errdefs.IsNotImplemented(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Neither do they come in by another door.
func TestJailAnnotations(t *testing.T) {
	for _, key := range []string{"org.freebsd.jail.allow.mount", "org.freebsd.parentJail"} {
		if _, err := (ocijail{}).config(Spec{Annotations: map[string]string{key: "true"}}, identity{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestJailParams(t *testing.T) {
	for _, c := range []struct {
		param, value, why string // why is in the error; "" is none
	}{
		{"allow.mlock", "true", ""}, {"allow.mlock", "0", ""}, {"allow.mlock", "yes", "true or false"},
		{"allow.raw_sockets", "true", ""}, {"allow.raw_sockets", "false", "every jail"}, {"allow.chflags", "0", "every jail"},
		{"allow.mount.zfs", "1", ""}, {"allow.mount.ext2fs", "true", "no such"}, {"allow.", "true", "no such"},
		{"sysvsem", "inherit", ""}, {"sysvsem", "true", "new, inherit"},
		{"vnet", "inherit", "no such"}, {"ip4.addr", "1.2.3.4", "no such"}, {"path", "/", "no such"}, {"", "", "no such"},
	} {
		err := CheckParams(map[string]string{c.param: c.value})
		if c.why == "" {
			if err != nil {
				t.Errorf("%s=%s: %v", c.param, c.value, err)
			}
		} else if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "satl.jail."+c.param+"=") {
			t.Errorf("%s=%s: %v, want %q", c.param, c.value, err, c.why)
		}
	}
	if _, err := (runc{}).config(Spec{JailParams: map[string]string{"sysvshm": "new"}}, identity{}); !errdefs.IsNotImplemented(err) {
		t.Errorf("containers that are no jails: %v", err)
	}
}

func TestLimitRules(t *testing.T) {
	got := limitRules("abc-2", Spec{MemoryBytes: 64 << 20, NanoCPUs: 1.5e9, Pids: 100})
	want := []string{"jail:abc-2:memoryuse:sigkill=67108864", "jail:abc-2:pcpu:deny=150", "jail:abc-2:maxproc:deny=100"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := limitRules("a", Spec{NanoCPUs: 1}); !slices.Equal(got, []string{"jail:a:pcpu:deny=1"}) {
		t.Errorf("a tiny share: %q", got)
	}
	if got := limitRules("a", Spec{}); got != nil {
		t.Errorf("no limits: %q", got)
	}
}

// What ocijail says comes in two forms, and means two things.
func TestOcijailFailures(t *testing.T) {
	for words, want := range map[string]StartError{
		`'nothere' not found in $PATH: No such file or directory`:                                              {127, `'nothere' not found in $PATH: No such file or directory`},
		`/etc/passwd: Permission denied`:                                                                       {126, `/etc/passwd: Permission denied`},
		`{"level":"error","msg":"opening state lock: No such file or directory","time":"2026"}` + "\n":         {128, "opening state lock: No such file or directory"},
		`{"level":"error","msg":"error calling setsid: Operation not permitted","time":"2026-08-09T1"}` + "\n": {128, "error calling setsid: Operation not permitted"},
	} {
		var got *StartError
		if err := (ocijail{}).failure([]byte(words)); !errors.As(err, &got) || *got != want {
			t.Errorf("%s: %v", words, err)
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
