// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/api/wire"
	"satld/executor"
	"satld/orchestrator"
)

// A task that is not started yet says what it waits for, whatever its node has
// to say of a container that was made and no more.
func TestWaitingTaskSaysSo(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, webSpec("2"))
	f.runTasks(t, web, 2)
	id := web[:20] + "1"
	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{{TaskID: id, ServiceID: web, NotServing: "created"}}
	}
	for _, c := range []struct {
		state        api.TaskState
		err          string
		due          time.Duration
		message, why string
	}{
		{api.TaskStateReady, "", time.Hour, "restart delay, starts in ", "restart delay, starts in "},
		{api.TaskStateRejected, "no such image", time.Hour, "restart delay, next try in ", "restart delay, next try in "},
		{api.TaskStateReady, "", -time.Hour, "prepared", "prepared, starts when its turn comes"},
	} {
		f.cluster.update(t, func(tx store.Tx) error {
			task := store.GetTask(tx, id)
			task.DesiredState = api.TaskStateReady
			task.Status = api.TaskStatus{State: c.state, Err: c.err, Message: "prepared"}
			task.Annotations.Labels = map[string]string{orchestrator.LabelDue: time.Now().Add(c.due).Format(time.RFC3339Nano)}
			return store.UpdateTask(tx, task)
		})
		shown := into[swarm.Task](t, f.must(t, 200, "GET", "/tasks/"+id, ""))
		if !strings.HasPrefix(shown.Status.Message, c.message) || shown.Status.Err != c.err || len(shown.Labels) > 0 {
			t.Errorf("%s: %+v %v", c.state, shown.Status, shown.Labels)
		}
		h := into[wire.Health](t, f.must(t, 200, "GET", "/satl/v1/services/web/health", ""))
		if h.Tasks[0].ID != id || h.Tasks[0].Serving || !strings.HasPrefix(h.Tasks[0].Why, c.why) || !strings.HasSuffix(h.Tasks[0].Why, c.err) {
			t.Errorf("%s: %+v", c.state, h.Tasks[0])
		}
	}
}
