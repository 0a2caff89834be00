// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"testing"

	"github.com/docker/docker/api/types/swarm"
)

func TestCompleted(t *testing.T) {
	two := uint64(2)
	task := func(slot int, state swarm.TaskState) swarm.Task {
		return swarm.Task{Slot: slot, Status: swarm.TaskStatus{State: state}}
	}
	for name, tc := range map[string]struct {
		tasks []swarm.Task
		want  bool
	}{
		"none yet":             {nil, false},
		"both":                 {[]swarm.Task{task(1, "complete"), task(2, "complete")}, true},
		"one":                  {[]swarm.Task{task(1, "complete")}, false},
		"one runs":             {[]swarm.Task{task(1, "complete"), task(2, "running")}, false},
		"one failed":           {[]swarm.Task{task(1, "complete"), task(2, "failed")}, false},
		"failed, then well":    {[]swarm.Task{task(1, "complete"), task(2, "failed"), task(2, "complete")}, true},
		"failed, then pending": {[]swarm.Task{task(1, "complete"), task(2, "failed"), task(2, "pending")}, false},
	} {
		if got := completed(tc.tasks, &two); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
