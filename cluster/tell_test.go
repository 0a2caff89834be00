// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
)

// TestAskHealth: a manager asks a worker, which it finds by what the worker
// said of itself; a worker is told nothing.
func TestAskHealth(t *testing.T) {
	tells := func(name string) func(*Config) {
		return func(c *Config) {
			c.Health = func(serviceID string) any { return []string{name, serviceID} }
		}
	}
	manager := startNode(t, stateDir(t), newFake(), tells("manager"))
	worker := startNode(t, stateDir(t), newFake(), tells("worker"))
	join(t, worker, manager, api.NodeRoleWorker)
	id := worker.NodeID()
	var told []string
	eventually(t, 20*time.Second, "the worker tells", func() string {
		if err := manager.AskHealth(t.Context(), id, "web", &told); err != nil {
			return err.Error()
		}
		return ""
	})
	if got := strings.Join(told, " "); got != "worker web" {
		t.Errorf("told %s", got)
	}
	if err := manager.AskHealth(t.Context(), "nobody", "web", &told); !errdefs.IsNotFound(err) {
		t.Errorf("of no node: %v", err)
	}
	if err := worker.member.Load().ask(t.Context(), manager.AdvertiseAddr(), "health", "web", &told); err == nil {
		t.Errorf("a worker is told %v", told)
	}
}
