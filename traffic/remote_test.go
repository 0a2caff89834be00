// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
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

// After a start the pools are not written before it is known who serves on
// other nodes; but for long they do not wait for it, and not at all once one of
// this node's own is to leave.
func TestPoolsWaitForOtherNodes(t *testing.T) {
	own, other := remoteMember("a", "10.89.1.2", true), remoteMember("b", "10.89.1.3", true)
	for name, c := range map[string]struct {
		then   func(t *testing.T, table *Table)
		after  time.Duration
		within time.Duration
		want   string
	}{
		"told":    {func(_ *testing.T, table *Table) { table.SetRemote([]Member{other}) }, time.Second, 0, "10.89.1.2 10.89.1.3"},
		"nobody":  {func(_ *testing.T, table *Table) { table.SetRemote(nil) }, time.Second, 0, "10.89.1.2"},
		"untold":  {func(*testing.T, *Table) {}, 0, 5 * time.Second, "10.89.1.2"},
		"leaving": {func(t *testing.T, table *Table) { table.Withdraw(t.Context(), "a") }, time.Second, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFilter{}
				table := New(Config{Redirector: f, SettleRemote: 5 * time.Second})
				if err := table.Put(t.Context(), own); err != nil {
					t.Fatal(err)
				}
				table.Settled()
				go table.Run(t.Context())
				time.Sleep(c.after)
				synctest.Wait()
				if n, _ := f.count(); n != 0 {
					t.Fatalf("written %d times before it is known", n)
				}
				c.then(t, table)
				time.Sleep(c.within)
				synctest.Wait()
				if n, _ := f.count(); n != 1 || f.members() != c.want {
					t.Errorf("written %d times, members %q, want %q", n, f.members(), c.want)
				}
			})
		})
	}
}
