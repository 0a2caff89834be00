// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"satld/platform/atomicfile"
)

// reopen closes a store and opens it again with a log that is read.
func reopen(t *testing.T, s *Store, damage func()) (*Store, *bytes.Buffer) {
	t.Helper()
	s.Close()
	damage()
	var log bytes.Buffer
	return open(t, Config{StateDir: filepath.Dir(s.dir), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}), &log
}

// TestDamagedIndex: the index is made again, with the names that were before
// its last change.
func TestDamagedIndex(t *testing.T) {
	for name, data := range map[string]string{
		"empty": "", "cut off": `{"version": 1, "images": [`, "zeros": strings.Repeat("\x00", 200), "no index": "{}",
		"no image": `{"version": 1, "images": ["../../etc/passwd"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{})
			img := load(t, s, twoLayers(t))
			if err := s.Tag("web:1", "last:1"); err != nil {
				t.Fatal(err)
			}
			s, log := reopen(t, s, func() { write(t, data, s.path(indexName)) })
			if got := s.List(); len(got) != 1 || got[0].ID != img.ID || !slices.Equal(got[0].RepoTags, []string{"web:1"}) {
				t.Errorf("images %+v, want web:1", got)
			}
			if !strings.Contains(log.String(), "index of images is damaged") || !strings.Contains(log.String(), "index.json.damaged") {
				t.Errorf("log: %s", log)
			}
			if got := content(t, s.path("index.json.damaged")); got != data {
				t.Errorf("set aside: %q", got)
			}
			checkRoot(t, mount(t, s, img.ID, "c"))
			tidy(t, s)
			// And it is whole again.
			s, log = reopen(t, s, func() {})
			if got := s.List(); len(got) != 1 || log.Len() > 0 {
				t.Errorf("images %+v, log %s", got, log)
			}
		})
	}
}

// TestDamagedIndexAlone: without the index before, images are there by ID.
func TestDamagedIndexAlone(t *testing.T) {
	s := open(t, Config{})
	img := load(t, s, twoLayers(t))
	s, _ = reopen(t, s, func() {
		write(t, "", s.path(indexName))
		write(t, "", s.path(oldIndexName))
		write(t, "", s.path("configs", "no digest"))
	})
	if got := s.List(); len(got) != 1 || got[0].ID != img.ID || len(got[0].RepoTags) > 0 {
		t.Errorf("images %+v, want one without names", got)
	}
	tidy(t, s)
}

// TestLaterIndex is of a later program: it is not damaged, and stays.
func TestLaterIndex(t *testing.T) {
	s := open(t, Config{})
	s.Close()
	write(t, `{"version": 9}`, s.path(indexName))
	if _, err := Open(Config{StateDir: filepath.Dir(s.dir)}); err == nil || !strings.Contains(err.Error(), "version 9 is not known") {
		t.Errorf("opened: %v", err)
	}
	if got := content(t, s.path(indexName)); got != `{"version": 9}` {
		t.Errorf("index is %q", got)
	}
}

// TestDamagedRecord: a container whose record is damaged keeps its root, and
// has a record again with its next start.
func TestDamagedRecord(t *testing.T) {
	for name, data := range map[string]string{
		"empty": "", "cut off": `{"image":"sha256:`, "not of here": `{"image":"x","layers":["../../../etc"],"kind":"overlay"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{})
			img := load(t, s, twoLayers(t))
			for _, c := range []string{"started", "released"} {
				write(t, "kept", mount(t, s, img.ID, c), "kept")
				if err := s.Unmount(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			s, log := reopen(t, s, func() {
				for _, c := range []string{"started", "released"} {
					write(t, data, s.containerDir(c), containerMeta)
				}
			})
			if n := strings.Count(log.String(), "its record is damaged"); n != 2 {
				t.Errorf("log: %s", log)
			}
			if _, err := s.Mount(t.Context(), testID('f'), "started"); !errdefs.IsNotFound(err) {
				t.Errorf("no such image: %v", err)
			}
			root := mount(t, s, img.ID, "started")
			checkRoot(t, root)
			if got := content(t, root, "kept"); got != "kept" {
				t.Errorf("kept is %q", got)
			}
			if err := s.Release(t.Context(), "released"); err != nil {
				t.Error(err)
			}
			missing(t, s.containerDir("released"))
			s, log = reopen(t, s, func() {})
			if log.Len() > 0 {
				t.Errorf("log after the start: %s", log)
			}
			mount(t, s, img.ID, "started")
			tidy(t, s)
		})
	}
}

// TestUnfinishedFiles: what a crash leaves beside a file is overwritten, or
// goes with a directory that has no record.
func TestUnfinishedFiles(t *testing.T) {
	s := open(t, Config{})
	img := load(t, s, twoLayers(t))
	s, _ = reopen(t, s, func() {
		write(t, "half", atomicfile.Unfinished(s.path(indexName)))
		write(t, "half", atomicfile.Unfinished(s.path("configs", hexOf(testID('a')))))
		if err := os.Mkdir(s.containerDir("c"), 0o711); err != nil {
			t.Fatal(err)
		}
		write(t, "half", s.containerDir("c"), atomicfile.Unfinished(containerMeta))
	})
	missing(t, s.containerDir("c"))
	if err := s.Tag(img.ID, "again:1"); err != nil {
		t.Fatal(err)
	}
	missing(t, atomicfile.Unfinished(s.path(indexName)))
	tidy(t, s)
}
