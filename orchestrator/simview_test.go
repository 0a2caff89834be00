// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

func (s *sim) service() (svc *api.Service) {
	s.store.View(func(tx store.ReadTx) { svc = store.GetService(tx, "web") })
	return svc
}

// tasks are the service's, oldest first.
func (s *sim) tasks() (out []*api.Task) {
	s.store.View(func(tx store.ReadTx) { out, _ = store.FindTasks(tx, store.ByServiceID("web")) })
	slices.SortFunc(out, func(a, b *api.Task) int { return newestFirst(b, a) })
	return out
}

// serving are the tasks that run and are to run.
func (s *sim) serving() (out []*api.Task) {
	for _, t := range s.tasks() {
		if t.Status.State == api.TaskStateRunning && t.DesiredState == api.TaskStateRunning {
			out = append(out, t)
		}
	}
	return out
}

func imageOf(t *api.Task) string { return t.Spec.GetContainer().Image }

// images counts the serving tasks of an image.
func (s *sim) images(name string) (n int) {
	for _, t := range s.serving() {
		if imageOf(t) == name {
			n++
		}
	}
	return n
}

func (s *sim) status() string {
	u := s.service().UpdateStatus
	if u == nil {
		return "none"
	}
	return u.State.String()
}

// ids are the sorted IDs of tasks.
func ids(tasks []*api.Task) (out []string) {
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	slices.Sort(out)
	return out
}

// await lets virtual time pass until a condition holds.
func (s *sim) await(within time.Duration, what string, holds func() bool) time.Duration {
	s.t.Helper()
	begin := time.Now()
	for {
		synctest.Wait()
		if holds() {
			return time.Since(begin)
		}
		if time.Since(begin) > within {
			s.t.Fatalf("%s: not within %v\n%s", what, within, s.dump())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *sim) awaitServing(image string, n int) time.Duration {
	s.t.Helper()
	return s.await(5*time.Minute, fmt.Sprintf("%d tasks of %s serve", n, image), func() bool { return s.images(image) == n })
}

func (s *sim) awaitStatus(want api.UpdateStatus_UpdateState) time.Duration {
	s.t.Helper()
	return s.await(3*time.Hour, "status "+want.String(), func() bool { return s.status() == want.String() })
}

func (s *sim) dump() string {
	out := fmt.Sprintf("status %s", s.status())
	if u := s.service().UpdateStatus; u != nil {
		out += ": " + u.Message
	}
	for _, t := range s.tasks() {
		out += fmt.Sprintf("\n  %s slot %d on %q %s v%v %s/%s %s %q %v", t.ID[:5], t.Slot, t.NodeID, imageOf(t), versionOf(t),
			t.Status.State, t.DesiredState, t.Status.Err, t.Status.Message, t.Annotations.Labels)
	}
	return out
}

func versionOf(t *api.Task) uint64 {
	if t.SpecVersion == nil {
		return 0
	}
	return t.SpecVersion.Index
}

func (s *sim) view() (v View) {
	s.t.Helper()
	var err error
	s.store.View(func(tx store.ReadTx) { v, err = viewOf(tx, "web") })
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}
