// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"satld/jail"
)

func created(t *testing.T, b *bench, host *container.HostConfig) string {
	t.Helper()
	id, _, err := b.node.Create(t.Context(), CreateRequest{Name: "one", Config: &container.Config{Image: "app:1"}, HostConfig: host})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestCreatedContainerSurvivesTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := created(t, b, nil)
		b.close()
		b.open()
		defer b.close()
		if s, err := b.node.Get(id); err != nil || s.State != Created {
			t.Fatalf("%+v, %v", s, err)
		}
		if err := b.node.Logs(t.Context(), id, jail.LogQuery{}, nil); err != nil {
			t.Errorf("logs of what never ran: %v", err)
		}
		if err := b.node.Start(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if s, _ := b.node.Get(id); s.State != Running {
			t.Errorf("state %s after its start", s.State)
		}
		if err := b.node.Start(t.Context(), "one"); !cerrdefs.IsNotModified(err) {
			t.Errorf("a second start: %v", err)
		}
		b.rt.end(id, 0)
		synctest.Wait()
	})
}

// `run --rm` of a command that is not there: the container goes, and whoever
// waits for that learns of it.
func TestFailedStartOfAutoRemoveIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		b.rt.failCreate = &jail.StartError{ExitCode: 127, Text: "not found"}
		id := created(t, b, &container.HostConfig{AutoRemove: true})
		removed, err := b.node.Wait(t.Context(), id, container.WaitConditionRemoved)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.node.Start(t.Context(), id); !errors.As(err, new(*jail.StartError)) {
			t.Fatalf("start: %v", err)
		}
		if r := <-removed; r.ExitCode != 127 || r.Err != nil {
			t.Errorf("waited for %+v", r)
		}
		if _, err := b.node.Get(id); !cerrdefs.IsNotFound(err) {
			t.Errorf("still there: %v", err)
		}
	})
}

// One that cannot be removed is waited for only so long: `run --rm` ends.
func TestRemovalThatFailsIsNotWaitedForForEver(t *testing.T) {
	for _, busy := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.close()
			until := time.Now().Add(busy)
			b.images.busy = func() error {
				if time.Now().Before(until) {
					return errors.New("device busy")
				}
				return nil
			}
			id := created(t, b, &container.HostConfig{AutoRemove: true})
			removed, err := b.node.Wait(t.Context(), id, container.WaitConditionRemoved)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.node.Start(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			b.rt.end(id, 0)
			begun := time.Now()
			r := <-removed
			if took := time.Since(begun); took > 2*endPatience || (r.Err != nil) != (busy == time.Hour) {
				t.Errorf("busy for %v: %+v after %v", busy, r, took)
			}
		})
	}
}

// `start -a` waits for the next exit first and starts then.
func TestWaitForTheNextExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		id := created(t, b, nil)
		for code := range 3 {
			next, err := b.node.Wait(t.Context(), id, container.WaitConditionNextExit)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.node.Start(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() { b.rt.end(id, code) })
			if r := <-next; r.ExitCode != code || r.Err != nil {
				t.Errorf("run %d: %+v", code, r)
			}
			synctest.Wait()
		}
	})
}

func TestNamesAndPortsAreClaimedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		created(t, b, nil)
		_, _, err := b.node.Create(t.Context(), CreateRequest{Name: "one", Config: &container.Config{Image: "app:1"}})
		if !cerrdefs.IsConflict(err) {
			t.Errorf("a taken name: %v", err)
		}
		if _, _, err := b.node.Create(t.Context(), CreateRequest{Name: "bad/name", Config: &container.Config{Image: "app:1"}}); !cerrdefs.IsInvalidArgument(err) {
			t.Errorf("a bad name: %v", err)
		}
		if _, _, err := b.node.Create(t.Context(), CreateRequest{Config: &container.Config{Image: "missing:1"}}); !cerrdefs.IsNotFound(err) {
			t.Errorf("a missing image: %v", err)
		}
		if n := len(b.node.List()); n != 1 {
			t.Errorf("%d containers", n)
		}
	})
}

func TestRemoveNeedsForceWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		id := created(t, b, nil)
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := b.node.Remove(t.Context(), id, false, false); !cerrdefs.IsConflict(err) {
			t.Errorf("without force: %v", err)
		}
		if err := b.node.Remove(t.Context(), id, true, false); err != nil {
			t.Fatal(err)
		}
		if len(b.node.List()) != 0 {
			t.Error("still there")
		}
	})
}
