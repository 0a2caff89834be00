// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"satld/internal/loadgen"
	"satld/internal/slowday"
)

// updateStatus is a service's UpdateStatus.
func (d *daemon) updateStatus(service string) (state, message string) {
	d.t.Helper()
	data, err := d.get("/services/" + service)
	if err != nil {
		d.t.Fatal(err)
	}
	var s struct {
		UpdateStatus struct{ State, Message string }
	}
	if err := json.Unmarshal(data, &s); err != nil {
		d.t.Fatal(err)
	}
	return s.UpdateStatus.State, s.UpdateStatus.Message
}

// awaitUpdate waits until a service's update is in a state.
func (d *daemon) awaitUpdate(within time.Duration, service, state string) (message string) {
	d.t.Helper()
	var now string
	for begun := time.Now(); now != state; time.Sleep(50 * time.Millisecond) {
		if now, message = d.updateStatus(service); now != state && slowday.Over(begun, within) {
			d.t.Fatalf("update of %s is %q (%s), not %q within %v\n%s", service, now, message, state, within, d.docker("service", "ps", "--no-trunc", service))
		}
	}
	return message
}

// web creates a service of four replicas of a server that closes its listener
// at once on SIGTERM, and gives the address of its published port.
func (d *daemon) web(name string, i int, more ...string) string {
	d.t.Helper()
	args := append([]string{"service", "create", "-q", "--name", name, "-p", fmt.Sprintf("%d:80", d.port(i)), "--env", "VERSION=1",
		"--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "1s", "--health-timeout", "10s", "--stop-grace-period", "30s"}, more...)
	d.docker(append(args, "app:1", "/app", "-delay", "500ms")...)
	return fmt.Sprintf("127.0.0.1:%d", d.port(i))
}

// A complete rolling update under 200 new connections a second loses none of
// at least 10,000 requests, in either order (cases/update.md, update-6). It runs
// alone: a connection that a starved server has not accepted half a second
// after its withdrawal is the machine's loss, not the update's.
func TestUpdateLosesNoRequest(t *testing.T) {
	d := loaded(t)
	const least, rate = 10_000, 200
	type run struct {
		order string
		addr  string
		old   map[string]bool
	}
	var runs []run
	for i, order := range []string{"stop-first", "start-first"} {
		r := run{order: order, old: map[string]bool{}}
		r.addr = d.web(order, i, "--replicas", "4", "--update-order", order, "--update-monitor", "2s", "--update-delay", "8s")
		for _, x := range d.running(order) {
			r.old[x.ID] = true
		}
		runs = append(runs, r)
	}
	reports := make([]chan loadgen.Report, len(runs))
	for i, r := range runs {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		updated, over := context.WithCancel(ctx)
		defer over()
		reports[i] = make(chan loadgen.Report, 1)
		go func() {
			report := loadgen.Run(ctx, loadgen.Config{Addr: r.addr, Rate: rate, Most: least})
			if report.Requests == least { // and on, for as long as the update takes
				rest := loadgen.Run(updated, loadgen.Config{Addr: r.addr, Rate: rate})
				report.Requests += rest.Requests
				report.Failures = append(report.Failures, rest.Failures...)
				report.Late += rest.Late
			}
			reports[i] <- report
		}()
		d.docker("service", "update", "-d", "-q", "--env-add", "VERSION=2", r.order)
		go func() {
			defer over()
			for ctx.Err() == nil {
				data, err := d.get("/services/" + r.order)
				if err == nil && strings.Contains(string(data), `"State":"completed"`) {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		}()
	}
	for i, r := range runs {
		report := <-reports[i]
		t.Logf("%s: %s", r.order, report)
		if len(report.Failures) > 0 || report.Requests < least {
			t.Errorf("%s: want none of at least %d failed", r.order, least)
		}
		if state, message := d.updateStatus(r.order); state != "completed" {
			t.Errorf("%s: update %s: %s", r.order, state, message)
		}
		now := d.running(r.order)
		for _, x := range now {
			if r.old[x.ID] {
				t.Errorf("%s: task %s was not updated", r.order, x.ID)
			}
		}
		if len(now) != 4 {
			t.Errorf("%s: %d tasks run, want 4", r.order, len(now))
		}
	}
}

// A 20 s response that is under way when its task is drained completes.
func TestUpdateLetsAnswersComplete(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	addr := d.web("long", 0, "--replicas", "2", "--update-order", "start-first", "--update-parallelism", "0", "--update-monitor", "1s")
	old := map[string]bool{}
	for _, x := range d.running("long") {
		old[x.Status.ContainerStatus.ContainerID[:12]] = true
	}
	slow := make(chan loadgen.Report, 1)
	go func() {
		slow <- loadgen.Run(context.Background(), loadgen.Config{Addr: addr, Path: "/slow?for=20s", Rate: 50, Most: 20, Timeout: 40 * time.Second})
	}()
	time.Sleep(time.Second) // all 20 are under way
	d.docker("service", "update", "-q", "--env-add", "VERSION=2", "long")
	for _, x := range d.running("long") {
		if old[x.Status.ContainerStatus.ContainerID[:12]] {
			t.Errorf("task %s was not updated", x.ID)
		}
	}
	report := <-slow
	t.Logf("%s", report)
	if len(report.Failures) > 0 || len(report.Bodies) != 2 {
		t.Errorf("answers under way were lost, or did not come from two tasks: %v", report.Bodies)
	}
	for body := range report.Bodies {
		if !old[body] {
			t.Errorf("an answer of %s, which is not a task of the old version", body)
		}
	}
}

// satl.traffic.drain is a wait between withdrawal and the stop signal: the old
// task still listens while nothing new is sent to it.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	addr := d.web("drained", 0, "--replicas", "1", "--label", "satl.traffic.drain=4s", "--update-order", "start-first", "--update-monitor", "500ms")
	old := d.running("drained")[0]
	direct := path(d.inspect("", old.Status.ContainerStatus.ContainerID), "NetworkSettings", "Networks")
	var ip string
	for _, n := range direct.(map[string]any) {
		ip, _ = path(n, "IPAddress").(string)
	}
	if net.ParseIP(ip) == nil {
		t.Fatalf("no address in %v", direct)
	}
	d.docker("service", "update", "-d", "-q", "--env-add", "VERSION=2", "drained")
	host := old.Status.ContainerStatus.ContainerID[:12]
	eventually(t, 20*time.Second, "the old task out of the pool", func() bool {
		for range 4 {
			if body, err := fetch("http://" + addr + "/"); err != nil || body == host {
				return false
			}
		}
		return true
	})
	withdrawn := time.Now()
	eventually(t, 20*time.Second, "the old task's listener closed", func() bool { _, err := fetch("http://" + ip + "/"); return err != nil })
	took := time.Since(withdrawn)
	t.Logf("the stop signal came %v after the withdrawal was seen", took)
	if took < 3*time.Second {
		t.Errorf("stopped %v after it was seen withdrawn, want a wait of 4s", took)
	}
	d.awaitUpdate(20*time.Second, "drained", "completed")
}

// A start-first update to a version that never passes leaves the old tasks
// running and serving under the same IDs (cases/update.md, update-1), and both
// clients tell that it failed.
func TestFailedUpdateLeavesTheOldTasks(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	for _, parallelism := range []string{"1", "0"} {
		name := "kept" + parallelism
		addr := d.web(name, len(parallelism)+int(parallelism[0]-'0'), "--replicas", "2", "--update-order", "start-first", "--update-parallelism", parallelism,
			"--update-failure-action", "rollback", "--update-monitor", "1s", "--health-retries", "1", "--restart-max-attempts", "1")
		old := map[string]bool{}
		for _, x := range d.running(name) {
			old[x.ID] = true
		}
		ctx, over := context.WithTimeout(context.Background(), 2*time.Minute)
		defer over()
		reports := make(chan loadgen.Report, 1)
		go func() { reports <- loadgen.Run(ctx, loadgen.Config{Addr: addr, Rate: 100}) }()
		d.docker("service", "update", "-d", "-q", "--health-cmd", "echo not today; exit 7", name)
		message := d.awaitUpdate(90*time.Second, name, "rollback_completed")
		over()
		report := <-reports
		t.Logf("%s: %s; %s", name, report, message)
		if len(report.Failures) > 0 || report.Requests < 100 {
			t.Errorf("%s: requests failed", name)
		}
		now := d.running(name)
		for _, x := range now {
			if !old[x.ID] {
				t.Errorf("%s: task %s is not of those before the update", name, x.ID)
			}
		}
		if len(now) != 2 {
			t.Errorf("%s: %d tasks run, want the 2 of before", name, len(now))
		}
	}
}

// An update that fails with the action pause names the task, its exit code and
// the probe's last words; the CLI that waits for it exits with 1.
func TestPausedUpdateSaysWhy(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.web("paused", 0, "--replicas", "2", "--update-monitor", "1s", "--update-failure-action", "pause", "--health-retries", "1", "--restart-max-attempts", "0")
	_, stderr, err := d.try("service", "update", "-q", "--health-cmd", "echo not today; exit 7", "paused")
	if err == nil {
		t.Error("the CLI exits with 0 though the update was paused")
	}
	state, message := d.updateStatus("paused")
	t.Logf("%s: %s; the CLI: %s", state, message, strings.TrimSpace(stderr))
	if state != "paused" {
		t.Errorf("state %q", state)
	}
	for _, want := range []string{"exit code 7", "not today"} {
		if !strings.Contains(message, want) || !strings.Contains(stderr, want) {
			t.Errorf("%q is in neither message nor CLI", want)
		}
	}
	named := false
	for _, x := range d.tasks("paused") {
		named = named || x.Status.State == "failed" && strings.Contains(message, x.ID)
	}
	if !named {
		t.Errorf("no failed task is named in %q", message)
	}
	// The next update lifts the pause.
	d.docker("service", "update", "-q", "--health-cmd", "/app -probe http://127.0.0.1/health", "--health-retries", "3", "paused")
	if state, message := d.updateStatus("paused"); state != "completed" {
		t.Errorf("after the next update: %s: %s", state, message)
	}
}
