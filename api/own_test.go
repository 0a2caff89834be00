// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/api/wire"
	"satld/cluster"
)

// TestServiceVersions: what is still known of a service's versions, with the
// reports of those that failed.
func TestServiceVersions(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, webSpec("1"))
	versions := func() wire.Versions {
		t.Helper()
		return into[wire.Versions](t, f.must(t, 200, "GET", "/satl/v1/services/web/versions", ""))
	}
	v := versions()
	if v.ID != web || v.Name != "web" || len(v.Versions) != 1 || v.Versions[0].Version != 1 || v.Versions[0].State != "current" ||
		v.Versions[0].Image != "bb:1" || v.Versions[0].Failed || v.Versions[0].Reports == nil {
		t.Errorf("fresh: %+v", v)
	}
	f.runTasks(t, web, 2)
	// A scaling is a version of its own, and leaves the tasks as they should be.
	f.must(t, 200, "POST", "/services/web/update?version=1", strings.Replace(webSpec("1"), `"Replicas":2`, `"Replicas":3`, 1))
	if v = versions(); len(v.Versions) != 2 || v.Versions[0].Running != 2 || v.Versions[1].Running != 0 {
		t.Errorf("scaled: %+v", v)
	}
	scaled := f.service(t, web).Version.Index
	f.must(t, 200, "POST", fmt.Sprintf("/services/web/update?version=%d", scaled), webSpec("2"))
	second := f.service(t, web).Version.Index
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.cluster.reports = []cluster.Report{
		{TaskID: "t9", ServiceID: web, NodeID: fakeNodeID, Slot: 1, Version: second - 1, Image: "bb:1", At: at, Payload: []byte(`{"state":"failed","detail":"no route"}`)},
		{TaskID: "t1", ServiceID: web, NodeID: "gone", Slot: 2, Version: 400, Image: "bb:0", At: at, Payload: []byte(`{}`)},
		{TaskID: "tx", ServiceID: "another", Version: 7},
	}
	f.cluster.update(t, func(tx store.Tx) error {
		svc := store.GetService(tx, web)
		svc.UpdateStatus = &api.UpdateStatus{State: api.UpdateStatus_PAUSED, Message: "update paused: task t9 failed"}
		return store.UpdateService(tx, svc)
	})
	v = versions()
	if len(v.Versions) != 4 {
		t.Fatalf("%+v", v)
	}
	for i, want := range []struct {
		version uint64
		state   string
		failed  bool
		running uint64
		report  string
		node    string
		update  bool
	}{
		{401, "earlier", true, 0, `{}`, "", false},
		{second, "current", true, 0, `{"state":"failed","detail":"no route"}`, "vm", true},
		{scaled, "previous", false, 0, "", "", false},
		{1, "earlier", false, 2, "", "", false},
	} {
		got := v.Versions[i]
		if got.Version != want.version || got.State != want.state || got.Failed != want.failed || got.Running != want.running ||
			(got.Update != nil) != want.update || len(got.Reports) > 1 || (len(got.Reports) == 1) != (want.report != "") {
			t.Errorf("%d: %+v", i, got)
			continue
		}
		if want.report != "" && (string(got.Reports[0].Record) != want.report || got.Reports[0].Node != want.node || !got.Reports[0].At.Equal(at)) {
			t.Errorf("%d: %+v", i, got.Reports[0])
		}
		if want.update && got.Update.Message != "update paused: task t9 failed" {
			t.Errorf("%d: %+v", i, got.Update)
		}
	}
	f.refused(t, 404, "service nope not found", "GET", "/satl/v1/services/nope/versions", "")
}

// TestReady: an operator's word on a task and on a node, by every name that
// they have.
func TestReady(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, webSpec("1"))
	f.runTasks(t, web, 2)
	id := web[:20] + "1"
	isReady := func() bool {
		t.Helper()
		task := into[swarm.Task](t, f.must(t, 200, "GET", "/tasks/"+id, ""))
		return task.Labels[cluster.ReadyLabel] != "false"
	}
	for _, name := range []string{id, "web.1." + id, "web.1"} {
		for _, ready := range []bool{false, true} {
			verb := map[bool]string{false: "unready", true: "ready"}[ready]
			f.must(t, 200, "POST", fmt.Sprintf("/satl/v1/tasks/%s/%s", name, verb), "")
			if isReady() != ready {
				t.Errorf("%s %s: %v", verb, name, isReady())
			}
		}
	}
	// A slot with a task that ended and one that runs means the latter.
	f.cluster.update(t, func(tx store.Tx) error {
		return store.CreateTask(tx, &api.Task{ID: "ended", ServiceID: web, Slot: 1, DesiredState: api.TaskStateShutdown, Status: api.TaskStatus{State: api.TaskStateFailed}})
	})
	f.must(t, 200, "POST", "/satl/v1/tasks/web.1/unready", "")
	if isReady() {
		t.Error("the task that ended was meant")
	}
	for _, name := range []string{"nope", "web.3", "web.0", "web.x", "nope.1", ".1"} {
		f.refused(t, 404, "task "+name+" not found", "POST", "/satl/v1/tasks/"+name+"/unready", "")
	}
	f.cluster.update(t, func(tx store.Tx) error { // start-first: two in one slot
		return store.CreateTask(tx, &api.Task{ID: "second", ServiceID: web, Slot: 1, DesiredState: api.TaskStateRunning, Status: api.TaskStatus{State: api.TaskStateStarting}})
	})
	f.refused(t, 400, "task web.1 is ambiguous", "POST", "/satl/v1/tasks/web.1/unready", "")
	// One that waits to start is not meant while another lives, and is alone.
	for _, task := range []string{"second", id} {
		f.cluster.update(t, func(tx store.Tx) error {
			waits := store.GetTask(tx, task)
			waits.DesiredState, waits.Status.State = api.TaskStateReady, api.TaskStateReady
			return store.UpdateTask(tx, waits)
		})
		if task == "second" {
			f.must(t, 200, "POST", "/satl/v1/tasks/web.1/ready", "")
			f.must(t, 200, "POST", "/satl/v1/tasks/web.1/unready", "")
			if isReady() {
				t.Error("the task that waits was meant")
			}
		}
	}
	f.refused(t, 400, "task web.1 is ambiguous", "POST", "/satl/v1/tasks/web.1/ready", "")
	f.cluster.update(t, func(tx store.Tx) error { return store.DeleteTask(tx, "second") })
	f.must(t, 200, "POST", "/satl/v1/tasks/web.1/ready", "")
	if !isReady() {
		t.Error("the only task, which waits, was not meant")
	}

	for _, name := range []string{"self", "vm", fakeNodeID, fakeNodeID[:6]} {
		for _, ready := range []bool{false, true} {
			verb := map[bool]string{false: "unready", true: "ready"}[ready]
			f.must(t, 200, "POST", fmt.Sprintf("/satl/v1/nodes/%s/%s", name, verb), "")
			node := into[swarm.Node](t, f.must(t, 200, "GET", "/nodes/self", ""))
			if (node.Spec.Labels[cluster.ReadyLabel] != "false") != ready || node.Spec.Availability != swarm.NodeAvailabilityActive {
				t.Errorf("%s %s: %+v", verb, name, node.Spec)
			}
		}
	}
	f.refused(t, 404, "node nope not found", "POST", "/satl/v1/nodes/nope/ready", "")
}
