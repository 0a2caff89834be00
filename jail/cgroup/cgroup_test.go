// SPDX-License-Identifier: BSD-2-Clause

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, mountinfo, cgroup, want, oom string }{
		{
			"v2", "24 22 0:21 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n",
			"0::/satl/abc\n", "true [{ /sys/fs/cgroup/satl/abc}]", "/sys/fs/cgroup/satl/abc/memory.events",
		},
		{
			"hybrid", "30 29 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 29 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
				"32 29 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n33 29 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
				"34 29 0:26 /docker/x /elsewhere rw - cgroup cgroup rw,memory\n",
			"9:name=systemd:/satl/a:b\n4:memory:/m\n1:cpu,cpuacct:/c\n7:pids:/not/mounted\n0::/u\n",
			"false [{name=systemd /sys/fs/cgroup/systemd/satl/a:b} {memory /sys/fs/cgroup/memory/m} {cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct/c} { /sys/fs/cgroup/unified/u}]",
			"/sys/fs/cgroup/memory/m/memory.oom_control",
		},
		{"nothing", "garbage\n\n1 2 3 - \n", "x\n", "false []", ""},
	} {
		h, err := parseMounts(strings.NewReader(c.mountinfo))
		if err != nil {
			t.Fatal(err)
		}
		groups := parse(c.cgroup, h.points)
		if got := fmt.Sprint(h.delegate, " ", groups); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := OOMFile(groups); got != c.oom {
			t.Errorf("%s: OOM file %q", c.name, got)
		}
	}
}

// A host is told when nothing that the runtime could use is mounted, and what to
// do about it.
func TestMissing(t *testing.T) {
	const v1, v2 = "30 29 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "24 22 0:21 / %s rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ mountinfo, want string }{
		{"22 1 0:20 / /sys rw - sysfs sysfs rw\n", "no cgroup is mounted; containers cannot be started until you run: mount -t cgroup2 cgroup2 /sys/fs/cgroup"},
		{fmt.Sprintf(v2, "/mnt"), "no cgroup is mounted at /sys/fs/cgroup, where the runtime looks for it (there is one at /mnt); "},
		{fmt.Sprintf(v2, "/sys/fs/cgroup"), ""},
		{v1, ""},
		{v1 + fmt.Sprintf(v2, "/sys/fs/cgroup/unified"), ""},
	} {
		h, err := parseMounts(strings.NewReader(c.mountinfo))
		if got := h.missing(); err != nil || !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%q: %q, %v", c.mountinfo, got, err)
		}
	}
}

func TestOOMKills(t *testing.T) {
	for text, want := range map[string]int{
		"low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 0\n": 3,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n":                1,
		"oom_kill_disable 1\n":                                         0,
	} {
		path := filepath.Join(t.TempDir(), "f")
		os.WriteFile(path, []byte(text), 0o644)
		if got := OOMKills(path); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
	if OOMKills("/nowhere") != 0 {
		t.Error("a file that is not there")
	}
}
