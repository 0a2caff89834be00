// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"errors"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"satld/platform/command"
)

// TestZFSCrashAtEachStep lets a daemon end before and after each command, and
// looks that the next one finds or makes a whole state.
func TestZFSCrashAtEachStep(t *testing.T) {
	archive := saved(t, "web:1", v1.Config{}, baseLayer(t), topLayer(t))
	life := func(s *Store) error {
		images := s.List()
		for _, c := range []string{"a", "b"} {
			if _, err := s.Mount(context.Background(), images[0].ID, c); err != nil {
				return err
			}
		}
		if err := s.Unmount(context.Background(), "a"); err != nil {
			return err
		}
		for _, c := range []string{"a", "b"} {
			if err := s.Release(context.Background(), c); err != nil {
				return err
			}
		}
		_, _, err := s.Remove(context.Background(), "web:1", false)
		return err
	}
	commands := newPoolCalls(t, archive, life)
	for step := range 2 * len(commands) {
		at, after := step/2, step%2 == 1
		p, state := newPool(t), t.TempDir()
		c := p.config()
		c.StateDir, c.Logger = state, quiet()
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		load(t, s, archive)
		p.calls = nil
		p.fault = func(argv []string, done bool) error {
			if n := len(p.calls) - 1; n > at || n == at && done == after {
				return &command.Error{Command: command.Of(argv...), Err: errCrashed}
			}
			return nil
		}
		_ = life(s) // what it reports depends on the step, and nobody is there to hear it
		s.Close()
		p.fault = nil
		s, err = Open(c)
		if err != nil {
			t.Fatalf("crash at %q, done %v: %v", commands[at], after, err)
		}
		if err := s.Sweep(t.Context(), map[string]bool{"b": true}); err != nil {
			t.Errorf("crash at %q, done %v: sweep: %v", commands[at], after, err)
		}
		img := load(t, s, archive)
		for _, id := range []string{"a", "b"} {
			checkRoot(t, mount(t, s, img.ID, id))
		}
		if err := s.Sweep(t.Context(), nil); err != nil {
			t.Errorf("crash at %q, done %v: last sweep: %v", commands[at], after, err)
		}
		tidy(t, s)
		if _, _, err := s.Remove(t.Context(), "web:1", false); err != nil {
			t.Errorf("crash at %q, done %v: %v", commands[at], after, err)
		}
		if left := append(p.sets(layersSet), p.sets(containersSet)...); len(left) > 0 {
			t.Errorf("crash at %q, done %v: datasets are left: %v", commands[at], after, left)
		}
		if left, err := mountsBelow(state); err != nil || len(left) > 0 {
			t.Errorf("crash at %q, done %v: mounts are left: %v %v", commands[at], after, left, err)
		}
		s.Close()
	}
	t.Logf("%d commands, each with a crash before and after it", len(commands))
}

// newPoolCalls are the commands of a life without any crash.
func newPoolCalls(t *testing.T, archive []byte, life func(*Store) error) []string {
	p := newPool(t)
	s := openPool(t, p, "")
	load(t, s, archive)
	p.calls = nil
	if err := life(s); err != nil {
		t.Fatal(err)
	}
	return p.calls
}

var errCrashed = errors.New("the daemon has ended")
