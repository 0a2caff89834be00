// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"net/netip"
	"testing"
)

func remoteMember(id, addr string, serving bool) Member {
	return Member{
		ContainerID: id, Name: "web.2." + id, TaskID: id, ServiceID: "s1", ServiceName: "web", Slot: 2, Serving: serving, Process: true,
		Endpoints: []Endpoint{{NetworkID: "over", Addr: netip.MustParseAddr(addr)}},
		Ports:     []Port{{Proto: "tcp", Published: 8080, Target: 80}},
	}
}

// Members of other nodes are in pools and names as this node's own are, and
// gone with the next list that lacks them.
func TestRemoteMembers(t *testing.T) {
	table := New(Config{})
	own := remoteMember("a", "10.89.1.2", true)
	own.Slot = 1
	if err := table.Put(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	table.SetRemote([]Member{remoteMember("b", "10.89.1.3", true), remoteMember("c", "10.89.1.4", false), remoteMember("a", "10.89.1.9", true)})
	if pools := table.Pools(); len(pools) != 1 || len(pools[0].Members) != 2 || pools[0].Members[1].String() != "10.89.1.3:80" {
		t.Errorf("pools %v", pools)
	}
	if addrs, known := table.Lookup(netip.MustParseAddr("10.89.1.2"), "web"); !known || len(addrs) != 2 {
		t.Errorf("names %v %t", addrs, known)
	}
	if addrs, _ := table.Lookup(netip.MustParseAddr("10.89.1.2"), "web.2"); len(addrs) != 2 { // both of slot 2 run
		t.Errorf("the slot's name: %v", addrs)
	}
	if own, _ := table.Own(); len(own) != 1 {
		t.Errorf("own %v", own)
	}
	table.SetRemote(nil)
	if pools := table.Pools(); len(pools) != 1 || len(pools[0].Members) != 1 {
		t.Errorf("pools %v", pools)
	}
}

// What a remote member leaves behind in the packet filter is cut once it is
// gone, as for this node's own.
func TestRemoteFlowsAreCut(t *testing.T) {
	table := New(Config{})
	table.SetRemote([]Member{remoteMember("b", "10.89.1.3", true)})
	table.SetRemote([]Member{remoteMember("c", "10.89.1.4", true)})
	if len(table.ended) != 1 || table.ended[0].Backend.String() != "10.89.1.3:80" || !table.ended[0].All {
		t.Errorf("ended %v", table.ended)
	}
}

// A list that says nothing new is no work for the packet filter.
func TestSameRemote(t *testing.T) {
	table := New(Config{})
	table.SetRemote([]Member{remoteMember("b", "10.89.1.3", true)})
	gen := table.gen
	table.SetRemote([]Member{remoteMember("b", "10.89.1.3", true)})
	if table.gen != gen {
		t.Error("written again")
	}
	_, moved := table.Own()
	table.SetRemote(nil)
	select {
	case <-moved:
		t.Error("what other nodes do is told to them as this node's change")
	default:
	}
}
