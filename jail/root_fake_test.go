// SPDX-License-Identifier: BSD-2-Clause

//go:build fakefreebsd

package jail

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd"
	"satld/internal/fakefreebsd/world"
)

func fillRoot(t testing.TB, root string) { fillBusybox(t, root) }

func cleanRoot() {}

// fakes are the hosts of the tests that run.
var fakes = make(map[testing.TB]*fakefreebsd.Fake)

// needJails makes a host for the test.
func needJails(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: the fake's jails are chrooted processes and need root")
	}
	if _, err := os.Stat("/bin/busybox"); err != nil {
		t.Skip("SKIPPED: /bin/busybox (Debian's busybox-static) is not installed")
	}
	if fakes[t] == nil {
		fakes[t] = fakefreebsd.Install(t)
		fakes[t].Use(t.(*testing.T))
		t.Cleanup(func() { delete(fakes, t) })
	}
}

// foreignJail makes a jail that is somebody else's.
func (n *node) foreignJail(name string) { n.strayJail(name, n.t.TempDir()) }

func (n *node) removeForeign(name string) { n.tool("jail", "-R", name) }

// strayJail makes one of a container, as ocijail's create leaves it when it dies.
func (n *node) strayJail(name, root string) {
	n.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		n.t.Fatal(err)
	}
	fakes[n.t].Change(func(w *world.World) {
		w.NextJID++
		w.Jails = append(w.Jails, &world.Jail{JID: w.NextJID, Name: name, Path: root, RootDev: st.Dev, RootIno: st.Ino})
	})
}
