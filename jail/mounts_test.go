// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMounts(t *testing.T) {
	b, err := os.ReadFile("testdata/mount-p.txt")
	if err != nil {
		t.Fatal(err)
	}
	mounts := parseMounts(b)
	if want := strings.Count(string(b), "\n"); len(mounts) != want {
		t.Errorf("%d mounts read of %d lines", len(mounts), want)
	}
	const state = "/var/db/satl/containers/"
	for dir, want := range map[string][]string{
		// The deepest first, the later of two at one place before the earlier.
		state + "1q8c/rootfs": {
			state + "1q8c/rootfs/dev/shm", state + "1q8c/rootfs/dev/fd", state + "1q8c/rootfs/tmp", state + "1q8c/rootfs/tmp",
			state + "1q8c/rootfs/dev", state + "1q8c/rootfs/sys", state + "1q8c/rootfs/proc",
		},
		state + "1q8":                     nil, // a name is not a prefix of another
		state + "1jwt/rootfs":             nil, // only the root itself is mounted
		"/tmp/rtest mount dir":            {"/tmp/rtest mount dir/inner place"},
		"/tmp/plain":                      {"/tmp/plain/a device with blanks is before it"},
		"/var/db/satl/jail/runtime/2qw3":  {"/var/db/satl/jail/runtime/2qw3/readonly_root/dev", "/var/db/satl/jail/runtime/2qw3/readonly_root"},
		"/nowhere":                        nil,
		"/var/db/satl/jail/runtime/other": nil,
	} {
		if got := pointsBelow(mounts, dir); !slices.Equal(got, want) {
			t.Errorf("below %s:\n%q\nwant\n%q", dir, got, want)
		}
	}
	orphans := orphanPoints(mounts, "/var/db/satl/containers", func(id string) bool { return id == "1q8c" })
	if want := []string{state + "2e28/rootfs/dev/fd", state + "2e28/rootfs/dev"}; !slices.Equal(orphans, want) {
		t.Errorf("orphans %q, want %q: no data set, no root, nothing outside a root", orphans, want)
	}
}

func FuzzMounts(f *testing.F) {
	b, err := os.ReadFile("testdata/mount-p.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range pointsBelow(parseMounts(b), "/var/db") {
			if !strings.HasPrefix(p, "/var/db/") {
				t.Errorf("%q is not below", p)
			}
		}
	})
}

func TestPrisons(t *testing.T) {
	got, err := parsePrisons([]byte("jid name dying path\n1 web false /jails/web\n7 a-2 true /x/y z\n8 two words false /w\n9 a-2 false /x\nnonsense\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []prison{{1, "web", false, "/jails/web"}, {7, "a-2", true, "/x/y z"}, {8, "two words", false, "/w"}, {9, "a-2", false, "/x"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if p, ok := find(got, "a-2"); !ok || p.jid != 9 {
		t.Errorf("the jail that lives comes before one that dies: %+v", p)
	}
	if _, ok := find(got, "a"); ok {
		t.Error("found by a part of its name")
	}
	for _, bad := range []string{"", "name dying\n", "jls: unknown parameter: dying\n"} {
		if _, err := parsePrisons([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if got := parseProcesses([]byte("  0     1 ILs\n 7  4711 S\n 7   300 Is+J\n 7 12 Z\n77 13 S\n"), 7); !slices.Equal(got, []int{300, 4711}) {
		t.Errorf("processes %v", got)
	}
}
