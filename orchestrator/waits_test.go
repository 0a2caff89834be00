// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

func TestWaits(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		desired, state api.TaskState
		due            time.Duration
		want           string
	}{
		{api.TaskStateReady, api.TaskStateReady, 3500 * time.Millisecond, "restart delay, starts in 4s"},
		{api.TaskStateReady, api.TaskStatePreparing, 90 * time.Second, "restart delay, starts in 1m30s"},
		{api.TaskStateReady, api.TaskStateRejected, time.Second, "restart delay, next try in 1s"},
		{api.TaskStateReady, api.TaskStateReady, 0, ""},
		{api.TaskStateReady, api.TaskStateReady, -time.Second, ""},
		{api.TaskStateRunning, api.TaskStateStarting, time.Minute, ""},
		{api.TaskStateShutdown, api.TaskStateFailed, time.Minute, ""},
	} {
		task := &api.Task{DesiredState: c.desired, Status: api.TaskStatus{State: c.state}}
		setLabel(task, LabelDue, formatTime(now.Add(c.due)))
		if got := Waits(task, now); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := Waits(&api.Task{DesiredState: api.TaskStateReady}, now); got != "" {
		t.Errorf("a task of a rollout: %q", got)
	}
}
