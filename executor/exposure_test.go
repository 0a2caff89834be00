// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"satld/healthcheck"
	"satld/traffic"
)

// exposed is a container that serves, of a record with everything in it.
func exposed(change func(*Record)) Record {
	r := Record{
		ID: "c1", Name: "web.1", TaskID: "t1", ServiceID: "s1", ServiceName: "web", Slot: 3,
		NotReady: true, FailOpen: true, State: Running, Proved: true, IngressID: "net",
		Aliases: map[string][]string{"net": {"www"}},
		Ports:   []PortBinding{{HostIP: "10.0.0.1", Published: 8080, Target: 80, Proto: "tcp"}},
	}
	if change != nil {
		change(&r)
	}
	return r
}

// TestMember: what traffic is told of a container is what its record says.
func TestMember(t *testing.T) {
	b := newBench(t)
	defer b.close()
	at := b.node.cfg.Networks.Attachments("c1")
	r := exposed(func(r *Record) {
		r.IngressID, r.Aliases = at[0].NetworkID, map[string][]string{at[0].NetworkID: {"www"}}
	})
	want := traffic.Member{
		ContainerID: "c1", Name: "web.1", TaskID: "t1", ServiceID: "s1", ServiceName: "web", Slot: 3,
		NotReadyNames: true, FailOpen: true, Serving: true, Process: true,
		Ports: []traffic.Port{{Proto: "tcp", HostIP: netip.MustParseAddr("10.0.0.1"), Published: 8080, Target: 80}},
	}
	for i, a := range at {
		e := traffic.Endpoint{NetworkID: a.NetworkID, Addr: a.Addr.Addr()}
		if i == 0 {
			e.Aliases, e.Nameless = []string{"www"}, true
		}
		want.Endpoints = append(want.Endpoints, e)
	}
	if got := b.node.memberOf(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestWhoServes: the one predicate of DESIGN.md section 5, who may be fallen
// back on, and why a container is sent nothing.
func TestWhoServes(t *testing.T) {
	b := newBench(t)
	defer b.close()
	begun := &healthcheck.Health{Log: []healthcheck.Result{{ExitCode: 1}}, FailingStreak: 1}
	for _, c := range []struct {
		name              string
		change            func(*Record)
		health            *healthcheck.Health
		serves, unhealthy bool
		why               string
	}{
		{"running", nil, nil, true, false, ""},
		{"starting, without a probe", func(r *Record) { r.Proved = false }, nil, false, false, "starting"},
		{"starting, with one", func(r *Record) { r.Proved = false }, begun, false, false, "starting (health: 1/3 probes failed)"},
		{"unrouted", func(r *Record) { r.Unrouted = "unhealthy: x" }, nil, false, true, "withdrawn: unhealthy: x"},
		{"condemned", func(r *Record) { r.Unhealthy = "unhealthy: y" }, nil, false, true, "withdrawn: unhealthy: y; waits for its turn to be replaced"},
		{"not ready", func(r *Record) { r.Unready = true }, nil, false, false, "withdrawn: not ready, by the operator's word on the task"},
		{"not ready and unhealthy", func(r *Record) { r.Unready, r.Unrouted = true, "unhealthy: x" }, nil, false, false, "withdrawn: unhealthy: x"},
		{"withdrawn for good", func(r *Record) { r.Withdrawn = true }, nil, false, false, "stopping"},
		{"stopping", func(r *Record) { r.Stopping = true }, nil, false, false, "stopping"},
		{"stopping for its health", func(r *Record) { r.Stopping, r.Unhealthy = true, "unhealthy: y" }, nil, false, false, "stopping: unhealthy: y"},
		{"ended", func(r *Record) { r.State = Exited }, nil, false, false, Exited.String()},
	} {
		r := exposed(c.change)
		m := b.node.memberOf(r)
		if m.Serving != c.serves || m.Unhealthy != c.unhealthy || m.Process != r.State.Live() {
			t.Errorf("%s: %+v", c.name, m)
		}
		if why := b.node.notServing(r, c.health, healthcheck.Settings{Retries: 3, Interval: time.Second}); why != c.why {
			t.Errorf("%s: %q, want %q", c.name, why, c.why)
		}
	}
	b.node.nodeUnready.Store(true)
	if m := b.node.memberOf(exposed(nil)); m.Serving {
		t.Error("a task serves on a node that is not ready")
	}
	if m := b.node.memberOf(exposed(func(r *Record) { r.TaskID = "" })); !m.Serving {
		t.Error("the word on a node is about its tasks alone")
	}
}
