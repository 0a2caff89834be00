// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"satld/internal/fakefreebsd"
	"satld/platform/command"
)

// TestZFSOnFakeHost is the same as on a host, by its tools: the dataset is found
// by the mount at the state directory, and a root is busy for as long as
// somebody holds it.
func TestZFSOnFakeHost(t *testing.T) {
	needRoot(t)
	host := fakefreebsd.Install(t)
	host.Use(t)
	host.Pool("zroot")
	state, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(t.Context(), command.Run, "zfs", "create", "-o", "mountpoint="+state, "zroot/satl"); err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{StateDir: state, tools: command.Run})
	if kind := s.roots.kind(); kind != "zfs" {
		t.Fatalf("roots are of kind %s", kind)
	}
	img := load(t, s, twoLayers(t))
	root := mount(t, s, img.ID, "c")
	checkRoot(t, root)
	write(t, string(make([]byte, 10000)), root, "new")
	if n, err := s.Usage(t.Context(), "c"); err != nil || n < 10000 {
		t.Errorf("usage %d %v", n, err)
	}
	table, err := mountTable(t.Context(), command.Run)
	if err != nil || !slices.Contains(table, mountEntry{"zroot/satl/containers/c", root, "zfs"}) {
		t.Errorf("mounts %v %v, want the root's", table, err)
	}
	held, err := os.Open(filepath.Join(root, "new"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := s.Release(t.Context(), "c"); !IsBusy(err) || !strings.Contains(err.Error(), "busy") {
		t.Errorf("release of a held root: %v, want it busy", err)
	}
	checkRoot(t, root)
	held.Close()
	if err := s.Unmount(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if got := len(content(t, mount(t, s, img.ID, "c"), "new")); got != 10000 {
		t.Errorf("new has %d bytes after a new mount", got)
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Remove(t.Context(), "web:1", false); err != nil {
		t.Fatal(err)
	}
	left, err := call(t.Context(), command.Run, "zfs", "list", "-H", "-o", "name", "-t", "all", "-r", "zroot/satl")
	if err != nil || left != "zroot/satl\nzroot/satl/containers\nzroot/satl/layers\n" {
		t.Errorf("left: %q %v", left, err)
	}
	tidy(t, s)
}
