// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"net/netip"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A container that is no task has the same address each time, one of its own,
// and its network stays while it is there.
func TestAttachContainer(t *testing.T) {
	s := store.NewMemoryStore(nil)
	defer s.Close()
	back := overlay("back", "")
	back.Spec.Attachable = true
	v := allocView{
		networks: []*api.Network{back, overlay("closed", ""), ingressNet()},
		nodes:    []*api.Node{{ID: "n1"}, {ID: "n2"}}, pool: DefaultOverlayPool,
	}
	apply(&v, planAllocation(v, time.Unix(1000, 0)))
	if err := s.Update(func(tx store.Tx) error {
		for _, n := range v.networks {
			if err := store.CreateNetwork(tx, n); err != nil {
				return err
			}
		}
		for _, n := range v.nodes {
			if err := store.CreateNode(tx, n); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		network string
		want    codes.Code
	}{{"closed", codes.PermissionDenied}, {"ingress", codes.PermissionDenied}, {"none", codes.NotFound}} {
		if _, err := attachContainer(s, "n1", attachment{c.network, "c1"}); status.Code(err) != c.want {
			t.Errorf("%s: %v", c.network, err)
		}
	}
	addrs := map[netip.Addr]bool{}
	for _, at := range []struct{ node, container string }{{"n1", "c1"}, {"n2", "c2"}, {"n1", "c3"}} {
		for range 2 {
			addr, err := attachContainer(s, at.node, attachment{"back", at.container})
			if err != nil {
				t.Fatal(err)
			}
			addrs[addr] = true
		}
	}
	var nodes []*api.Node
	var user string
	s.View(func(tx store.ReadTx) {
		nodes, _ = store.FindNodes(tx, store.All)
		user, _ = containersIn(tx, "back")
	})
	taken := newAddresses(back, netip.MustParsePrefix("10.89.0.0/24"), nodes, nil)
	if len(addrs) != 3 || len(taken.used) != 5 || user == "" {
		t.Errorf("%v of %v in use, network in use by %q", addrs, taken.used, user)
	}
	// The allocator leaves them alone.
	v.nodes = nodes
	if plan := planAllocation(v, time.Unix(2000, 0)); len(plan.nodes) != 0 {
		t.Errorf("%+v", plan.nodes)
	}
	m := &member{store: s}
	for range 2 {
		for _, at := range []struct{ node, container string }{{"n1", "c1"}, {"n2", "c2"}, {"n1", "c3"}, {"n1", "c2"}} {
			if _, err := m.detachContainer(t.Context(), at.node, attachment{"back", at.container}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.View(func(tx store.ReadTx) { user, _ = containersIn(tx, "back") })
	if user != "" {
		t.Errorf("still in use by %s", user)
	}
}
