// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A task that its probe finds unhealthy leaves traffic at the first threshold,
// says so in `service ps`, and returns at a pass: the same task, the same
// process.
func TestWithdrawnTaskReturns(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	port := d.port(0)
	d.docker("service", "create", "--quiet", "-d", "--name", "web", "-p", fmt.Sprintf("%d:80", port),
		"--health-interval", "1s", "--health-timeout", "1s", "--health-retries", "2",
		"--container-label", "satl.health.http=/health", "--container-label", "satl.health.replace-after=10m", "app:1", "/app")
	var first task
	eventually(t, 30*time.Second, "running", func() bool {
		r := d.running("web")
		if len(r) == 1 {
			first = r[0]
		}
		return len(r) == 1
	})
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	served := func() bool { _, err := fetch(url); return err == nil }
	said := func() bool {
		return strings.Contains(d.docker("service", "ps", "--no-trunc", "web"), "withdrawn: unhealthy: 2/2 probes failed")
	}
	eventually(t, 10*time.Second, "served", served)
	container := first.Status.ContainerStatus.ContainerID
	d.docker("exec", container, "touch", "/tmp/bad")
	eventually(t, 20*time.Second, "withdrawn", func() bool { return !served() })
	eventually(t, 20*time.Second, "said", said)
	d.docker("exec", container, "rm", "/tmp/bad")
	eventually(t, 20*time.Second, "served again", served)
	eventually(t, 20*time.Second, "said no more", func() bool { return !said() })
	if r := d.running("web"); len(r) != 1 || r[0].ID != first.ID || r[0].Status.ContainerStatus.PID != first.Status.ContainerStatus.PID {
		t.Errorf("it was replaced: %+v", r)
	}
}

// cases/budget.md, budget-7: of replicas that are unhealthy together one at a
// time is replaced, and the others return by themselves.
func TestReplacedInTurn(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.docker("service", "create", "--quiet", "-d", "--name", "web", "--replicas", "4", "--label", "satl.health.replace-parallelism=1",
		"--restart-delay", "1s", "--stop-grace-period", "1s", "--health-interval", "1s", "--health-timeout", "10s", "--health-retries", "2",
		"--health-start-period", "15s",
		"--container-label", "satl.health.http=/health", "--container-label", "satl.health.http.port=80", "app:1", "/app", "-delay", "5s")
	var before []task
	eventually(t, 60*time.Second, "4 running", func() bool { before = d.running("web"); return len(before) == 4 })
	for _, x := range before {
		d.docker("exec", x.Status.ContainerStatus.ContainerID, "touch", "/tmp/bad")
	}
	eventually(t, 30*time.Second, "one failed", func() bool { return len(d.tasks("web")) > 4 })
	for _, x := range before {
		if x := d.taskOf("web", x.ID); x.Status.State == "running" {
			// Its turn may come at this very moment, and it is gone.
			if _, stderr, err := d.try("exec", x.Status.ContainerStatus.ContainerID, "rm", "-f", "/tmp/bad"); err != nil {
				t.Logf("task %s: %s", x.ID, stderr)
			}
		}
	}
	eventually(t, 60*time.Second, "4 running again", func() bool { return len(d.running("web")) == 4 })
	kept := 0
	for _, x := range before {
		if d.taskOf("web", x.ID).Status.State == "running" {
			kept++
		}
	}
	if kept < 2 {
		t.Errorf("%d of the 4 tasks recovered, want at least 2", kept)
	}
}

// taskOf is a task as it is now.
func (d *daemon) taskOf(service, id string) task {
	d.t.Helper()
	for _, x := range d.tasks(service) {
		if x.ID == id {
			return x
		}
	}
	return task{}
}

// A task that never passes leaves a record of why, with its console.
func TestRecordOfAFailedDeploy(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.docker("service", "create", "--quiet", "-d", "--name", "web", "--restart-max-attempts", "1", "--health-interval", "1s",
		"--health-retries", "2", "--container-label", "satl.health.http=/nothing-there/", "--container-label", "satl.health.http.port=81", "app:1", "/app")
	var answer struct {
		Versions []struct {
			Reports []struct {
				Record struct {
					Step, Detail string
					Gate         struct {
						ProbeSequence []struct{ Result string } `json:"probe_sequence"`
						Console       struct{ Lines []string }
						Compute       struct{ State string }
					}
				}
			}
		}
	}
	eventually(t, 60*time.Second, "a report", func() bool {
		data, err := d.get("/satl/v1/services/web/versions")
		if err != nil {
			return false
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			t.Fatal(err)
		}
		return len(answer.Versions) == 1 && len(answer.Versions[0].Reports) > 0
	})
	r := answer.Versions[0].Reports[0].Record
	if r.Step != "health_gate" || r.Gate.Compute.State != "running" || len(r.Gate.ProbeSequence) != 1 || r.Gate.ProbeSequence[0].Result != "refused" {
		t.Errorf("record %+v", r)
	}
	if len(r.Gate.Console.Lines) != 1 || !strings.Contains(r.Gate.Console.Lines[0], "listening") {
		t.Errorf("console %q", r.Gate.Console.Lines)
	}
}
