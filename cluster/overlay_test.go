// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"pgregory.net/rapid"

	"satld/executor"
)

func overlay(id, subnet string) *api.Network {
	n := &api.Network{ID: id, Spec: api.NetworkSpec{Annotations: api.Annotations{Name: id}, DriverConfig: &api.Driver{Name: "overlay"}}}
	if subnet != "" {
		n.Spec.IPAM = &api.IPAMOptions{Configs: []*api.IPAMConfig{{Subnet: subnet}}}
	}
	return n
}

// bridgeNet is a network that each node has one of its own of.
func bridgeNet(id, subnet string) *api.Network {
	n := overlay(id, subnet)
	n.Spec.DriverConfig.Name = "bridge"
	return n
}

// pooled is a node that has told of its network pool.
func pooled(id, name, pool string) *api.Node {
	return &api.Node{ID: id, Description: &api.NodeDescription{
		Hostname: name, Engine: &api.EngineDescription{Labels: map[string]string{PoolLabel: pool}},
	}}
}

func ingressNet() *api.Network {
	n := overlay("ingress", "")
	n.Spec.Ingress, n.Spec.DriverConfig = true, &api.Driver{}
	return n
}

func TestSettleOverlay(t *testing.T) {
	pool := netip.MustParsePrefix("10.89.0.0/16")
	all := []*api.Network{bridgeNet("here", "192.168.3.0/24")}
	nodes := []*api.Node{pooled("n1", "vm", "10.88.0.0/16"), pooled("n2", "", "10.89.19.0/24"), {ID: "n3"}, pooled("n4", "odd", "rubbish")}
	for _, c := range []struct{ id, ask, want, refused string }{
		{"ingress", "", "10.89.0.0/20", ""},
		{"one", "", "10.89.16.0/24", ""},
		{"own", "172.20.0.0/16", "172.20.0.0/16", ""},
		{"inside", "10.89.17.0/24", "10.89.17.0/24", ""},
		{"two", "", "10.89.18.0/24", ""},
		{"three", "", "10.89.20.0/24", ""}, // past a node's pool
		{"least", "10.70.0.8/29", "10.70.0.8/29", ""},
		{"clash", "172.20.5.0/24", "", "subnet 172.20.5.0/24 overlaps 172.20.0.0/16 of network own"},
		{"bridge", "192.168.0.0/16", "", "overlaps 192.168.3.0/24 of network here"},
		{"pool", "10.88.77.0/24", "", "overlaps 10.88.0.0/16, the network pool of node vm (its --network-pool)"},
		{"nameless", "10.89.19.128/25", "", "overlaps 10.89.19.0/24, the network pool of node n2"},
		{"two hosts", "10.71.0.0/30", "", "subnet 10.71.0.0/30 is too small for an overlay network"},
		{"no host", "10.71.0.0/31", "", "subnet 10.71.0.0/31 is too small for an overlay network"},
		{"one address", "10.71.0.1/32", "", "too small"},
		{"huge", "0.0.0.0/0", "", "between /8 and /29"},
		{"loopback", "127.8.0.0/16", "", "127.8.0.0/16 is no range"},
		{"multicast", "224.1.0.0/16", "", "224.1.0.0/16 is no range"},
		{"link-local", "169.254.8.0/24", "", "169.254.8.0/24 is no range"},
	} {
		n := overlay(c.id, c.ask)
		if c.id == "ingress" {
			n = ingressNet()
		}
		err := settleOverlay(n, all, nodes, pool)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.id, err)
			}
			continue
		}
		subnet, vni, ok := executor.OverlayOf(n)
		if err != nil || !ok || subnet.String() != c.want || vni != uint32(firstVNI+len(all)-1) {
			t.Errorf("%s: %v %d %t %v, want %s", c.id, subnet, vni, ok, err, c.want)
		}
		before := n.Copy()
		if err := settleOverlay(n, all, nodes, netip.MustParsePrefix("10.1.0.0/16")); err != nil || !reflect.DeepEqual(n, before) {
			t.Errorf("%s: settled twice: %v", c.id, err)
		}
		all = append(all, n)
	}
	bridge := overlay("b", "")
	bridge.Spec.DriverConfig.Name = "bridge"
	if err := settleOverlay(bridge, all, nodes, pool); err != nil || bridge.IPAM != nil {
		t.Errorf("a bridge was given %v, %v", bridge.IPAM, err)
	}
	small := netip.MustParsePrefix("10.7.0.0/23")
	for i, want := range []error{nil, nil, errPoolEmpty} {
		n := overlay(fmt.Sprint("s", i), "")
		if err := settleOverlay(n, all, nodes, small); err != want {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
		all = append(all, n)
	}
}

