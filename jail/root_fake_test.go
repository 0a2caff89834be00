// SPDX-License-Identifier: BSD-2-Clause

//go:build fakefreebsd

package jail

import (
	"os"
	"testing"

	"satld/internal/fakefreebsd"
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
