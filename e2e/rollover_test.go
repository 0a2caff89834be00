// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"encoding/json"
	"testing"
	"time"
)

// A rolling update goes on where it was when its leader is killed: it is the
// same update, and each slot is replaced once.
func TestUpdateOverLeaderKill(t *testing.T) {
	t.Parallel()
	const slots = 6
	s := newSite(t, 3)
	s.join(1, "manager")
	s.join(2, "manager")
	d := s.nodes[0]
	d.docker("service", "create", "-q", "--name", "web", "--replicas", "6", "--env", "VERSION=1", "--stop-grace-period", "1s",
		"--update-parallelism", "1", "--update-monitor", "1500ms", "--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "1s", "app:1", "/app")
	d.docker("service", "update", "-d", "-q", "--env-add", "VERSION=2", "web")
	// status is the update's, as any manager has it that answers.
	status := func() (out struct{ State, StartedAt string }) {
		for _, d := range s.nodes {
			var svc struct {
				UpdateStatus struct{ State, StartedAt string }
			}
			if data, err := d.get("/services/web"); err == nil && json.Unmarshal(data, &svc) == nil {
				out = svc.UpdateStatus
			}
		}
		return out
	}
	replaced := func() (n int) {
		for _, d := range s.nodes {
			if list, err := d.tryTasks("web"); err == nil {
				return len(list) - slots
			}
		}
		return 0
	}
	eventually(t, time.Minute, "it is under way", func() bool { return replaced() >= 2 })
	begun := status()
	leader := s.leader(-1)
	s.nodes[leader].kill()
	s.leader(leader)
	s.nodes[leader].start()
	eventually(t, 3*time.Minute, "the update is complete", func() bool { return status().State == "completed" })
	if now := status(); now.StartedAt != begun.StartedAt || begun.StartedAt == "" {
		t.Errorf("the update began at %s, and again at %s", begun.StartedAt, now.StartedAt)
	}
	eventually(t, 30*time.Second, "all run", func() bool { return len(s.nodes[s.leader(-1)].running("web")) == slots })
	if n := replaced(); n != slots {
		t.Errorf("%d tasks were made for %d slots: %+v", n, slots, s.nodes[s.leader(-1)].tasks("web"))
	}
}
