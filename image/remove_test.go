// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestRemoveTreeRefusesUnclearPaths(t *testing.T) {
	t.Chdir(t.TempDir()) // what a mistake would hit
	write(t, "kept", "kept")
	for _, path := range []string{"", ".", "..", "kept", "./kept", "/", "/bin", "/tmp/../bin", "/tmp/x/"} {
		if err := RemoveTree(path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("RemoveTree(%q): %v, want it refused", path, err)
		}
	}
	if content(t, "kept") != "kept" {
		t.Error("the working directory was touched")
	}
}

func TestRemoveTree(t *testing.T) {
	top := t.TempDir()
	outside := filepath.Join(top, "outside")
	dir := filepath.Join(top, "dir")
	for _, d := range []string{outside, filepath.Join(dir, "a/b/c"), filepath.Join(dir, "many")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, "kept", outside, "kept")
	for i := range 3000 { // more than one read of the directory
		write(t, "", dir, "many", strings.Repeat("x", i%50)+string(rune('a'+i%26))+filepath.Base(t.Name())+strings.Repeat("y", i/50))
	}
	if err := os.Symlink(outside, filepath.Join(dir, "a/link")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveTree(dir); err != nil {
			t.Fatal(err)
		}
	}
	missing(t, dir)
	if content(t, outside, "kept") != "kept" {
		t.Error("a symbolic link was followed")
	}
	if err := RemoveTree(filepath.Join(top, "none/at/all")); err != nil {
		t.Errorf("a path whose parent is missing: %v", err)
	}
}
