// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSysctlKldstatRctl(t *testing.T) {
	h := newHost(t)
	for line, want := range map[string]string{
		"sysctl -n kern.racct.enable":          "0\n",
		"sysctl net.inet.ip.forwarding=1":      "net.inet.ip.forwarding: 0 -> 1\n",
		"sysctl net.pf.filter_local":           "net.pf.filter_local: 0\n",
		"sysctl -in kern.racct.does_not_exist": "",
		"devfs rule -s 4 show":                 "100 include 1\n200 include 2\n300 include 3\n400 path fuse unhide\n500 path zfs unhide\n",
		"devfs rule -s 5000 show":              "",
	} {
		if got := h.do(line); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
	h.refused("sysctl: unknown oid 'kern.racct.does_not_exist'", "sysctl -n kern.racct.does_not_exist")
	h.refused("sysctl: oid 'kern.racct.enable' is a read only tunable", "sysctl kern.racct.enable=1")
	h.refused("rctl: RACCT/RCTL present, but disabled; enable using kern.racct.enable=1 tunable", "rctl -a jail:web:memoryuse:sigkill=256M")
	h.Sysctl("kern.racct.enable", "1")
	h.do("rctl -a jail:web:memoryuse:sigkill=256M")
	h.do("rctl -a jail:web:pcpu:deny=50")
	h.do("rctl -a jail:ghost:maxproc:deny=100")
	if got := h.do("rctl"); got != "jail:web:memoryuse:sigkill=268435456\njail:web:pcpu:deny=50\njail:ghost:maxproc:deny=100\n" {
		t.Errorf("%q: rules of jails that are not there are kept", got)
	}
	h.refused("rctl: failed to add rule 'jail:web:memory:deny=1': Invalid argument", "rctl -a jail:web:memory:deny=1")
	h.do("rctl -r jail:web")
	h.refused("rctl: failed to remove rule 'jail:web': No such process", "rctl -r jail:web")
	if left := h.Leftovers(); len(left) != 1 || left[0] != "limit jail:ghost:maxproc:deny=100" {
		t.Errorf("%v", left)
	}
	h.refused("", "kldstat -q -m linux64")
	h.Module("linux64")
	h.do("kldstat -q -m linux64")
	if got := h.do("kldstat"); !strings.Contains(got, " linux64.ko\n") {
		t.Errorf("%s", got)
	}
}

func TestFaults(t *testing.T) {
	h := newHost(t)
	h.Fail("pfctl -s", 1)
	h.refused("the test says no", "pfctl -s nat")
	h.do("pfctl -s nat")
	h.Lie("ocijail --root /r list", 1, "null")
	if got := h.do("ocijail --root /r list -f json"); got != "null" {
		t.Errorf("%q", got)
	}
	h.Hang("sysctl -n hw", 1, 200*time.Millisecond)
	begin := time.Now()
	if got := h.do("sysctl -n hw.ncpu"); got != "4\n" || time.Since(begin) < 200*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(begin))
	}
	h.Add(Fault{Match: "forwarding", Done: true, Exit: 1, Times: 1})
	h.refused("", "sysctl net.inet.ip.forwarding=1")
	if got := h.do("sysctl -n net.inet.ip.forwarding"); got != "1\n" {
		t.Errorf("%q: it was done, and failed", got)
	}
	if hits := h.Clear(); len(hits) != 4 || hits[0] != 1 {
		t.Errorf("%v", hits)
	}
	if _, err := h.Run("pfctl", "-s", "nat"); err != nil {
		t.Error(err)
	}
	calls := h.Calls()
	if len(calls) != 6 || calls[0].String() != "pfctl -s nat" || calls[0].Exit != 1 || calls[1].Exit != 0 {
		t.Errorf("%v: what the operator does is not in it", calls)
	}
}

// Tools that are called at once see each other's work.
func TestToolsAreSafeTogether(t *testing.T) {
	h := newHost(t)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if out, err := exec.Command(filepath.Join(h.Bin, "ifconfig"), "epair", "create").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	group.Wait()
	if n := len(strings.Fields(h.do("ifconfig -l"))); n != 42 {
		t.Errorf("%d interfaces, want 2 and 20 pairs", n)
	}
	if n := len(h.Calls()); n != 21 {
		t.Errorf("%d calls", n)
	}
}
