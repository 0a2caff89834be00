// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/api/wire"
	"satld/executor"
	"satld/healthcheck"
	"satld/orchestrator"
)

// TestFlapping: a warning before the restart budget is used up, as an event
// and a line of the log when a task takes the place of one that failed, and in
// the table of health.
func TestFlapping(t *testing.T) {
	var logged bytes.Buffer
	f := newFixture(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	now := time.Now()
	said := make(warned)
	// restart has a task of slot 1 fail and another follow it, the nth.
	restart := func(service string, n int) {
		t.Helper()
		next := &api.Task{ID: fmt.Sprintf("%s-%d", service[:6], n), ServiceID: service, Slot: 1, NodeID: fakeNodeID, DesiredState: api.TaskStateRunning,
			Status:      api.TaskStatus{State: api.TaskStateRunning},
			Annotations: api.Annotations{Labels: map[string]string{orchestrator.LabelCount: fmt.Sprint(n)}}}
		f.cluster.update(t, func(tx store.Tx) error {
			svc := store.GetService(tx, service)
			next.Spec, next.SpecVersion, next.ServiceAnnotations = svc.Spec.Task, svc.SpecVersion, svc.Spec.Annotations
			tasks, err := store.FindTasks(tx, store.ByServiceID(service))
			if err != nil {
				return err
			}
			for _, old := range tasks {
				if old.Status.State == api.TaskStateRunning {
					at := now.Add(time.Duration(n-9) * time.Minute)
					old.Status.State, old.DesiredState = api.TaskStateFailed, api.TaskStateShutdown
					old.Status.Timestamp = &gogotypes.Timestamp{Seconds: at.Unix()}
					if err := store.UpdateTask(tx, old); err != nil {
						return err
					}
				}
			}
			return store.CreateTask(tx, next)
		})
		f.server.warnOfFlapping(next, said, now)
	}
	warnings := func(service string) (out []string) {
		past, _, cancel := f.events.Subscribe(now.Add(-time.Hour))
		defer cancel()
		for _, m := range past {
			if m.Action == actionBudgetLow && m.Actor.ID == service {
				if m.Actor.Attributes["slot"] != "1" || m.Scope != "swarm" || m.Actor.Attributes["task"] == "" {
					t.Errorf("%+v", m)
				}
				out = append(out, m.Actor.Attributes["warning"])
			}
		}
		return out
	}

	web, _ := f.create(t, `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"]}},"RestartPolicy":{"Condition":"any","MaxAttempts":4}}}`)
	f.runTasks(t, web, 1)
	restart(web, 1)
	if got := warnings(web); len(got) != 0 {
		t.Errorf("after one of four: %q", got)
	}
	restart(web, 2)
	restart(web, 3)
	got := warnings(web)
	if len(got) != 2 || !strings.HasPrefix(got[0], "2 of 4 restart attempts used, 2 left") || !strings.HasPrefix(got[1], "3 of 4 restart attempts used, 1 left: at this pace used up in 1m0s") {
		t.Errorf("%q", got)
	}
	if n := strings.Count(logged.String(), "restart attempts used"); n != 2 {
		t.Errorf("logged %d times: %s", n, &logged)
	}
	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{{TaskID: web[:6] + "-3", ServiceID: web, Serving: true, Settings: &healthcheck.Settings{Retries: 3},
			Health: &healthcheck.Health{Status: healthcheck.Healthy, Dips: []time.Time{now, now, now}}}}
	}
	h := into[wire.Health](t, f.must(t, 200, "GET", "/satl/v1/services/web/health", ""))
	if len(h.Tasks) != 1 || !strings.Contains(h.Tasks[0].Flapping, "3 of 4 restart attempts used") || !strings.Contains(h.Tasks[0].Flapping, "failed and passed again 3 times") {
		t.Errorf("%+v", h.Tasks)
	}

	// Without a budget it is said once in a while, not at every restart.
	loop, _ := f.create(t, `{"Name":"loop","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`)
	f.runTasks(t, loop, 1)
	for n := 1; n <= 8; n++ {
		restart(loop, n)
	}
	if got := warnings(loop); len(got) != 1 || !strings.Contains(got[0], "no MaxAttempts ends its replacement") {
		t.Errorf("%q", got)
	}
	now = now.Add(repeatWarning)
	for n := 9; n <= 11; n++ {
		restart(loop, n)
	}
	if got := warnings(loop); len(got) != 2 {
		t.Errorf("%q", got)
	}
	// A task that nothing failed for, and one whose service is gone.
	f.server.warnOfFlapping(&api.Task{ServiceID: loop, Slot: 1}, said, now)
	f.server.warnOfFlapping(&api.Task{ServiceID: "gone", Slot: 1, Annotations: api.Annotations{Labels: map[string]string{orchestrator.LabelCount: "9"}}}, said, now)
	if got := warnings(loop); len(got) != 2 {
		t.Errorf("%q", got)
	}
}
