// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/swarm"
)

// The cases of the list "api", and where each is shown:
//
//	api-1  TestAPICases/versions, TestAPICases/lost updates
//	api-2  TestAPICases/health object
//	api-3  TestAPICases/why it failed. That a STARTING task's failures so far
//	       are in `service ps` is not done: the specification keeps health out
//	       of the store and out of task documents; `ps` and inspect show them.
//	api-4  TestAPICases/waiting for ...; --wait-timeout is no option of the
//	       docker CLI: what it does when interrupted is shown in its place.
//	       Its progress bar waits for ever for a service whose task ended well;
//	       a one-shot is a job there. It says that an update was rolled back,
//	       and exits with 0 all the same.
func TestAPICases(t *testing.T) {
	t.Parallel()
	shared := loaded(t)
	for name, f := range map[string]func(*testing.T, *daemon){
		"versions":                      versions,
		"lost updates":                  lostUpdates,
		"health object":                 healthObject,
		"why it failed":                 whyItFailed,
		"waiting for what cannot be":    waitForNever,
		"waiting for a job":             waitForJob,
		"waiting for a slow start":      waitForSlow,
		"waiting for a paused update":   func(t *testing.T, d *daemon) { waitForBad(t, d, "pause", "paused") },
		"waiting for a rolled back one": func(t *testing.T, d *daemon) { waitForBad(t, d, "rollback", "rolling back") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, shared.in(t))
		})
	}
}

// versions: a version that was read stays good for an update while tasks come
// and go and a rollout moves on; what was written is read at once.
func versions(t *testing.T, d *daemon) {
	d.create("flap", nil, replicas(2), restarts(0), command("sleep", "0.4"), func(s *swarm.ServiceSpec) {
		s.UpdateConfig = &swarm.UpdateConfig{Parallelism: 1, Monitor: time.Millisecond}
	})
	d.awaitTask(20*time.Second, "flap", "running", func(x task) bool { return x.Status.State == "running" })
	begun, updates := time.Now(), 0
	for ; time.Since(begun) < 8*time.Second; updates++ {
		s := d.service("flap")
		before := s.Version.Index
		time.Sleep(100 * time.Millisecond) // tasks change meanwhile
		if got := d.service("flap").Version.Index; got != before {
			t.Errorf("the version moved from %d to %d with no change of the spec", before, got)
		}
		s.Spec.Labels = map[string]string{"n": strconv.Itoa(updates)}
		if updates%4 == 0 {
			s.Spec.TaskTemplate.ForceUpdate++
		}
		status, answer := d.call("POST", fmt.Sprintf("/services/%s/update?version=%d", s.ID, before), s.Spec)
		if status != 200 {
			t.Errorf("update %d: %d %s", updates, status, answer)
			continue
		}
		if now := d.service("flap"); now.Version.Index == before || now.Spec.Labels["n"] != strconv.Itoa(updates) {
			t.Errorf("update %d is not read back: version %d (was %d), labels %v", updates, now.Version.Index, before, now.Spec.Labels)
		}
		if status, _ := d.call("POST", fmt.Sprintf("/services/%s/update?version=%d", s.ID, before), s.Spec); status < 400 {
			t.Errorf("an update of a version that is past was taken: %d", status)
		}
	}
	if tasks := len(d.tasks("flap")); tasks < 3 {
		t.Errorf("only %d tasks: nothing flapped", tasks)
	}
	t.Logf("%d updates", updates)
	d.remove("flap")
}

