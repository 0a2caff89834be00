// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"satld/internal/fakefreebsd/world"
)

// Fake is one FreeBSD host.
type Fake struct {
	// Bin has the tools; it goes first in PATH.
	Bin string

	t     testing.TB
	state string
}

// tools are the names that Bin has.
var tools = []string{
	"ocijail", "jls", "jail", "jexec", "ps", "ifconfig", "route", "netstat", "arp", "pfctl", "zfs", "mount", "umount", "devfs",
	"sysctl", "kldstat", "kldload", "rctl",
}

// Install makes a host that lasts as long as the test: at its end what still
// runs in jails is killed, what is mounted unmounted, and the test fails by
// Wrongs. A host fresh from Install has one interface with the default route,
// pf with our three hooks among rules of its own, no ZFS, no Linuxulator and
// kern.racct.enable=0.
func Install(t testing.TB) *Fake {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: the fake FreeBSD runs on Linux")
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	// A directory of the test's is asked for first, so that all of those are
	// removed after what was mounted in them is gone.
	_ = t.TempDir()
	dir, err := os.MkdirTemp("", "fakefreebsd-")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	f := &Fake{Bin: filepath.Join(dir, "bin"), t: t, state: filepath.Join(dir, "state")}
	t.Cleanup(func() { f.remove(dir) })
	for _, d := range []string{f.Bin, f.state} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range tools {
		if err := os.Symlink(binary, filepath.Join(f.Bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := world.Init(f.state, fresh()); err != nil {
		t.Fatal(err)
	}
	return f
}

// MainRuleset is the pf.conf of a fresh host.
const MainRuleset = `ext_if = "vtnet0"
table <bruteforce> persist { 192.0.2.66, 198.51.100.0/24 }
set skip on lo0
scrub in all
nat-anchor "satl/*"
rdr-anchor "satl/*"
anchor "satl/*"
anchor "blacklistd/*"
block drop in log quick from <bruteforce> to any
pass in quick proto tcp from any to any port 22
pass out all
`

func fresh() *world.World {
	w := &world.World{
		Links: []*world.Link{
			{Name: "vtnet0", Kind: "ether", MAC: "58:9c:fc:00:00:01", MTU: 1500, Up: true, Inet: []string{"192.0.2.10/24"}, Index: 1},
			{Name: "lo0", Kind: "lo", MTU: 16384, Up: true, Inet: []string{"127.0.0.1/8"}, Groups: []string{"lo"}, Index: 2},
		},
		Routes: []world.Route{{Dest: "default", Gateway: "192.0.2.1", Link: "vtnet0"}},
		Mounts: []world.Mount{{From: "/dev/gpt/rootfs", On: "/", Type: "ufs", Options: "rw"}, {From: "devfs", On: "/dev", Type: "devfs", Options: "rw"}},
		PF:     world.PF{Main: MainRuleset, Anchors: map[string]string{}, Tables: map[string][]string{}, Persist: map[string]bool{}, Rotates: map[string]int{}},
		Sysctls: map[string]string{
			"kern.racct.enable": "0", "net.inet.ip.forwarding": "0", "net.pf.filter_local": "0", "net.inet.tcp.msl": "30000",
			"kern.boottime":  fmt.Sprintf("{ sec = %d, usec = 250000 } %s", time.Now().Unix()-3600, time.Now().Add(-time.Hour).Format(time.ANSIC)),
			"kern.osrelease": "15.1-RELEASE", "kern.osreldate": "1501000", "kern.ostype": "FreeBSD", "kern.hostname": "fake", "kern.boot_id": "6f1d0f6e-2f6e-11f0-8f0a-589cfc000001",
			"hw.physmem": "8589934592", "hw.ncpu": "4", "hw.machine": "amd64", "security.jail.enforce_statfs": "2",
			"security.jail.children.max": "0", "security.jail.jailed": "0", "security.jail.vnet": "0", "security.jail.param.vnet": "0",
			"kern.features.vimage": "1", "kern.features.rctl": "1", "net.link.bridge.pfil_member": "0", "net.link.bridge.pfil_bridge": "0",
			"vfs.usermount": "0", "kern.maxfiles": "100000",
		},
		Modules: []string{"pf", "if_epair", "if_bridge", "nullfs", "fdescfs", "tmpfs"},
		Knobs:   world.Knobs{Release: 15},
	}
	key := world.TableKey("", "bruteforce")
	w.PF.Tables[key], w.PF.Persist[key] = []string{"192.0.2.66", "198.51.100.0/24"}, true
	return w
}

var build = sync.OnceValues(func() (string, error) {
	// `go test` removes the directory that its test binaries lie in; one that
	// was compiled with -c has no such place and leaves the tool behind for
	// the next.
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	if !strings.Contains(dir, "go-build") {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("fakefreebsd-tool-%d", os.Getuid()))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
	}
	binary := filepath.Join(dir, fmt.Sprintf("fakefreebsd-%d", os.Getpid()))
	cmd := exec.Command("go", "build", "-o", binary, "satld/internal/fakefreebsd/tool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tools of the fake FreeBSD: %w\n%s", err, out)
	}
	return binary, nil
})

// Env is this process's environment with the tools first in PATH.
func (f *Fake) Env() []string {
	env := os.Environ()
	for i, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			env[i] = "PATH=" + f.Bin + string(os.PathListSeparator) + path
			return env
		}
	}
	return append(env, "PATH="+f.Bin)
}

// Use puts the tools first in this process's own PATH until the test ends.
func (f *Fake) Use(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", f.Bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}
