// SPDX-License-Identifier: BSD-2-Clause

//go:build fakefreebsd

package jail

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"satld/internal/fakefreebsd"
)

// The files of a jail that does not finish dying are gone all the same.
func TestFilesOfADyingJail(t *testing.T) {
	n := playedNode(t, func(f *fakefreebsd.Fake) { f.Dying(-1) })
	s := n.withFilesIn(noReaper)
	n.start(s)
	if out := n.tool("mount", "-p"); !strings.Contains(out, n.memory(s.ID)) {
		t.Fatalf("not mounted while it runs:\n%s", out)
	}
	n.remove(s.ID)
	if there, dying := n.jailed(s.ID); !there || !dying {
		t.Fatalf("there %v, dying %v", there, dying)
	}
	if out := n.tool("mount", "-p"); strings.Contains(out, n.memories) {
		t.Errorf("still mounted:\n%s", out)
	}
	if entries, err := os.ReadDir(n.memories); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	n.fake().Bury()
	n.gone(s.ID)
}

// A mount that is held for a while is undone later.
func TestFilesUnmountFails(t *testing.T) {
	n := newNode(t)
	s := n.withFilesIn(noReaper)
	n.start(s)
	busy, err := os.Open(memoryFiles(n.memory(s.ID), s.Files)[0])
	if err != nil {
		t.Fatal(err)
	}
	n.remove(s.ID)
	if left, err := n.Lingers(context.Background(), s.ID); !left || err != nil {
		t.Errorf("nothing is said to be left: %v, %v", left, err)
	}
	busy.Close()
	n.gone(s.ID)
}

// A system that copies files instead of mounting them is given no secret.
func TestFilesAreCopied(t *testing.T) {
	s := Spec{ID: "x", Files: []File{{Target: "/run/secrets/a"}, {Target: "/b"}}}
	table := "zroot/satl\t\t/var/db/satl\tzfs\trw\t0 0\ntmpfs\t\t\t/var/db/satl/jail/memory/x tmpfs\trw\t0 0\n" +
		"/var/db/satl/jail/memory/x/0 /var/db/satl/containers/x/rootfs/run/secrets/a nullfs\tro\t0 0\n"
	j := &jails{memories: "/var/db/satl/jail/memory", tool: func(context.Context, ...string) ([]byte, error) { return []byte(table), nil }}
	if err := j.filesMounted(context.Background(), s); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "/b would be copied to a disk") {
		t.Errorf("%v", err)
	}
	s.Files = s.Files[:1]
	if err := j.filesMounted(context.Background(), s); err != nil {
		t.Error(err)
	}
}
