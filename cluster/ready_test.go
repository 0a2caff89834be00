// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// hearing is a fake executor that notes what its controllers are told.
type hearing struct {
	*fakeExecutor
	mu   sync.Mutex
	told map[string]bool // by task: ready
}

func (h *hearing) Controller(t *api.Task) (exec.Controller, error) {
	c, err := h.fakeExecutor.Controller(t)
	return hearingController{c, h}, err
}

type hearingController struct {
	exec.Controller
	h *hearing
}

func (c hearingController) Update(_ context.Context, t *api.Task) error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.told[t.ID] = Ready(t.Annotations)
	return nil
}

// TestTaskReady: an operator's word is stored with the task and reaches its
// node, and neither restarts nor replaces it.
func TestTaskReady(t *testing.T) {
	f := &hearing{fakeExecutor: newFake(), told: map[string]bool{}}
	n := startNode(t, stateDir(t), f, nil)
	web := create(t, n, replicas("web", 1))
	task := awaitLive(t, n, web.ID, 1)[0]
	for _, ready := range []bool{false, false, true} {
		if err := n.SetTaskReady(t.Context(), task.ID, ready); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the node is told", func() string {
			f.mu.Lock()
			defer f.mu.Unlock()
			if told, ok := f.told[task.ID]; !ok || told != ready {
				return "not yet"
			}
			return ""
		})
		now := awaitLive(t, n, web.ID, 1)[0]
		if now.ID != task.ID || Ready(now.Annotations) != ready {
			t.Errorf("%+v", now)
		}
	}
	if err := n.SetTaskReady(t.Context(), "nobody", false); !errdefs.IsNotFound(err) {
		t.Errorf("no such task: %v", err)
	}
	err := n.Store().Update(func(tx store.Tx) error {
		return store.CreateTask(tx, &api.Task{ID: "ended", DesiredState: api.TaskStateShutdown})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.SetTaskReady(t.Context(), "ended", false); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a task that is to end: %v", err)
	}
}