// Every task and node has an address of its own in each overlay network it is
// in, the freshly given one is never one that was just given back while there
// are others, and a second plan has nothing to do.
func TestPlanOverlaysProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := allocView{pool: netip.MustParsePrefix("10.89.0.0/16"), networks: []*api.Network{ingressNet(), overlay("a", ""), overlay("b", "192.168.7.0/27")}}
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			v.nodes = append(v.nodes, &api.Node{ID: fmt.Sprint("n", i)})
		}
		serial := uint64(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				serial++
				var nets []*api.NetworkAttachmentConfig
				for _, id := range rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}}).Draw(t, "networks") {
					nets = append(nets, &api.NetworkAttachmentConfig{Target: id})
				}
				v.tasks = append(v.tasks, &api.Task{
					ID: fmt.Sprint("t", serial), Meta: api.Meta{Version: api.Version{Index: serial}},
					Spec: api.TaskSpec{Networks: nets}, Status: api.TaskStatus{State: api.TaskStateNew},
				})
			case 2:
				if len(v.tasks) > 0 {
					v.tasks[rapid.IntRange(0, len(v.tasks)-1).Draw(t, "dead")].Status.State = api.TaskStateFailed
				}
			case 3:
				if len(v.tasks) > 0 {
					i := rapid.IntRange(0, len(v.tasks)-1).Draw(t, "gone")
					v.tasks = append(v.tasks[:i:i], v.tasks[i+1:]...)
				}
			}
			apply(&v, planAllocation(v, time.Unix(1, 0)))
			if again := planAllocation(v, time.Unix(2, 0)); len(again.networks)+len(again.nodes) > 0 || len(again.tasks) > 0 {
				t.Fatalf("a second plan: networks %v, nodes %v, tasks %v", again.networks, again.nodes, again.tasks)
			}
			owner := map[string]string{}
			claim := func(who string, at *api.NetworkAttachment) {
				p, ok := executor.AttachedAt(at)
				subnet, _, _ := executor.OverlayOf(find(v.networks, at.Network.ID))
				if !ok || !subnet.Contains(p.Addr()) || p.Bits() != subnet.Bits() || p.Addr() == subnet.Addr() || p.Addr() == subnet.Addr().Next() || !subnet.Contains(p.Addr().Next()) {
					t.Fatalf("%s has %v in %v", who, at.Addresses, subnet)
				}
				if other := owner[p.String()]; other != "" {
					t.Fatalf("%s and %s both have %v", who, other, p)
				}
				owner[p.String()] = who
			}
			for _, n := range v.nodes {
				if len(n.Attachments) != 3 {
					t.Fatalf("node %s is in %d networks", n.ID, len(n.Attachments))
				}
				for _, at := range n.Attachments {
					claim(n.ID, at)
				}
			}
			for _, x := range v.tasks {
				if x.Status.State == api.TaskStatePending {
					for _, at := range x.Networks {
						claim(x.ID, at)
					}
				}
			}
		}
	})
}

func find(networks []*api.Network, id string) *api.Network {
	for _, n := range networks {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// apply is what the store would hold.
func apply(v *allocView, p allocPlan) {
	for _, n := range p.networks {
		for i := range v.networks {
			if v.networks[i].ID == n.ID {
				v.networks[i] = n
			}
		}
	}
	for _, n := range p.nodes {
		for i := range v.nodes {
			if v.nodes[i].ID == n.ID {
				v.nodes[i] = n
			}
		}
	}
	for _, n := range p.tasks {
		for i := range v.tasks {
			if v.tasks[i].ID == n.ID {
				v.tasks[i] = n
			}
		}
	}
}

// A full network says so on the task, which goes on when there is room.
func TestOverlayFull(t *testing.T) {
	v := allocView{networks: []*api.Network{overlay("small", "10.1.1.0/29")}, nodes: []*api.Node{{ID: "n"}}}
	for i := range 5 { // .2 to .6, of which the node has one
		v.tasks = append(v.tasks, &api.Task{ID: fmt.Sprint(i), Meta: api.Meta{Version: api.Version{Index: uint64(i)}}, Status: api.TaskStatus{State: api.TaskStateNew},
			Spec: api.TaskSpec{Networks: []*api.NetworkAttachmentConfig{{Target: "small"}}}})
	}
	apply(&v, planAllocation(v, time.Unix(1, 0)))
	var waiting []*api.Task
	for _, x := range v.tasks {
		if x.Status.State == api.TaskStateNew {
			waiting = append(waiting, x)
		}
	}
	if len(waiting) != 1 || !strings.Contains(waiting[0].Status.Err, "no address is left in network small") {
		t.Fatalf("%v", waiting)
	}
	v.tasks[0].Status.State = api.TaskStateFailed // its address is taken only because there is no other
	apply(&v, planAllocation(v, time.Unix(1, 0)))
	for _, x := range v.tasks[1:] {
		if x.Status.State != api.TaskStatePending {
			t.Errorf("%+v", x.Status)
		}
	}
}
