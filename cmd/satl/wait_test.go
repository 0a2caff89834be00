// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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

// A service whose slot is given up never converges; until the others run, or
// while a slot is filled again, nothing is said.
func TestExhausted(t *testing.T) {
	two := uint64(2)
	at := time.Unix(1000, 0)
	task := func(slot int, state swarm.TaskState, err string) swarm.Task {
		at = at.Add(time.Second)
		desired := swarm.TaskStateRunning
		if err != "" {
			desired = swarm.TaskStateShutdown
		}
		return swarm.Task{Meta: swarm.Meta{CreatedAt: at}, Slot: slot, DesiredState: desired, Status: swarm.TaskStatus{State: state, Err: err}}
	}
	const ended, mark = "task: non-zero exit (3)", "task: non-zero exit (3) (restart budget exhausted: 1 attempt in 1m)"
	gone := task(2, "failed", mark)
	for name, tc := range map[string]struct {
		tasks []swarm.Task
		slot  int
		why   string
	}{
		"none yet":                    {nil, 0, ""},
		"both run":                    {[]swarm.Task{task(1, "running", ""), task(2, "running", "")}, 0, ""},
		"one given up":                {[]swarm.Task{task(1, "running", ""), task(2, "failed", ended), task(2, "failed", mark)}, 2, mark},
		"both given up":               {[]swarm.Task{task(2, "failed", mark), task(1, "rejected", mark)}, 1, mark},
		"one is to come":              {[]swarm.Task{task(2, "failed", mark)}, 0, ""},
		"one starts":                  {[]swarm.Task{task(1, "starting", ""), task(2, "failed", mark)}, 0, ""},
		"one is retried":              {[]swarm.Task{task(1, "running", ""), task(2, "failed", ended), task(2, "ready", "")}, 0, ""},
		"never restarted, one failed": {[]swarm.Task{task(1, "running", ""), task(2, "failed", ended)}, 2, ended},
		"never restarted, one is over and one failed": {[]swarm.Task{task(1, "complete", ""), task(2, "failed", ended)}, 2, ended},
		"never restarted, one starts":                 {[]swarm.Task{task(1, "starting", ""), task(2, "failed", ended)}, 0, ""},
		"filled again":                                {[]swarm.Task{task(1, "running", ""), task(2, "running", ""), gone}, 0, ""},
	} {
		if slot, why := exhausted(tc.tasks, &two, strings.HasPrefix(name, "never restarted")); slot != tc.slot || why != tc.why {
			t.Errorf("%s: slot %d, %q", name, slot, why)
		}
	}
}

// The wait for it ends with status 1 and the reason.
func TestWaitForAServiceThatIsGivenUp(t *testing.T) {
	const task = `{"ID":"t1","ServiceID":"s1","Slot":1,"DesiredState":"shutdown","Status":{"State":"failed","Err":"task: non-zero exit (3) (restart budget exhausted: 1 attempt)"}}`
	d := startDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		switch path := versioned.ReplaceAllString(r.URL.Path, ""); {
		case path == "/services/create":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"ID":"s1"}`)
		case strings.HasPrefix(path, "/services/"):
			fmt.Fprint(w, `{"ID":"s1","Spec":{"Name":"web","TaskTemplate":{"ContainerSpec":{}},"Mode":{"Replicated":{"Replicas":1}}}}`)
		case path == "/tasks":
			fmt.Fprint(w, "["+task+"]")
		default:
			fmt.Fprint(w, "[]")
		}
	})
	_, stderr, code := satl(t, []string{EnvHost + "=" + d.socket}, "service", "create", "-q", "--no-resolve-image", "--wait-timeout", "20s", "--name", "web", "x")
	const want = "service web does not converge: slot 1: task: non-zero exit (3) (restart budget exhausted: 1 attempt)"
	if code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
