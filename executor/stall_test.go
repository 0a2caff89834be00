// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"

	"satld/internal/stalled"
)

// stallable is a node on a disk that stands still while its gate is closed.
type stallable struct {
	*bench
	disk stalled.Gate
}

func newStallable(t *testing.T, with ...func(*bench)) *stallable {
	s := &stallable{}
	s.bench = newBench(t, append(with, func(b *bench) {
		b.write = func(dir string, r Record) error {
			s.disk.Pass()
			return saveRecord(dir, r)
		}
	})...)
	return s
}

// onDisk is the container's record as the next daemon would find it.
func (s *stallable) onDisk(t *testing.T) Record {
	t.Helper()
	records, _, _, err := loadRecords(s.node.dir)
	if err != nil || len(records) != 1 {
		t.Fatalf("%+v, %v", records, err)
	}
	return records[0]
}

// The disk stands still. A task that its probe condemns is out of traffic at
// once. It is stopped once that is written down, and has failed: a daemon that is
// killed meanwhile must not take its end for a good one.
func TestVerdictOnAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStallable(t)
		defer s.close()
		var bad atomic.Bool
		s.rt.probe = func(string) (int, string) {
			if bad.Load() {
				return 7, "gone"
			}
			return 0, ""
		}
		_, c := running(t, s.bench, everySecond(3), nil)
		synctest.Wait()
		goOn := s.disk.Close()
		bad.Store(true)
		ended := make(chan error, 1)
		go func() { ended <- c.Wait(t.Context()) }()
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		if s.traffic.serving(taskContainerID("task1")) || s.j.at("withdraw") < 0 {
			t.Errorf("condemned and not withdrawn: %q", s.j.all())
		}
		time.Sleep(time.Minute)
		if s.j.at("kill 15") >= 0 {
			t.Error("stopped, and nobody would know why")
		}
		if r := s.onDisk(t); r.State != Running || r.Unhealthy != "" {
			t.Errorf("the disk did not stand still: %+v", r)
		}
		goOn()
		if err := <-ended; !errors.Is(err, errUnhealthy) {
			t.Errorf("Wait returned %v", err)
		}
		synctest.Wait()
		if r := s.onDisk(t); r.State != Exited || r.Unhealthy == "" || r.ExitCode != 0 {
			t.Errorf("on the disk is %+v", r)
		}
	})
}

// Nor does anything else wait that takes a task out of traffic.
func TestTrafficOnAStalledDisk(t *testing.T) {
	unready := func(task *api.Task) *api.Task {
		task = task.Copy()
		task.Annotations.Labels = map[string]string{labelReady: "false"}
		return task
	}
	for _, tc := range []struct {
		name string
		do   func(s *stallable, task *api.Task, c exec.Controller) error
	}{
		{"operator's word", func(s *stallable, task *api.Task, c exec.Controller) error {
			return c.(interface {
				Update(context.Context, *api.Task) error
			}).Update(context.Background(), unready(task))
		}},
		{"shutdown", func(s *stallable, _ *api.Task, c exec.Controller) error {
			go c.Shutdown(context.Background())
			return nil
		}},
		{"removal", func(s *stallable, _ *api.Task, c exec.Controller) error {
			go c.Remove(context.Background())
			return nil
		}},
		{"kill", func(s *stallable, _ *api.Task, c exec.Controller) error {
			return s.node.Kill(context.Background(), taskContainerID("task1"), "")
		}},
		{"its end", func(s *stallable, _ *api.Task, c exec.Controller) error {
			s.rt.end(taskContainerID("task1"), 1)
			return c.Wait(context.Background())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStallable(t)
				defer s.close()
				task, c := running(t, s.bench, nil, nil)
				synctest.Wait()
				goOn := s.disk.Close()
				done := make(chan error, 1)
				go func() { done <- tc.do(s, task, c) }()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if s.traffic.serving(taskContainerID("task1")) {
					t.Errorf("it serves: %q", s.j.all())
				}
				select {
				case <-done:
				default:
					t.Error("it waits for the disk")
				}
				goOn()
				time.Sleep(time.Minute) // whatever stops has ended
			})
		})
	}
}

// While a container is made on a disk that stands still the node shows what
// there is. Nobody starts the new one before it is recorded.
func TestCreateOnAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStallable(t)
		defer s.close()
		running(t, s.bench, nil, nil)
		synctest.Wait()
		goOn := s.disk.Close()
		type made struct {
			id  string
			err error
		}
		create := make(chan made, 1)
		go func() {
			id, _, err := s.node.Create(t.Context(), CreateRequest{Name: "tool", Config: &container.Config{Image: "app:1"}})
			create <- made{id, err}
		}()
		synctest.Wait()
		if n := len(s.node.List()); n != 2 {
			t.Errorf("%d containers", n)
		}
		if c, err := s.node.Get("web"); err != nil || c.State != Running {
			t.Errorf("%+v, %v", c, err)
		}
		if _, _, err := s.node.Create(t.Context(), CreateRequest{Name: "tool", Config: &container.Config{Image: "app:1"}}); !cerrdefs.IsConflict(err) {
			t.Errorf("the same name again: %v", err)
		}
		before := len(s.j.all())
		started := make(chan error, 1)
		go func() { started <- s.node.Start(t.Context(), "tool") }()
		synctest.Wait()
		if got := s.j.after(before); len(got) > 0 {
			t.Errorf("not recorded, and started: %q", got)
		}
		goOn()
		if c := <-create; c.err != nil {
			t.Error(c.err)
		}
		if err := <-started; err != nil {
			t.Error(err)
		}
	})
}

// goneRuntime knows of an end before it knows how it was.
type goneRuntime struct {
	*fakeRuntime
	gone chan struct{}
}

func (f *goneRuntime) AwaitGone(ctx context.Context, _ string) error {
	select {
	case <-f.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Nothing is sent to a process that is gone, though nobody knows yet how it ended.
func TestGoneIsOutOfTrafficAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		rt := &goneRuntime{b.rt, make(chan struct{})}
		b.node.cfg.Runtime = rt
		_, c := running(t, b, nil, nil)
		synctest.Wait()
		close(rt.gone)
		synctest.Wait()
		if b.traffic.serving(taskContainerID("task1")) || b.j.at("remove") < 0 {
			t.Errorf("it serves: %q", b.j.all())
		}
		b.rt.end(taskContainerID("task1"), 3)
		if err := c.Wait(t.Context()); err == nil {
			t.Error("it did not fail")
		}
	})
}
