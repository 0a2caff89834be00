// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// While the state directory is full nothing can be changed; what there is is
// shown at once, and tasks run and are probed. With room again all is well.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	need(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := loaded(t, "--state-dir", filepath.Join(disk, "state"))
	d.watched("web")
	eventually(t, 30*time.Second, "it runs", func() bool { return len(d.running("web")) == 1 })
	here := d.held("web")
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	eventually(t, 30*time.Second, "changes refused", func() bool {
		status, _ := d.call("POST", "/services/create", serviceSpec("more", nil, label("pad", strings.Repeat("x", 8192))))
		return status == 503
	})
	d.onlyReads("web")
	d.stillProbed(here)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.Close()
	eventually(t, 30*time.Second, "changes taken", func() bool {
		_, _, err := d.try("service", "scale", "-d", "web=2")
		return err == nil
	})
	eventually(t, 30*time.Second, "two run", func() bool { return len(d.running("web")) == 2 })
}
