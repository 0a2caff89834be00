// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/api/wire"
	"satld/cluster"
	"satld/executor"
	"satld/healthcheck"
	"satld/mesh"
)

const probedWeb = `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Labels":{"satl.health.replace-after":"6"},
	"Healthcheck":{"Test":["CMD","x"],"Interval":5000000000,"Timeout":1000000000,"Retries":3}}},"Mode":{"Replicated":{"Replicas":3}}}`

// TestServiceHealth: what the store knows of tasks, what this node knows of
// its own, and what another one tells, in one table.
func TestServiceHealth(t *testing.T) {
	const far = "farn0000000000000000000001"
	var asked []string
	var peer func() ([]wire.TaskHealth, error)
	observed := map[string]mesh.Verdict{}
	f := newFixture(t, func(c *Config) {
		c.Observed = func(taskID string) mesh.Verdict { return observed[taskID] }
		c.PeerHealth = func(_ context.Context, node, service string) ([]wire.TaskHealth, error) {
			asked = append(asked, node+"/"+service)
			return peer()
		}
	})
	web, _ := f.create(t, probedWeb)
	f.runTasks(t, web, 3)
	id := func(n int) string { return fmt.Sprintf("%s%d", web[:20], n) }
	change := func(n int, do func(*api.Task)) {
		t.Helper()
		f.cluster.update(t, func(tx store.Tx) error {
			task := store.GetTask(tx, id(n))
			do(task)
			return store.UpdateTask(tx, task)
		})
	}
	f.cluster.update(t, func(tx store.Tx) error {
		return store.CreateNode(tx, &api.Node{ID: far, Spec: api.NodeSpec{Membership: api.NodeMembershipAccepted}, Description: &api.NodeDescription{Hostname: "far"}, Status: api.NodeStatus{State: api.NodeStatus_READY}})
	})
	change(3, func(task *api.Task) { task.NodeID = far })
	next := time.Now().Add(time.Second)
	settings := healthcheck.Settings{Retries: 3, ReplaceAfter: 6}
	snapshots := []executor.Snapshot{
		{TaskID: id(1), ServiceID: web, Serving: true, Started: time.Unix(1000, 0), Settings: &settings,
			Health: &healthcheck.Health{Status: healthcheck.Healthy, NextProbe: next, Log: []healthcheck.Result{{ExitCode: 0, Output: "ok"}}}},
		{TaskID: id(2), ServiceID: web, NotServing: "withdrawn: unhealthy: 3/3 probes failed", Settings: &settings,
			Health: &healthcheck.Health{Status: healthcheck.Unhealthy, FailingStreak: 4, Log: []healthcheck.Result{{ExitCode: 1, Output: "refused"}}}},
		{TaskID: "other", ServiceID: "another", Serving: true},
		{ServiceID: ""},
	}
	f.containers.list = func() []executor.Snapshot { return snapshots }
	peer = func() ([]wire.TaskHealth, error) {
		return []wire.TaskHealth{{ID: id(3), Serving: true, Verdict: "healthy", FailingStreak: 1, UnrouteAfter: 3, ReplaceAfter: 6, Log: []wire.Result{}}}, nil
	}
	get := func() wire.Health {
		t.Helper()
		return into[wire.Health](t, f.must(t, 200, "GET", "/satl/v1/services/web/health", ""))
	}
	h := get()
	if h.ID != web || h.Name != "web" || h.Desired != 3 || h.Serving != 2 || !h.Probed || h.FailOpen || h.FailingOpen || h.Budget.Text == "" || len(h.Tasks) != 3 {
		t.Fatalf("%+v", h)
	}
	for i, want := range []wire.TaskHealth{
		{ID: id(1), Name: "web.1", Slot: 1, Node: "vm", Serving: true, Verdict: "healthy"},
		{ID: id(2), Name: "web.2", Slot: 2, Node: "vm", Why: "withdrawn: unhealthy: 3/3 probes failed", Verdict: "unhealthy", FailingStreak: 4},
		{ID: id(3), Name: "web.3", Slot: 3, Node: "far", Serving: true, Verdict: "healthy", FailingStreak: 1},
	} {
		got := h.Tasks[i]
		if got.ID != want.ID || got.Name != want.Name || got.Slot != want.Slot || got.Node != want.Node || got.Serving != want.Serving || got.Why != want.Why ||
			got.Verdict != want.Verdict || got.FailingStreak != want.FailingStreak || got.UnrouteAfter != 3 || got.ReplaceAfter != 6 || !got.Ready || got.State != "running" {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if first := h.Tasks[0]; first.NextProbe == nil || !first.NextProbe.Equal(next) || len(first.Log) != 1 || first.Log[0].Output != "ok" || !first.Since.Equal(time.Unix(1000, 0)) {
		t.Errorf("%+v", first)
	}
	if strings.Join(asked, " ") != far+"/"+web {
		t.Errorf("asked %q", asked)
	}

	// Of one that is made and not started its node knows no verdict yet.
	peer = func() ([]wire.TaskHealth, error) {
		return []wire.TaskHealth{{ID: id(3), Why: "created", Verdict: "none"}}, nil
	}
	for _, c := range []struct {
		state api.TaskState
		want  string
	}{{api.TaskStateReady, "starting"}, {api.TaskStateRunning, "none"}} {
		change(3, func(task *api.Task) { task.Status.State = c.state })
		if got := get().Tasks[2]; got.Verdict != c.want || got.Why != "created" {
			t.Errorf("%s: %+v", c.state, got)
		}
	}

	// What this node makes of another for reasons of its own comes first.
	peer = func() ([]wire.TaskHealth, error) {
		return []wire.TaskHealth{{ID: id(3), Why: "withdrawn: unhealthy", Verdict: "unhealthy"}}, nil
	}
	observed[id(3)] = mesh.Ungated
	for _, e := range []string{"", "withdrawn: unhealthy"} {
		change(3, func(task *api.Task) { task.Status.Err = e })
		if got := get(); got.Tasks[2].Verdict != "unknown (gating off)" || !got.Tasks[2].Serving || got.Tasks[2].Why != "" || got.Serving != 2 {
			t.Errorf("gating off: %+v", got)
		}
	}
	change(3, func(task *api.Task) { task.Status.Err = "" })
	peer = func() ([]wire.TaskHealth, error) { return nil, errors.New("no route") }
	observed[id(3)] = mesh.Silent
	if got := get(); got.Tasks[2].Why != "its node does not answer" || got.Tasks[2].Serving || got.Serving != 1 {
		t.Errorf("silent: %+v", got)
	}
	observed[id(3)] = mesh.Unknown

	// A node that does not answer: what the store knows.
	peer = func() ([]wire.TaskHealth, error) { return nil, errors.New("no route") }
	if got := get().Tasks[2]; !got.Serving || got.Verdict != "unknown" || got.UnrouteAfter != 3 {
		t.Errorf("silent node: %+v", got)
	}
	for why, do := range map[string]func(*api.Task){
		"withdrawn: unhealthy: 3/3 probes failed": func(task *api.Task) { task.Status.Err = "withdrawn: unhealthy: 3/3 probes failed" },
		"not ready, by an operator's word":        func(task *api.Task) { cluster.SetReady(&task.Annotations, false) },
		"stopping":                                func(task *api.Task) { task.DesiredState = api.TaskStateShutdown },
		"pending: no suitable node":               func(task *api.Task) { task.Status.State, task.Status.Err = api.TaskStatePending, "no suitable node" },
		"starting":                                func(task *api.Task) { task.Status.State = api.TaskStateStarting },
	} {
		var before *api.Task
		change(3, func(task *api.Task) { before = task.Copy(); do(task) })
		got := get().Tasks[2]
		if got.Serving || got.Why != why || got.Ready != (why != "not ready, by an operator's word") {
			t.Errorf("%s: %+v", why, got)
		}
		if strings.HasPrefix(why, "starting") && got.Verdict != "starting" {
			t.Errorf("%s: %+v", why, got)
		}
		change(3, func(task *api.Task) {
			task.Status, task.DesiredState, task.Annotations = before.Status, before.DesiredState, before.Annotations
		})
	}
	f.cluster.update(t, func(tx store.Tx) error {
		n := store.GetNode(tx, far)
		n.Status.State = api.NodeStatus_DOWN
		return store.UpdateNode(tx, n)
	})
	if got := get(); got.Tasks[2].Why != "its node is down" || got.Serving != 1 {
		t.Errorf("%+v", got)
	}

	// Nobody passes, and the service fails open.
	snapshots[0].Serving, snapshots[0].FailOpen, snapshots[0].NotServing = false, true, "withdrawn: unhealthy"
	if got := get(); !got.FailingOpen || !got.Tasks[0].Serving || !got.Tasks[0].FailOpen || got.Tasks[0].Why == "" {
		t.Errorf("%+v", got)
	}
	f.refused(t, 404, "service nope not found", "GET", "/satl/v1/services/nope/health", "")
}

// TestShownTasks: those that run or are to run, and where there is none the
// one that ended last.
func TestShownTasks(t *testing.T) {
	at := func(seconds int64) *gogotypes.Timestamp { return &gogotypes.Timestamp{Seconds: seconds} }
	task := func(id string, slot uint64, node string, made int64, desired, state api.TaskState) *api.Task {
		return &api.Task{ID: id, Slot: slot, NodeID: node, DesiredState: desired, Status: api.TaskStatus{State: state}, Meta: api.Meta{CreatedAt: at(made)}}
	}
	const running, failed, shutdown = api.TaskStateRunning, api.TaskStateFailed, api.TaskStateShutdown
	tasks := []*api.Task{
		task("a-failed", 1, "n", 1, shutdown, failed),
		task("a-runs", 1, "n", 2, running, running),
		task("b-failed", 2, "n", 1, shutdown, failed),
		task("b-last", 2, "n", 5, running, failed),
		task("b-first", 2, "n", 3, shutdown, failed),
		task("c-old", 3, "n", 1, shutdown, running), // start-first: both
		task("c-new", 3, "n", 2, running, api.TaskStateStarting),
		task("d-removed", 4, "n", 1, api.TaskStateRemove, shutdown),
		task("g-failed", 0, "m", 1, shutdown, failed),
		task("g-runs", 0, "n", 1, running, running),
	}
	var got []string
	for _, shown := range shownTasks(tasks) {
		got = append(got, shown.ID)
	}
	if want := "g-failed g-runs a-runs b-last c-new c-old"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
