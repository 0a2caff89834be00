// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"pgregory.net/rapid"
)

func ingress(published, target uint32) *api.PortConfig {
	return &api.PortConfig{Protocol: api.ProtocolTCP, PublishedPort: published, TargetPort: target, PublishMode: api.PublishModeIngress}
}

func host(published, target uint32) *api.PortConfig {
	p := ingress(published, target)
	p.PublishMode = api.PublishModeHost
	return p
}

func udp(published, target uint32) *api.PortConfig {
	p := ingress(published, target)
	p.Protocol = api.ProtocolUDP
	return p
}

func portService(id string, ports ...*api.PortConfig) *api.Service {
	s := &api.Service{ID: id, Spec: api.ServiceSpec{Annotations: api.Annotations{Name: "name-" + id}, Endpoint: &api.EndpointSpec{Ports: ports}}}
	s.Meta.CreatedAt = timestamp(time.Unix(int64(len(id)), 0))
	return s
}

// settle applies a plan, as the allocator does.
func settle(services []*api.Service, p portPlan) {
	for _, s := range services {
		if e, ok := p.endpoints[s.ID]; ok {
			s.Endpoint = e
		}
	}
}

func published(s *api.Service) (out []uint32) {
	for _, p := range endpointPorts(s) {
		out = append(out, p.PublishedPort)
	}
	return out
}

func TestPlanPorts(t *testing.T) {
	for _, c := range []struct {
		name     string
		services []*api.Service
		want     map[string][]uint32
		blocked  map[string]string
	}{
		{"explicit", []*api.Service{portService("a", ingress(8080, 80))}, map[string][]uint32{"a": {8080}}, nil},
		{"two automatic ones", []*api.Service{portService("a", ingress(0, 80), ingress(0, 443))}, map[string][]uint32{"a": {30000, 30001}}, nil},
		{"automatic in host mode", []*api.Service{portService("a", host(0, 80))}, map[string][]uint32{"a": {30000}}, nil},
		{"protocols apart", []*api.Service{portService("a", ingress(53, 53), udp(53, 53))}, map[string][]uint32{"a": {53, 53}}, nil},
		{"automatic avoids what is asked for", []*api.Service{portService("a", ingress(0, 80)), portService("bb", ingress(30000, 80))},
			map[string][]uint32{"a": {30001}, "bb": {30000}}, nil},
		{"the older one gets it", []*api.Service{portService("bb", ingress(80, 1)), portService("a", ingress(80, 2))},
			map[string][]uint32{"a": {80}, "bb": nil}, map[string]string{"bb": "port 80/tcp is already published by service name-a"}},
		{"host mode twice", []*api.Service{portService("a", host(80, 1)), portService("bb", host(80, 2))},
			map[string][]uint32{"a": {80}, "bb": {80}}, nil},
		{"host mode against ingress", []*api.Service{portService("a", host(80, 1)), portService("bb", ingress(80, 2))},
			map[string][]uint32{"a": {80}, "bb": nil}, map[string]string{"bb": "port 80/tcp is already published by service name-a"}},
		{"no endpoint", []*api.Service{{ID: "a"}}, map[string][]uint32{"a": nil}, nil},
	} {
		p := planPorts(c.services)
		settle(c.services, p)
		for _, s := range c.services {
			if got := published(s); !reflect.DeepEqual(got, c.want[s.ID]) {
				t.Errorf("%s: service %s publishes %v, want %v", c.name, s.ID, got, c.want[s.ID])
			}
		}
		if len(p.blocked) != len(c.blocked) || len(c.blocked) > 0 && !reflect.DeepEqual(p.blocked, c.blocked) {
			t.Errorf("%s: blocked %v, want %v", c.name, p.blocked, c.blocked)
		}
		if again := planPorts(c.services); len(again.endpoints) != 0 {
			t.Errorf("%s: a second plan changes %v", c.name, again.endpoints)
		}
	}
}

