// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
)

// jails makes a bench whose containers are jails, with every step written down.
func jails(b *bench) {
	b.jails = true
	b.images.j, b.nets.j = b.j, b.j
}

// facts/freebsd.md, "VNET plumbing" and "A dying jail"; cases/jail.md, jail-2.
func TestOrderOfAJail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, jails)
		defer b.close()
		b.rt.dies = 3 * time.Second
		id := created(t, b, nil)
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		up := []string{"mount", "lease", "create", "attach " + id, "start", "put serving=true"}
		if got := b.j.all(); !slices.Equal(got, up) {
			t.Errorf("up: %q, want %q", got, up)
		}
		begun := time.Now()
		if err := b.node.Stop(t.Context(), id, nil, ""); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("reported ended after %v: the jail's death was waited for", took)
		}
		synctest.Wait()
		if slices.ContainsFunc(b.j.all(), func(l string) bool { return strings.HasPrefix(l, "detach") || l == "unmount" }) {
			t.Errorf("taken apart while the jail is dying: %q", b.j.all())
		}
		time.Sleep(10 * time.Second)
		got := b.j.all()[len(up):]
		order := []string{"withdraw", "kill 15", "remove", "delete", "detach " + id, "unmount"}
		at := -1
		for _, step := range order {
			next := slices.Index(got, step)
			if next <= at {
				t.Errorf("down: %q, want %q in that order", got, order)
			}
			at = next
		}
	})
}

// Linux joins a namespace that was made before.
func TestOrderOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench) { b.images.j, b.nets.j = b.j, b.j })
		defer b.close()
		id := created(t, b, nil)
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got, want := b.j.all(), []string{"mount", "attach " + id, "create", "start", "put serving=true"}; !slices.Equal(got, want) {
			t.Errorf("up: %q, want %q", got, want)
		}
		b.rt.end(id, 0)
		synctest.Wait()
	})
}

// cases/jail.md, jail-1: start k+1 succeeds while k is dying, under a name of
// its own, and every jail's interfaces go when it is gone.
func TestNoJailNameIsUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, jails)
		defer b.close()
		b.rt.dies = time.Minute
		id := created(t, b, nil)
		begun := time.Now()
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := b.node.Restart(t.Context(), id, nil, ""); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("20 restarts waited %v for dying jails", took)
		}
		names := b.rt.created()
		if slices.Sort(names); len(names) != 21 || len(slices.Compact(names)) != 21 {
			t.Errorf("%d distinct names of %d", len(slices.Compact(names)), len(names))
		}
		// The daemon restarts and knows which run it is.
		b.close()
		b.open()
		if err := b.node.Restart(t.Context(), id, nil, ""); err != nil {
			t.Fatal(err)
		}
		if last := b.rt.created()[21]; last != id+"-22" {
			t.Errorf("after a restart of the daemon the next run is %s", last)
		}
		time.Sleep(2 * time.Minute)
		for _, name := range b.rt.created()[:21] {
			if b.j.at("detach "+name) < 0 {
				t.Errorf("interfaces of run %s were left", name)
			}
		}
		if b.j.at("unmount") >= 0 {
			t.Error("the root of a running container was unmounted")
		}
	})
}

// A removal does not wait for a dying jail, and is finished when it is gone,
// by a later daemon too.
func TestRemovalIsNotHeldByADyingJail(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, jails)
			defer func() { b.close() }()
			b.rt.dies = time.Minute
			id := created(t, b, nil)
			if err := b.node.Start(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			gone := time.Now().Add(b.rt.dies)
			b.images.busy = func() error {
				if time.Now().Before(gone) {
					return errors.New("device busy")
				}
				return nil
			}
			if err := b.node.Remove(t.Context(), id, true, false); err != nil {
				t.Fatal(err)
			}
			if _, err := b.node.Get(id); !cerrdefs.IsNotFound(err) {
				t.Errorf("still there: %v", err)
			}
			if b.j.at("release") >= 0 {
				t.Error("its root was tried while the jail is dying")
			}
			if restarted {
				b.close()
				b.open()
			}
			time.Sleep(2 * time.Minute)
			if b.j.at("release") < 0 || b.j.at("detach "+id) < 0 {
				t.Errorf("restarted %t: not taken away: %q", restarted, b.j.all())
			}
			if records, strays, _, err := loadRecords(b.node.dir); err != nil || len(records)+len(strays) != 0 {
				t.Errorf("restarted %t: records %v, strays %v, %v", restarted, records, strays, err)
			}
		})
	}
}

// cases/jail.md, jail-3: a root that somebody holds is refused, said, and
// removed when it is free.
func TestBusyRootIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		free := time.Now().Add(5 * time.Second)
		b.images.busy = func() error {
			if time.Now().Before(free) {
				return errors.New("refusing to delete: still mounted there: /data")
			}
			return nil
		}
		id := created(t, b, nil)
		if err := b.node.Remove(t.Context(), id, false, false); err == nil || !strings.Contains(err.Error(), "/data") {
			t.Fatalf("remove: %v", err)
		}
		if s, err := b.node.Get(id); err != nil || s.State != Dead {
			t.Errorf("%v, %v", s.State, err)
		}
		removed, err := b.node.Wait(t.Context(), id, container.WaitConditionRemoved)
		if err != nil {
			t.Fatal(err)
		}
		if r := <-removed; r.Err != nil {
			t.Error(r.Err)
		}
		if time.Now().Before(free) {
			t.Error("gone while it was held")
		}
	})
}

// What no record names and does not go at once is shown, blocks its ID, and
// goes in the end.
func TestStrayIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer func() { b.close() }()
		b.close()
		id := taskContainerID("task1")
		if err := os.MkdirAll(filepath.Join(b.dir, "executor", id), 0o700); err != nil {
			t.Fatal(err)
		}
		free := time.Now().Add(5 * time.Second)
		b.images.busy = func() error {
			if time.Now().Before(free) {
				return errors.New("still mounted there: /data")
			}
			return nil
		}
		b.open()
		if s, err := b.node.Get(id); err != nil || s.State != Dead && s.State != Removing {
			t.Errorf("%v, %v", s.State, err)
		}
		if err := prepareStart(t, b, webTask(nil)); err == nil {
			t.Error("a task was started over what is being removed")
		}
		time.Sleep(10 * time.Second)
		if _, err := b.node.Get(id); !cerrdefs.IsNotFound(err) {
			t.Errorf("still there: %v", err)
		}
	})
}

func prepareStart(t *testing.T, b *bench, task *api.Task) error {
	t.Helper()
	c := controllerOf(t, b, task)
	if err := c.Prepare(t.Context()); err != nil && err != exec.ErrTaskPrepared {
		return err
	}
	return c.Start(t.Context())
}
