// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/agent/configs"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/agent/secrets"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/internal/slowday"
)

// fakeExecutor runs nothing: its tasks run until they are told to stop. It
// counts what was asked of it.
type fakeExecutor struct {
	start func(ctx context.Context, t *api.Task) error // nil: at once
	wait  func(ctx context.Context, t *api.Task) error // nil: until the end

	mu    sync.Mutex
	calls map[string]int // operation -> count
	stops map[string]chan struct{}
}

func newFake() *fakeExecutor {
	return &fakeExecutor{calls: map[string]int{}, stops: map[string]chan struct{}{}}
}

func (f *fakeExecutor) count(op string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
}

func (f *fakeExecutor) called(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *fakeExecutor) stopOf(id string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stops[id] == nil {
		f.stops[id] = make(chan struct{})
	}
	return f.stops[id]
}

func (f *fakeExecutor) Describe(context.Context) (*api.NodeDescription, error) {
	return &api.NodeDescription{
		Hostname:  "described",
		Platform:  &api.Platform{Architecture: "x86_64", OS: "linux"},
		Resources: &api.Resources{NanoCPUs: 2e9, MemoryBytes: 2 << 30},
		Engine: &api.EngineDescription{
			EngineVersion: "test", Plugins: []api.PluginDescription{{Type: "Network", Name: "bridge"}, {Type: "Network", Name: "overlay"}},
		},
	}, nil
}
func (f *fakeExecutor) Configure(context.Context, *api.Node) error         { return nil }
func (f *fakeExecutor) SetNetworkBootstrapKeys([]*api.EncryptionKey) error { return nil }
func (f *fakeExecutor) Secrets() exec.SecretsManager                       { return secrets.NewManager() }
func (f *fakeExecutor) Configs() exec.ConfigsManager                       { return configs.NewManager() }
func (f *fakeExecutor) Controller(t *api.Task) (exec.Controller, error) {
	f.count("controller")
	return &fakeController{f: f, t: t}, nil
}

type fakeController struct {
	f    *fakeExecutor
	t    *api.Task
	once sync.Once
}

func (c *fakeController) Update(context.Context, *api.Task) error { return nil }
func (c *fakeController) Prepare(context.Context) error           { c.f.count("prepare"); return nil }
func (c *fakeController) Start(ctx context.Context) error {
	c.f.count("start")
	if c.f.start != nil {
		return c.f.start(ctx, c.t)
	}
	return nil
}
func (c *fakeController) Wait(ctx context.Context) error {
	c.f.count("wait")
	if c.f.wait != nil {
		return c.f.wait(ctx, c.t)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.f.stopOf(c.t.ID):
		return nil
	}
}
func (c *fakeController) Shutdown(context.Context) error {
	c.f.count("shutdown")
	c.once.Do(func() { close(c.f.stopOf(c.t.ID)) })
	return nil
}
func (c *fakeController) Terminate(context.Context) error { c.f.count("terminate"); return nil }
func (c *fakeController) Remove(context.Context) error    { c.f.count("remove"); return nil }
func (c *fakeController) Close() error                    { return nil }

// testLogger is silent unless CLUSTER_LOG is set to debug or trace.
func testLogger() *slog.Logger {
	switch os.Getenv("CLUSTER_LOG") {
	case "debug":
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	case "trace":
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// running is a node under test and the end of its Run.
type running struct {
	*Node
	stop func() error // ends Run and returns its error; idempotent
}

// m is the node as a member of its cluster.
func (r *running) m() *member { return r.member.Load() }

// startNode opens and runs a node in dir and waits until it is ready.
func startNode(t testing.TB, dir string, f Executor, change func(*Config)) *running {
	t.Helper()
	cfg := Config{StateDir: dir, ListenAddr: "127.0.0.1:0", Hostname: "host", Executor: f, Logger: testLogger()}
	if change != nil {
		change(&cfg)
	}
	r := run(t, cfg)
	rctx, rcancel := context.WithTimeout(t.Context(), slowday.Of(20*time.Second))
	defer rcancel()
	if err := r.Ready(rctx); err != nil {
		t.Fatalf("not ready: %v", err)
	}
	return r
}

// run opens and runs a node until the end of the test, or its stop.
func run(t testing.TB, cfg Config) *running {
	t.Helper()
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	r := &running{Node: n, stop: sync.OnceValue(func() error { cancel(); return <-done })}
	t.Cleanup(func() { r.stop() })
	return r
}

// eventually polls the condition, which returns "" once it holds.
func eventually(t testing.TB, within time.Duration, what string, holds func() string) {
	t.Helper()
	begun := time.Now()
	for {
		why := holds()
		if why == "" {
			return
		}
		if slowday.Over(begun, within) {
			t.Fatalf("%s: not within %v: %s", what, within, why)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func replicas(name string, n uint64, ports ...*api.PortConfig) *api.ServiceSpec {
	return &api.ServiceSpec{
		Annotations: api.Annotations{Name: name},
		Task: api.TaskSpec{
			Runtime: &api.TaskSpec_Container{Container: &api.ContainerSpec{Image: "image"}},
			Restart: &api.RestartPolicy{Condition: api.RestartOnAny},
		},
		Mode:     &api.ServiceSpec_Replicated{Replicated: &api.ReplicatedService{Replicas: n}},
		Endpoint: &api.EndpointSpec{Ports: ports},
	}
}

func create(t testing.TB, n *running, spec *api.ServiceSpec) *api.Service {
	t.Helper()
	var r *api.CreateServiceResponse
	err := led(func() (err error) {
		r, err = n.Control().CreateService(t.Context(), &api.CreateServiceRequest{Spec: spec})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Service
}

// led does what was refused as nobody led once more, until somebody does.
func led(do func() error) error {
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if err := do(); !leaderless(err) || slowday.Over(begun, 10*time.Second) {
			return err
		}
	}
}

// leaderless tells that a call was refused as nobody led, which a starved
// machine comes to, and so did not take place.
func leaderless(err error) bool { return err != nil && strings.Contains(err.Error(), "has no leader") }

func service(n *running, id string) (s *api.Service) {
	n.Store().View(func(tx store.ReadTx) { s = store.GetService(tx, id) })
	return s
}

func tasks(n *running, service string) (out []*api.Task) {
	n.Store().View(func(tx store.ReadTx) { out, _ = store.FindTasks(tx, store.ByServiceID(service)) })
	return out
}

// live are the tasks of a service that run and are to run.
func live(n *running, service string) (out []*api.Task) {
	for _, t := range tasks(n, service) {
		if t.Status.State == api.TaskStateRunning && t.DesiredState == api.TaskStateRunning {
			out = append(out, t)
		}
	}
	return out
}

func awaitLive(t testing.TB, n *running, service string, want int) []*api.Task {
	t.Helper()
	var got []*api.Task
	eventually(t, 10*time.Second, "tasks run", func() string {
		got = live(n, service)
		if len(got) == want {
			return ""
		}
		why := fmt.Sprintf("%d run; ", len(got))
		for _, x := range tasks(n, service) {
			why += x.ID[:6] + " " + x.Status.State.String() + "/" + x.DesiredState.String() + " " + x.Status.Message + " " + x.Status.Err + "; "
		}
		return why
	})
	return got
}

var errFake = errors.New("it broke")

func stateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "state") }
