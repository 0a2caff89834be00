// SPDX-License-Identifier: BSD-2-Clause

//go:build linux || freebsdhost

package jail

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
)

// onDisk names the files below dir with a text in them. What is mounted below
// it is elsewhere.
func onDisk(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	device := func(path string) any {
		st, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Dev
	}
	disk := device(dir)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || device(path) != disk {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// withFilesIn is a container that is given three files, one in place of one of
// its root.
func (n *node) withFilesIn(script string) Spec {
	s := n.spec(script)
	s.Files = []File{
		{Target: "/run/secrets/password", Data: []byte("hunter2\n"), Mode: 0o440, UID: 1000, GID: 44},
		{Target: "/etc/group", Data: []byte("in place of it\n"), Mode: 0o444},
		{Target: "/made/here/script", Data: []byte("#!/bin/sh\necho it runs\n"), Mode: 0o555},
	}
	return s
}

func TestFilesInMemory(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		n := newNode(t)
		s := n.withFilesIn(`cat /run/secrets/password /etc/group; ls -ln /run/secrets/password; /made/here/script
			for f in /run/secrets/password /etc/group; do (echo x > $f) 2>/dev/null && echo "$f was written"; done
			echo up; exec sleep 1000`)
		s.ReadOnly = readOnly
		if _, err := n.Create(context.Background(), s); runtime.GOOS == "freebsd" && errdefs.IsNotImplemented(err) {
			t.Skipf("SKIPPED: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Start(context.Background(), s.ID); err != nil {
			t.Fatal(err)
		}
		n.says(s.ID, "up")
		lines := n.lines(s.ID, LogQuery{Tail: -1})
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "stdout:")
		}
		if len(lines) != 5 || lines[0] != "hunter2" || lines[1] != "in place of it" || lines[3] != "it runs" {
			t.Fatalf("%q", lines)
		}
		if f := strings.Fields(lines[2]); f[0] != "-r--r-----" || f[2] != "1000" || f[3] != "44" {
			t.Errorf("%q", lines[2])
		}
		for _, path := range onDisk(t, n.state, "hunter2") {
			if !strings.HasPrefix(path, n.dir.Logs(s.ID)) { // the container printed it
				t.Errorf("found in %s", path)
			}
		}
		if entries, _ := os.ReadDir(n.memories); !onJails && len(entries) > 0 {
			t.Errorf("the host still has %v", entries)
		}
		// The next daemon leaves a running container's files alone.
		n.restart()
		if code, out, _, err := n.probe(s.ID, patience, "cat", "/run/secrets/password"); code != 0 || out != "hunter2\n" || err != nil {
			t.Errorf("after a restart: %d, %q, %v", code, out, err)
		}
		if err := n.Delete(context.Background(), s.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of the files", func() bool {
			if left, err := n.Lingers(context.Background(), s.ID); left || err != nil {
				return false
			}
			entries, err := os.ReadDir(n.memories)
			return err == nil && len(entries) == 0
		})
	}
}

// A container that cannot be made leaves no file, and so does a daemon that is
// killed while one is made.
func TestFilesOfHalfAContainer(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	s := n.withFilesIn("true")
	s.Args = []string{"/no/such"}
	if _, err := n.Create(ctx, s); err == nil && !onJails { // a jail finds it out when it is started
		t.Error("made")
	}
	s.Files[0].Target = "/"
	if _, err := n.Create(ctx, s); err == nil {
		t.Error("made a root of it")
	}
	if err := n.Delete(ctx, s.ID); err != nil {
		t.Error(err)
	}
	eventually(t, "the end of the files", func() bool {
		entries, err := os.ReadDir(n.memories)
		return err == nil && len(entries) == 0
	})

	s = n.withFilesIn("true")
	for i := range 500 { // there is room for all, however small they are
		s.Files = append(s.Files, File{Target: fmt.Sprintf("/etc/many/%d", i), Data: []byte("x")})
	}
	if err := n.placeFiles(ctx, s); err != nil {
		t.Fatal(err)
	}
	for i, path := range memoryFiles(n.memory(s.ID), s.Files) {
		if err := os.WriteFile(path, s.Files[i].Data, 0); err != nil {
			t.Fatal(err)
		}
	}
	n.restart()
	if entries, err := os.ReadDir(n.memories); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), n.memories) {
		t.Errorf("still mounted")
	}
}
