// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"satld/image"
)

// TestImageLoads: what mkimage makes is loaded and mounted, with modes and
// links as they were and everything root's.
func TestImageLoads(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root (loading an image)")
	}
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "out.tar")
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "bin"), 0o755),
		os.WriteFile(filepath.Join(root, "bin/su"), []byte("su"), 0o755),
		os.Chmod(filepath.Join(root, "bin/su"), 0o755|os.ModeSetuid),
		os.Chown(filepath.Join(root, "bin"), 12, 34),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
		os.Symlink("su", filepath.Join(root, "bin/ls")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := run(root, "web:1", out, v1.Config{Cmd: []string{"/bin/su"}}); err != nil {
		t.Fatal(err)
	}
	s, err := image.Open(image.Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	images, err := s.Load(t.Context(), bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 1 || images[0].RepoTags[0] != "web:1" || images[0].Config.Config.Cmd[0] != "/bin/su" {
		t.Errorf("loaded %+v", images)
	}
	mounted, err := s.Mount(t.Context(), images[0].ID, "c")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release(t.Context(), "c")
	for path, mode := range map[string]os.FileMode{
		"bin":    os.ModeDir | 0o755,
		"bin/su": os.ModeSetuid | 0o755,
		"bin/ls": os.ModeSymlink | 0o777,
		"tmp":    os.ModeDir | os.ModeSticky | 0o777,
	} {
		st, err := os.Lstat(filepath.Join(mounted, path))
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode() != mode || st.Sys().(*syscall.Stat_t).Uid != 0 || st.Sys().(*syscall.Stat_t).Gid != 0 {
			t.Errorf("%s: %v owner %d, want %v of root", path, st.Mode(), st.Sys().(*syscall.Stat_t).Uid, mode)
		}
	}
}

func TestRefusals(t *testing.T) {
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "out.tar")
	if err := run(root, "Bad Tag", out, v1.Config{}); err == nil {
		t.Error("a bad tag is accepted")
	}
	if err := run(filepath.Join(root, "none"), "web:1", out, v1.Config{}); err == nil {
		t.Error("a root that is not there is accepted")
	}
	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(root, "web:1", out, v1.Config{}); err == nil {
		t.Error("a pipe is accepted")
	}
	left, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestScriptsParse finds what is wrong with the shell scripts before they run.
func TestScriptsParse(t *testing.T) {
	for _, script := range []string{"debian-setup", "make-nginx-image", "make-busybox-image", "image-root.sh"} {
		if out, err := exec.Command("bash", "-n", filepath.Join("..", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}
