// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"net/netip"
	"reflect"
	"slices"
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

// TestExpose: what traffic is told of a container, and what it knows of it then.
// One that may be fallen back on, or has yet to prove itself, is no less a
// member for it; one that is neither is withdrawn.
func TestExpose(t *testing.T) {
	b := newBench(t)
	defer b.close()
	const in, out, gone = "put serving=true", "put serving=false", "withdraw"
	for _, c := range []struct {
		name   string
		change func(*Record)
		known  exposure
		told   []string
		shown  exposure
	}{
		{"serves", nil, unknown, []string{in}, member},
		{"serves again", nil, withdrew, []string{in}, member},
		{"on its way in", func(r *Record) { r.Proved = false }, unknown, []string{out}, member},
		{"does not pass", func(r *Record) { r.Unrouted = "unhealthy: x" }, member, []string{out}, member},
		{"waits for its turn", func(r *Record) { r.Unhealthy = "unhealthy: x" }, member, []string{out}, member},
		{"not ready", func(r *Record) { r.Unready = true }, member, []string{gone}, withdrew},
		{"not ready and unhealthy", func(r *Record) { r.Unready, r.Unrouted = true, "unhealthy: x" }, member, []string{gone}, withdrew},
		{"not ready, found so", func(r *Record) { r.Unready = true }, unknown, []string{out, gone}, withdrew},
		{"not ready, on its way in", func(r *Record) { r.Proved, r.Unready = false, true }, member, []string{out}, member},
		{"stops", func(r *Record) { r.Stopping = true }, member, []string{gone}, withdrew},
		{"stops before it served", func(r *Record) { r.Stopping, r.Proved = true, false }, member, []string{gone}, withdrew},
		{"withdrawn for good", func(r *Record) { r.Withdrawn = true }, member, []string{gone}, withdrew},
		{"withdrawn before it served", func(r *Record) { r.Withdrawn, r.Proved = true, false }, member, []string{gone}, withdrew},
		{"has ended", nil, forgotten, nil, forgotten},
	} {
		ctr := newContainer(exposed(c.change))
		ctr.shown = c.known
		before := len(b.j.all())
		b.node.expose(t.Context(), ctr)
		if told := b.j.after(before); !slices.Equal(told, c.told) || ctr.shown != c.shown {
			t.Errorf("%s: told %q, want %q; known %d, want %d", c.name, told, c.told, ctr.shown, c.shown)
		}
	}
}

// openTraffic sends traffic to who does not pass, of some services.
type openTraffic struct {
	*fakeTraffic
	services []string
}

func (o openTraffic) FailOpen() []string { return o.services }

// TestFailsOpen: who is sent traffic though it does not pass: of a service that
// fails open those who are for it, which in an update are not all.
func TestFailsOpen(t *testing.T) {
	b := newBench(t)
	defer b.close()
	unhealthy := func(r *Record) { r.Unrouted = "unhealthy: x" }
	for _, c := range []struct {
		name   string
		change func(*Record)
		open   []string
		want   bool
	}{
		{"its service does", unhealthy, []string{"s0", "s1"}, true},
		{"another does", unhealthy, []string{"s0"}, false},
		{"nobody does", unhealthy, nil, false},
		{"it is not for that", func(r *Record) { unhealthy(r); r.FailOpen = false }, []string{"s1"}, false},
		{"it passes", nil, []string{"s1"}, false},
		{"it is not ready either", func(r *Record) { unhealthy(r); r.Unready = true }, []string{"s1"}, false},
	} {
		b.node.cfg.Traffic = openTraffic{b.traffic, c.open}
		if got := b.node.failsOpen(exposed(c.change)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	b.node.cfg.Traffic = b.traffic
	if b.node.failsOpen(exposed(unhealthy)) {
		t.Error("it fails open by a traffic that does not know of it")
	}
}
