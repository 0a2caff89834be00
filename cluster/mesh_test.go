// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"

	"satld/mesh"
	"satld/traffic"
)

// fakeTraffic is a node's table: what it says of its own, and what it was told
// of others.
type fakeTraffic struct {
	mu      sync.Mutex
	own     []traffic.Member
	changed chan struct{}
	remote  []traffic.Member
	told    chan struct{} // closed at the next SetRemote
}

func newFakeTraffic() *fakeTraffic {
	return &fakeTraffic{changed: make(chan struct{}), told: make(chan struct{})}
}

func (f *fakeTraffic) Own() ([]traffic.Member, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.own), f.changed
}

func (f *fakeTraffic) SetRemote(members []traffic.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remote = members
	close(f.told)
	f.told = make(chan struct{})
}

// say changes what the node's own task is.
func (f *fakeTraffic) say(taskID string, serving bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own = []traffic.Member{{TaskID: taskID, Serving: serving, Unhealthy: !serving, Process: true}}
	close(f.changed)
	f.changed = make(chan struct{})
}

// heard waits until the node was told that a task of another serves, or not.
func (f *fakeTraffic) heard(taskID string, serving bool, within time.Duration) bool {
	deadline := time.After(within)
	for {
		f.mu.Lock()
		there := slices.ContainsFunc(f.remote, func(m traffic.Member) bool { return m.TaskID == taskID && m.Serving == serving })
		told := f.told
		f.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-told:
		case <-deadline:
			return false
		}
	}
}

// asking is how often nodes under test ask each other.
func asking(every time.Duration) mesh.Settings {
	s := mesh.DefaultSettings()
	s.Interval = every
	return s
}

// pair is a manager and a worker with a task that publishes a port, and what
// each has of traffic. Neither asks by itself.
func pair(t testing.TB) (manager, worker *fakeTraffic, taskID string) {
	t.Helper()
	manager, worker = newFakeTraffic(), newFakeTraffic()
	a := startNode(t, stateDir(t), newFake(), func(c *Config) { c.Traffic, c.NodeHealth = manager, asking(time.Hour) })
	b := startNode(t, stateDir(t), newFake(), func(c *Config) { c.Traffic, c.NodeHealth = worker, asking(time.Hour) })
	join(t, b, a, api.NodeRoleWorker)
	return manager, worker, publisher(t, a, b)
}

// publisher is a task on a node, of a service that publishes a port.
func publisher(t testing.TB, manager, on *running) (taskID string) {
	t.Helper()
	spec := replicas("web", 1, &api.PortConfig{Protocol: api.ProtocolTCP, TargetPort: 80, PublishedPort: 8080})
	spec.Task.Placement = &api.Placement{Constraints: []string{"node.id==" + on.NodeID()}}
	s := create(t, manager, spec)
	eventually(t, 20*time.Second, "the task runs", func() string {
		all := tasks(manager, s.ID)
		for _, task := range all {
			if task.Status.State == api.TaskStateRunning && task.NodeID == on.NodeID() {
				taskID = task.ID
				return ""
			}
		}
		return fmt.Sprint(all)
	})
	return taskID
}

// A worker asks the other nodes itself: while one does not answer it, it sends
// no traffic there, though the manager hears from that node, being it.
func TestWorkerCutOff(t *testing.T) {
	t.Parallel()
	manager, worker := newFakeTraffic(), newFakeTraffic()
	a := startNode(t, stateDir(t), newFake(), func(c *Config) { c.Traffic, c.NodeHealth = manager, asking(time.Hour) })
	b := startNode(t, stateDir(t), newFake(), func(c *Config) { c.Traffic, c.NodeHealth = worker, asking(50*time.Millisecond) })
	join(t, b, a, api.NodeRoleWorker)
	task := publisher(t, a, a)
	manager.say(task, true)
	passes := func() string { return strings.TrimPrefix(string(b.Verdict(task)), string(mesh.Passes)) }
	eventually(t, 20*time.Second, "the worker is answered", passes)

	key, m := a.NodeID()+"@"+a.AdvertiseAddr(), b.m()
	m.conns.mu.Lock()
	m.conns.open[key].Close() // and left there: no question gets through
	m.conns.mu.Unlock()
	if !worker.heard(task, false, 20*time.Second) {
		t.Error("it sends to a node that does not answer it")
	}
	if v := b.Verdict(task); v != mesh.Silent {
		t.Errorf("its verdict is %q", v)
	}
	drop(m, key)
	eventually(t, 20*time.Second, "it is answered again", passes)
	if !worker.heard(task, true, 20*time.Second) {
		t.Error("it sends nothing to a node that answers again")
	}
}

// A manager is told of each change of who serves on another node, by the node
// itself, and does not wait until it asks.
func TestTold(t *testing.T) {
	t.Parallel()
	manager, worker, task := pair(t)
	for i := range 20 {
		serving := i%2 == 1
		worker.say(task, serving)
		if !manager.heard(task, serving, 20*time.Second) {
			t.Fatalf("change %d was not told", i)
		}
	}
	manager.mu.Lock()
	m := manager.remote[0]
	manager.mu.Unlock()
	if len(m.Endpoints) != 1 || !DefaultOverlayPool.Contains(m.Endpoints[0].Addr) || m.Endpoints[0].Addr == (netip.Addr{}) ||
		len(m.Ports) != 1 || m.ServiceName != "web" || !strings.HasPrefix(m.Name, "web.1.") {
		t.Errorf("%+v", m)
	}
}

// BenchmarkTold is the time from a change of who serves on a node until a
// manager knows it. DESIGN: within 250 ms.
func BenchmarkTold(b *testing.B) {
	manager, worker, task := pair(b)
	var took []time.Duration
	serving := false
	for b.Loop() {
		begun := time.Now()
		worker.say(task, serving)
		if !manager.heard(task, serving, 20*time.Second) {
			b.Fatal("not told")
		}
		took = append(took, time.Since(begun))
		serving = !serving
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	b.ReportMetric(float64(took[len(took)-1])/1e6, "max-ms")
}
