// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// cliFixture is a fixture on a socket, with something that does what the
// engine does to services, and the real docker CLI as its client.
type cliFixture struct {
	*fixture
	socket string
	home   string
}

func newCLIFixture(t *testing.T) *cliFixture {
	t.Helper()
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("SKIPPED: no docker CLI here, so what it makes of the answers is not tested")
	}
	f := &cliFixture{fixture: newNetworkFixture(t), socket: filepath.Join(shortDir(t), "s"), home: t.TempDir()}
	_, stop := serveSocket(t, f.server, f.socket)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); fakeEngine(ctx, f.cluster.store) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// fakeEngine brings each replicated service to as many running tasks of its
// present spec as it asks for, and removes those of services that are gone.
func fakeEngine(ctx context.Context, s *store.MemoryStore) {
	changes, cancel := state.Watch(s.WatchQueue(), api.EventCreateService{}, api.EventUpdateService{}, api.EventDeleteService{})
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
		_ = s.Update(func(tx store.Tx) error {
			tasks, _ := store.FindTasks(tx, store.All)
			for _, t := range tasks {
				svc := store.GetService(tx, t.ServiceID)
				if svc == nil || t.SpecVersion.Index != svc.SpecVersion.Index || t.Slot > svc.Spec.GetReplicated().Replicas {
					_ = store.DeleteTask(tx, t.ID)
				}
			}
			services, _ := store.FindServices(tx, store.All)
			for _, svc := range services {
				for slot := uint64(1); slot <= svc.Spec.GetReplicated().Replicas; slot++ {
					id := svc.ID[:22] + string(rune('a'+svc.SpecVersion.Index%26)) + string(rune('a'+slot))
					if store.GetTask(tx, id) != nil {
						continue
					}
					_ = store.CreateTask(tx, &api.Task{ID: id, ServiceID: svc.ID, Slot: slot, NodeID: fakeNodeID,
						Spec: svc.Spec.Task, SpecVersion: svc.SpecVersion, ServiceAnnotations: svc.Spec.Annotations,
						DesiredState: api.TaskStateRunning,
						Status:       api.TaskStatus{State: api.TaskStateRunning, Timestamp: svc.Meta.CreatedAt}})
				}
			}
			return nil
		})
	}
}

// docker runs the CLI; it fails the test when it does not exit with code.
func (f *cliFixture) docker(t *testing.T, code int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", append([]string{"-H", "unix://" + f.socket}, args...)...)
	cmd.Env = []string{"HOME=" + f.home, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("docker %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	return string(out)
}

func TestDockerCLI(t *testing.T) {
	f := newCLIFixture(t)
	has := func(out string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("no %q in:\n%s", w, out)
			}
		}
	}
	// Without -d: the CLI returns when the service has converged.
	has(f.docker(t, 0, "service", "create", "--name", "web", "--replicas", "2", "--update-monitor", "100ms", "-p", "8080:80",
		"--no-resolve-image", "bb:1", "sleep", "1000"), "Service", "converged", "service web publishes 8080->80/tcp and has no healthcheck")
	has(f.docker(t, 0, "service", "ls"), "web", "replicated", "2/2", "bb:1")
	has(f.docker(t, 0, "service", "ps", "web"), "web.1", "web.2", "vm", "Running")
	has(f.docker(t, 0, "service", "inspect", "--pretty", "web"), "Name:", "web", "Replicas:", "UpdateConfig")
	has(f.docker(t, 0, "service", "update", "--env-add", "A=1", "--health-cmd", "true", "--no-resolve-image", "web"), "converged")
	var inspected []struct {
		Spec struct {
			TaskTemplate struct {
				ContainerSpec struct {
					Env         []string
					Healthcheck struct{ Interval, Timeout, Retries int64 }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(f.docker(t, 0, "service", "inspect", "web")), &inspected); err != nil {
		t.Fatal(err)
	}
	if c := inspected[0].Spec.TaskTemplate.ContainerSpec; len(c.Env) != 1 || c.Healthcheck.Interval != 5e9 || c.Healthcheck.Timeout != 3e9 || c.Healthcheck.Retries != 2 {
		t.Errorf("%+v", c)
	}
	has(f.docker(t, 0, "service", "scale", "web=3"), "converged")
	has(f.docker(t, 0, "service", "rollback", "-d", "web"), "web")
	has(f.docker(t, 1, "service", "create", "--name", "web", "-d", "--no-resolve-image", "bb:1"), "service web already exists")
	has(f.docker(t, 1, "service", "create", "--name", "bad", "-d", "--no-resolve-image", "--health-interval", "1us", "--health-cmd", "x", "bb:1"), "Interval")
	has(f.docker(t, 1, "service", "create", "--name", "sec", "-d", "--no-resolve-image", "--secret", "x", "bb:1"), "secret not found: x")
	has(f.docker(t, 0, "service", "create", "--name", "h", "-d", "--network", "host", "--no-resolve-image", "bb:1"))
	has(f.docker(t, 0, "node", "ls"), "vm", "Ready", "Active", "Leader")
	has(f.docker(t, 0, "node", "inspect", "self", "--pretty"), "Hostname:", "vm")
	has(f.docker(t, 0, "node", "ps"), "web.1")
	has(f.docker(t, 0, "node", "update", "--availability", "drain", "vm"), "vm")
	has(f.docker(t, 0, "network", "create", "-d", "overlay", "--attachable", "back"))
	has(f.docker(t, 0, "network", "ls"), "back", "overlay", "swarm", "bridge", "host", "none")
	has(f.docker(t, 0, "network", "inspect", "back"), "10.89.")
	has(f.docker(t, 0, "network", "rm", "back"), "back")
	has(f.docker(t, 0, "info"), "Swarm: active", "Is Manager: true", "Managers: 1", "Server Version: 0.1.0")
	has(f.docker(t, 0, "version"), "API version:", "1.51 (minimum version 1.24)")
	has(f.docker(t, 0, "events", "--since", "1s", "--until", "0s"))
	has(f.docker(t, 0, "swarm", "init"), "Swarm initialized", fakeNodeID)
	has(f.docker(t, 0, "swarm", "join-token", "-q", "worker"), "SWMTKN-1-worker")
	f.secretsByCLI(t, has)
	has(f.docker(t, 0, "volume", "ls"), "DRIVER")
	has(f.docker(t, 0, "service", "rm", "web", "h"), "web")
}

// What the CLI would otherwise put into words of its own, which mislead.
func TestDockerCLIShowsRefusals(t *testing.T) {
	f := newCLIFixture(t)
	withContainers(f.fixture)
	file := filepath.Join(f.home, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"cp", file, "web:/tmp/"}, {"cp", file, "web:/tmp"}, {"cp", "web:/etc/passwd", "-"}} {
		if out := f.docker(t, 1, args...); !strings.Contains(out, "copying files into and out of containers is not supported") {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out := f.docker(t, 0, "volume", "rm", "-f", "v"); out != "v\n" {
		t.Errorf("%s", out)
	}
}
