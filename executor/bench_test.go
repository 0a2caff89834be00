// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"

	"satld/events"
	"satld/healthcheck"
	"satld/traffic"
)

// bench is a node among fakes, with the real monitor.
type bench struct {
	t       *testing.T
	dir     string
	j       *journal
	rt      *fakeRuntime
	images  *fakeImages
	nets    *fakeNetworks
	traffic *fakeTraffic
	leader  *fakeLeader // nil: none
	jails   bool        // Config.JailFirst
	boot    string      // Config.Boot
	write   func(string, Record) error
	monitor *healthcheck.Monitor
	events  *events.Log
	node    *Node
	stop    context.CancelFunc
	ended   chan error
}

func newBench(t *testing.T, with ...func(*bench)) *bench {
	j := &journal{}
	b := &bench{
		t: t, dir: t.TempDir(), j: j,
		rt:      &fakeRuntime{j: j, on: map[string]*fakeProcess{}, probe: func(string) (int, string) { return 0, "" }},
		images:  &fakeImages{},
		nets:    &fakeNetworks{},
		traffic: &fakeTraffic{j: j, members: map[string]traffic.Member{}},
	}
	for _, change := range with {
		change(b)
	}
	b.open()
	return b
}

// open starts a daemon's worth of executor over what an earlier one left.
func (b *bench) open() {
	b.t.Helper()
	b.events = new(events.Log)
	b.monitor = healthcheck.NewMonitor(healthcheck.Options{})
	ctx, stop := context.WithCancel(context.Background())
	b.stop, b.ended = stop, make(chan error, 1)
	go func() { b.ended <- b.monitor.Run(ctx) }()
	cfg := Config{
		StateDir: b.dir, Hostname: "here", Runtime: b.rt, Images: b.images, Networks: b.nets, JailFirst: b.jails, Boot: b.boot,
		Traffic: b.traffic, Prober: b.monitor, Events: b.events, write: b.write,
	}
	if b.leader != nil {
		cfg.Leader = b.leader
	}
	node, err := Open(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.node = node
}

// record is a container's record as it would be adopted now.
func (b *bench) record(id string) Record {
	b.t.Helper()
	c, ok := b.node.byID(id)
	if !ok {
		b.t.Fatalf("no container %s", id)
	}
	return c.record()
}

// close ends the daemon and leaves the containers.
func (b *bench) close() {
	b.node.Close()
	b.stop()
	<-b.ended
}

// task makes a task of service web with the given probe, nil for none.
func webTask(health *api.HealthConfig) *api.Task {
	return &api.Task{
		ID: "task1", ServiceID: "service1", Slot: 1, NodeID: "node1",
		ServiceAnnotations: api.Annotations{Name: "web"},
		Spec: api.TaskSpec{Runtime: &api.TaskSpec_Container{Container: &api.ContainerSpec{
			Image: "app:1", Healthcheck: health, StopGracePeriod: gogotypes.DurationProto(2 * time.Second),
		}}},
		Endpoint: &api.Endpoint{Ports: []*api.PortConfig{{Protocol: api.ProtocolTCP, TargetPort: 80, PublishedPort: 8080}}},
	}
}

func everySecond(retries int32) *api.HealthConfig {
	return &api.HealthConfig{
		Test: []string{"CMD", "/probe"}, Interval: gogotypes.DurationProto(time.Second),
		Timeout: gogotypes.DurationProto(time.Second), Retries: retries,
	}
}