// lostUpdates: of clients that write at the same time, each that was told of
// success has its change kept; the others are told to read again.
func lostUpdates(t *testing.T, d *daemon) {
	d.create("tally", nil, replicas(0))
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken, refused := 0, 0
	for range 3 {
		wg.Go(func() {
			d := d.in(t)
			for range 15 {
				err := d.change("tally", func(s *swarm.ServiceSpec) {
					n, _ := strconv.Atoi(s.Labels["n"])
					s.Labels = map[string]string{"n": strconv.Itoa(n + 1)}
				})
				mu.Lock()
				switch {
				case err == nil:
					taken++
				case strings.Contains(err.Error(), "out of sequence") || strings.HasPrefix(err.Error(), "409"):
					refused++
				default:
					t.Errorf("an update that lost: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if got := d.service("tally").Spec.Labels["n"]; got != strconv.Itoa(taken) {
		t.Errorf("%d updates succeeded and %s are kept", taken, got)
	}
	if refused == 0 {
		t.Error("no update lost: this test shows nothing")
	}
	t.Logf("%d taken, %d refused", taken, refused)
}

// healthObject: there if and only if there is a probe, complete from the start.
func healthObject(t *testing.T, d *daemon) {
	d.create("without", nil)
	d.create("with", shell("echo fine; exit 3", timing(2*time.Second, 0, 1000)))
	d.awaitTask(20*time.Second, "without", "running", func(x task) bool { return x.Status.State == "running" })
	d.await(20*time.Second, "with", "up", func(c container.InspectResponse) bool { return c.State.Running })
	var doc struct{ State map[string]json.RawMessage }
	d.must("GET", "/containers/without/json", nil, &doc)
	if h, there := doc.State["Health"]; there {
		t.Errorf("without a probe: %s", h)
	}
	if out := d.docker("inspect", "--format", "{{json .State.Health}}", "without"); out != "null" {
		t.Errorf("in a template without a probe: %s", out)
	}
	doc.State = nil
	d.must("GET", "/containers/with/json", nil, &doc)
	if got := string(doc.State["Health"]); got != `{"Status":"starting","FailingStreak":0,"Log":[]}` && !strings.Contains(got, `"ExitCode":3`) {
		t.Errorf("before the first probe: %s", got)
	}
	d.awaitProbes(20*time.Second, "with", 1)
	d.must("GET", "/containers/with/json", nil, &doc)
	var h struct {
		Status        string
		FailingStreak int
		Log           []map[string]any
	}
	if err := json.Unmarshal(doc.State["Health"], &h); err != nil || len(h.Log) == 0 {
		t.Fatalf("%v: %s", err, doc.State["Health"])
	}
	for _, r := range h.Log {
		for _, key := range []string{"Start", "End"} {
			if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(r[key])); err != nil {
				t.Error(err)
			}
		}
		if r["ExitCode"] != 3.0 || r["Output"] != "fine\n" || len(r) != 4 {
			t.Errorf("result %v", r)
		}
	}
	if h.Status != "starting" || h.FailingStreak != len(h.Log) {
		t.Errorf("health %+v", h)
	}
}

// whyItFailed: a task killed for being unhealthy does not look like one that
// ran out of memory.
func whyItFailed(t *testing.T, d *daemon) {
	long := strings.Repeat("0123456789", 30)
	d.create("sick", shell("echo cannot reach the database "+long+"; exit 9", timing(500*time.Millisecond, time.Second, 3)),
		command("sh", "-c", `trap "" TERM; while :; do sleep 1; done`), grace(time.Second))
	d.awaitProbes(20*time.Second, "sick", 1)
	x := d.awaitTask(20*time.Second, "sick", "failed", failed)
	if x.Status.ContainerStatus.ExitCode != 137 {
		t.Errorf("exit code %d, want 137: it ignored its stop signal", x.Status.ContainerStatus.ExitCode)
	}
	ps := d.docker("service", "ps", "--no-trunc", "sick")
	for _, want := range []string{"unhealthy", "3/3", "exit code 9", "cannot reach the database 0123456789"} {
		if !strings.Contains(x.Status.Err, want) {
			t.Errorf("Status.Err %q does not say %q", x.Status.Err, want)
		}
		if !strings.Contains(ps, want) {
			t.Errorf("service ps does not say %q:\n%s", want, ps)
		}
	}
	if strings.Contains(x.Status.Err, long) || len(x.Status.Err) > 300 {
		t.Errorf("more than 200 bytes of output in %q", x.Status.Err)
	}
	if strings.Contains(x.Status.Err, "137") {
		t.Errorf("the exit code of its stop is in %q", x.Status.Err)
	}
}

// waiting starts the docker CLI on something that it waits for.
func (d *daemon) waiting(args ...string) (*exec.Cmd, *bytes.Buffer) {
	d.t.Helper()
	cmd := exec.Command("docker", append([]string{"-H", "unix://" + d.sock}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+filepath.Join(d.dir, "docker-config"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	return cmd, out
}

// waitForNever: a service that nothing can run keeps the CLI waiting until it
// is interrupted, and stays. (That it goes on behind, the CLI says only if the
// signal does not meet it inside a request.)
func waitForNever(t *testing.T, d *daemon) {
	cmd, out := d.waiting("service", "create", "--name", "nowhere", "--constraint", "node.labels.nosuch==1", "app:1")
	defer cmd.Process.Kill()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, 20*time.Second, "service there", func() bool { status, _ := d.call("GET", "/services/nowhere", nil); return status == 200 })
	d.awaitTask(20*time.Second, "nowhere", "pending", func(x task) bool { return x.Status.State == "pending" && x.Status.Err != "" })
	select {
	case err := <-ended:
		t.Fatalf("ended with nothing running: %v\n%s", err, out)
	case <-time.After(2 * time.Second):
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("not interrupted")
	}
	if ps := d.docker("service", "ps", "--no-trunc", "nowhere"); !strings.Contains(ps, "no suitable node") {
		t.Errorf("service ps does not say why:\n%s", ps)
	}
	d.remove("nowhere")
}

// waitForJob: a one-shot that ended well has converged.
func waitForJob(t *testing.T, d *daemon) {
	begun := time.Now()
	d.docker("service", "create", "-q", "--name", "once", "--mode", "replicated-job", "--restart-condition", "on-failure", "app:1", "sh", "-c", "sleep 1; echo done")
	t.Logf("returned after %v", time.Since(begun))
	if tasks := d.tasks("once"); len(tasks) != 1 || tasks[0].Status.State != "complete" {
		t.Errorf("tasks %+v", tasks)
	}
	if out := d.docker("service", "ls", "--filter", "name=once"); !strings.Contains(out, "1/1 completed") {
		t.Errorf("service ls:\n%s", out)
	}
}

// waitForSlow: the CLI returns when every task has proved itself, not when
// all are wanted, and not before they stayed so for the monitor time.
func waitForSlow(t *testing.T, d *daemon) {
	const warm = 3 * time.Second
	begun := time.Now()
	d.docker("service", "create", "-q", "--name", "slow", "--replicas", "2", "--update-monitor", "1s",
		"--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "500ms", "--health-start-period", "1m", "app:1", "/app", "-delay", warm.String())
	if took := time.Since(begun); took < warm+time.Second {
		t.Errorf("returned after %v", took)
	}
	if n := len(d.running("slow")); n != 2 {
		t.Errorf("returned with %d of 2 running", n)
	}
}

// waitForBad: an update to a version that never passes its check ends the
// CLI's wait, which says what was done about it.
func waitForBad(t *testing.T, d *daemon, action, says string) {
	name := "bad-" + action
	ctl := controls(t)
	touch(t, ctl, "ok")
	d.docker("service", "create", "-q", "--name", name, "--mount", "type=bind,src="+ctl+",dst=/ctl", "--update-failure-action", action, "--update-monitor", "1s", "--rollback-monitor", "1s", "--restart-delay", "1s",
		"--health-cmd", "[ -e /ctl/ok ]", "--health-interval", "500ms", "--health-retries", "1", "app:1")
	was := d.running(name)[0]
	out, stderr, err := d.try("service", "update", "--health-cmd", "exit 4", name)
	if !strings.Contains(out+stderr, says) {
		t.Errorf("update to a failing check: %v\n%s%s", err, out, stderr)
	}
	s := d.service(name)
	want := map[string]swarm.UpdateState{"pause": swarm.UpdateStatePaused, "rollback": swarm.UpdateStateRollbackCompleted}[action]
	if s.UpdateStatus == nil || s.UpdateStatus.State != want {
		t.Errorf("update status %+v", s.UpdateStatus)
	}
	var exit *exec.ExitError
	switch action {
	case "pause":
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("paused: %v", err)
		}
	case "rollback":
		eventually(t, 20*time.Second, "the old version runs", func() bool { return len(d.running(name)) == 1 })
		if now := d.running(name)[0]; now.ID == was.ID {
			t.Error("a stop-first update left the old task")
		}
		if hc := s.Spec.TaskTemplate.ContainerSpec.Healthcheck; hc.Test[1] != "[ -e /ctl/ok ]" {
			t.Errorf("rolled back to %q", hc.Test)
		}
	}
	d.remove(name)
}