// TestPortsAreKept: an automatic port stays over updates that leave it alone,
// and no other service gets it in between.
func TestPortsAreKept(t *testing.T) {
	a, b := portService("a", ingress(0, 80)), portService("bb", ingress(0, 80))
	all := []*api.Service{a, b}
	settle(all, planPorts(all))
	if got := fmt.Sprint(published(a), published(b)); got != "[30000] [30001]" {
		t.Fatal(got)
	}
	c := portService("ccc", ingress(0, 1))
	all = append(all, c)
	a.Spec.Endpoint.Ports = []*api.PortConfig{ingress(9000, 90), ingress(0, 80)}
	settle(all, planPorts(all))
	if got := fmt.Sprint(published(a), published(b), published(c)); got != "[9000 30000] [30001] [30002]" {
		t.Errorf("after adding a port: %v", got)
	}
	a.Spec.Endpoint.Ports = []*api.PortConfig{ingress(30000, 80)}
	settle(all, planPorts(all))
	if got := fmt.Sprint(published(a)); got != "[30000]" {
		t.Errorf("after asking for the automatic port: %v", got)
	}
	a.Spec.Endpoint.Ports = []*api.PortConfig{ingress(0, 80)}
	settle(all, planPorts(all))
	if got := fmt.Sprint(published(a)); got != "[30000]" {
		t.Errorf("after no longer asking for it: %v", got)
	}
	a.Spec.Endpoint = nil
	settle(all, planPorts(all))
	if a.Endpoint != nil {
		t.Errorf("after removing all: %v", a.Endpoint)
	}
	if p := planPorts(all); len(p.endpoints) != 0 {
		t.Errorf("not settled: %v", p.endpoints)
	}
}

func TestPortsRunOut(t *testing.T) {
	var ports []*api.PortConfig
	for i := range autoPortLast - autoPortFirst + 1 {
		ports = append(ports, ingress(0, uint32(i+1)))
	}
	all := []*api.Service{portService("a", ports...), portService("bb", ingress(0, 80))}
	p := planPorts(all)
	if len(p.endpoints["a"].Ports) != len(ports) || !strings.Contains(p.blocked["bb"], "no port from 30000 to 32767/tcp is free") {
		t.Errorf("a has %d ports; blocked %v", len(p.endpoints["a"].Ports), p.blocked)
	}
}

// TestPlanPortsProperties: whatever the services ask for, in any order of
// updates, no ingress port has two owners, who has a port keeps it, and a plan
// leaves nothing to plan.
func TestPlanPortsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		port := rapid.Custom(func(t *rapid.T) *api.PortConfig {
			p := ingress(rapid.SampledFrom([]uint32{0, 0, 80, 81, 30000, 30001}).Draw(t, "published"), rapid.Uint32Range(1, 3).Draw(t, "target"))
			p.PublishMode = rapid.SampledFrom([]api.PortConfig_PublishMode{api.PublishModeIngress, api.PublishModeHost}).Draw(t, "mode")
			p.Protocol = rapid.SampledFrom([]api.PortConfig_Protocol{api.ProtocolTCP, api.ProtocolUDP}).Draw(t, "proto")
			return p
		})
		var all []*api.Service
		for step := range rapid.IntRange(1, 8).Draw(t, "steps") {
			spec := &api.EndpointSpec{Ports: rapid.SliceOfN(port, 0, 4).Draw(t, "ports")}
			if dup(spec.Ports) {
				continue // refused by the API
			}
			if len(all) > 0 && rapid.Bool().Draw(t, "update") {
				rapid.SampledFrom(all).Draw(t, "service").Spec.Endpoint = spec
			} else {
				s := portService(fmt.Sprintf("s%d", step))
				s.Spec.Endpoint = spec
				all = append(all, s)
			}
			before := map[string][]uint32{}
			for _, s := range all {
				if portsSettled(s) {
					before[s.ID] = published(s)
				}
			}
			p := planPorts(all)
			settle(all, p)
			owner := map[portKey]string{}
			for _, s := range all {
				if was, ok := before[s.ID]; ok && !reflect.DeepEqual(was, published(s)) {
					t.Fatalf("settled service %s went from %v to %v", s.ID, was, published(s))
				}
				if _, blocked := p.blocked[s.ID]; blocked == portsSettled(s) {
					t.Fatalf("service %s: blocked %v and settled %v", s.ID, blocked, portsSettled(s))
				}
				if !portsSettled(s) {
					continue // its old ports are as before; tasks wait
				}
				for _, c := range endpointPorts(s) {
					k := portKey{c.Protocol, c.PublishedPort}
					if o, taken := owner[k]; taken && o != s.ID && c.PublishMode == api.PublishModeIngress {
						t.Fatalf("port %v of %s is also %s's", k, s.ID, o)
					}
					owner[k] = s.ID
				}
			}
			if again := planPorts(all); len(again.endpoints) != 0 {
				t.Fatalf("a second plan changes %v", again.endpoints)
			}
		}
	})
}

