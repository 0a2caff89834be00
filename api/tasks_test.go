// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"maps"
	"testing"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// TestEngineLabelsAreHidden: what the engine notes on a task is nobody's label.
func TestEngineLabelsAreHidden(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, webSpec("1"))
	f.runTasks(t, web, 1)
	id := web[:20] + "1"
	f.cluster.update(t, func(tx store.Tx) error {
		task := store.GetTask(tx, id)
		task.Annotations.Labels = map[string]string{"satl.replaces": "x", "satl.ready": "false", "mine": "1"}
		return store.UpdateTask(tx, task)
	})
	want := map[string]string{"satl.ready": "false", "mine": "1"}
	if got := into[swarm.Task](t, f.must(t, 200, "GET", "/tasks/"+id, "")).Labels; !maps.Equal(got, want) {
		t.Errorf("inspect: %v", got)
	}
	if got := into[[]swarm.Task](t, f.must(t, 200, "GET", "/tasks", ""))[0].Labels; !maps.Equal(got, want) {
		t.Errorf("list: %v", got)
	}
}

// TestRolledBackIsTold: whoever waits for an update hears that it was rolled
// back, unless they asked for that.
func TestRolledBackIsTold(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, webSpec("1"))
	f.runTasks(t, web, 1)
	const waiting = `/tasks?filters={"service":{"web":true},"_up-to-date":{"true":true}}`
	for _, c := range []struct {
		state   api.UpdateStatus_UpdateState
		message string
		told    bool
	}{
		{api.UpdateStatus_UPDATING, "update in progress", false},
		{api.UpdateStatus_PAUSED, "update paused due to failure or early termination of task x", false}, // docker's CLI sees it
		{api.UpdateStatus_ROLLBACK_STARTED, "update rolled back due to failure of task x", false},       // not converged yet
		{api.UpdateStatus_ROLLBACK_COMPLETED, "update rolled back due to failure of task x: exit code 3", true},
		{api.UpdateStatus_ROLLBACK_COMPLETED, "manually requested rollback completed", false},
		{api.UpdateStatus_COMPLETED, "update completed", false},
	} {
		f.cluster.update(t, func(tx store.Tx) error {
			svc := store.GetService(tx, web)
			svc.UpdateStatus = &api.UpdateStatus{State: c.state, Message: c.message}
			return store.UpdateService(tx, svc)
		})
		if c.told {
			f.refused(t, 409, "service web: "+c.message, "GET", waiting, "")
		} else {
			f.must(t, 200, "GET", waiting, "")
		}
		f.must(t, 200, "GET", `/tasks?filters={"service":{"web":true}}`, "")
	}
	// The next update is a new story.
	f.must(t, 200, "POST", "/services/web/update?version=1", webSpec("2"))
	f.must(t, 200, "GET", waiting, "")
}