func dup(ports []*api.PortConfig) bool {
	sorted := append([]*api.PortConfig(nil), ports...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].PublishedPort < sorted[j].PublishedPort })
	for i := 1; i < len(sorted); i++ {
		for j := range i {
			if sorted[i].PublishedPort != 0 && sorted[i].PublishedPort == sorted[j].PublishedPort && sorted[i].Protocol == sorted[j].Protocol {
				return true
			}
		}
	}
	return false
}

func TestPlanAllocation(t *testing.T) {
	now := time.Unix(1700000000, 5)
	web, blocked := portService("a", ingress(80, 80)), portService("bb", ingress(80, 80))
	web.Spec.Task.Networks = []*api.NetworkAttachmentConfig{{Target: "net", Aliases: []string{"alias"}}, {Target: "host"}}
	task := func(id, service string, spec api.TaskSpec) *api.Task {
		return &api.Task{ID: id, ServiceID: service, Spec: spec, Status: api.TaskStatus{State: api.TaskStateNew, Message: "created"}}
	}
	v := allocView{
		services: []*api.Service{web, blocked},
		networks: []*api.Network{{ID: "net"}},
		tasks: []*api.Task{
			task("t1", "a", web.Spec.Task), task("t2", "bb", api.TaskSpec{}), task("t3", "gone", api.TaskSpec{}), task("t4", "", api.TaskSpec{}),
		},
	}
	plan := planAllocation(v, now)
	got := map[string]*api.Task{}
	for _, x := range plan.tasks {
		got[x.ID] = x
	}
	t1 := got["t1"]
	if t1.Status.State != api.TaskStatePending || t1.Status.Message != "pending task scheduling" || t1.Status.Timestamp.Nanos != 5 {
		t.Errorf("t1 %+v", t1.Status)
	}
	if !reflect.DeepEqual(t1.Endpoint.Spec, web.Spec.Endpoint) || t1.Endpoint.Ports[0].PublishedPort != 80 || len(t1.Endpoint.VirtualIPs) != 0 {
		t.Errorf("t1 endpoint %v", t1.Endpoint)
	}
	if len(t1.Networks) != 1 || t1.Networks[0].Network.ID != "net" || t1.Networks[0].Aliases[0] != "alias" {
		t.Errorf("t1 networks %v", t1.Networks)
	}
	if got["t2"].Status.State != api.TaskStateNew || !strings.Contains(got["t2"].Status.Err, "already published by service name-a") {
		t.Errorf("t2 %+v", got["t2"].Status)
	}
	if got["t3"] != nil || got["t4"].Status.State != api.TaskStatePending {
		t.Errorf("t3 %v, t4 %v", got["t3"], got["t4"])
	}
	if v.tasks[0].Status.State != api.TaskStateNew {
		t.Error("the plan changed the view")
	}
	v.tasks = []*api.Task{got["t2"]}
	web.Endpoint = plan.endpoints["a"]
	if again := planAllocation(v, now); len(again.tasks)+len(again.endpoints) != 0 {
		t.Errorf("a second plan changes %v %v", again.tasks, again.endpoints)
	}
}
