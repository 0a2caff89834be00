// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A follower answers the whole API: it hands writes on, and what it wrote it
// reads at once.
func TestFollowerAnswers(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	leader(t, nodes...)
	for i := range 20 {
		n := nodes[i%3]
		s := create(t, n, replicas(fmt.Sprint("web", i), 0))
		for { // until the allocator has not written in between
			got, err := n.Control().GetService(t.Context(), &api.GetServiceRequest{ServiceID: s.ID})
			if err != nil {
				t.Fatalf("read what was written, on node %d: %v", i%3, err)
			}
			spec := got.Service.Spec.Copy()
			spec.Annotations.Labels = map[string]string{"i": fmt.Sprint(i)}
			_, err = n.Control().UpdateService(t.Context(), &api.UpdateServiceRequest{ServiceID: s.ID, Spec: spec, ServiceVersion: &got.Service.Meta.Version})
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), "out of sequence") && !leaderless(err) {
				t.Fatal(err)
			}
		}
		if service(n, s.ID).Spec.Annotations.Labels["i"] != fmt.Sprint(i) {
			t.Fatalf("node %d does not see its own update", i%3)
		}
		network := &api.Network{Spec: api.NetworkSpec{Annotations: api.Annotations{Name: fmt.Sprint("net", i)}}}
		if err := led(func() error { return n.CreateNetwork(t.Context(), network) }); err != nil {
			t.Fatal(err)
		}
		var found *api.Network
		n.Store().View(func(tx store.ReadTx) { found = store.GetNetwork(tx, network.ID) })
		if found == nil {
			t.Fatalf("node %d does not see its own network", i%3)
		}
		if err := led(func() error { return n.CreateNetwork(t.Context(), &api.Network{Spec: network.Spec}) }); status.Code(err) != codes.AlreadyExists {
			t.Errorf("same name again: %v", err)
		}
		if _, err := n.Control().RemoveService(t.Context(), &api.RemoveServiceRequest{ServiceID: s.ID}); err != nil {
			t.Fatal(err)
		}
		if service(n, s.ID) != nil {
			t.Fatalf("node %d still sees what it removed", i%3)
		}
	}
}

// A refusal says how far the leader's store was, so that what is told to be gone
// is not read afterwards from a manager that is behind.
func TestRefusalSaysHowFar(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	n := nodes[0]
	if n == l {
		n = nodes[1]
	}
	s := create(t, l, replicas("web", 0))
	if _, err := l.Control().RemoveService(t.Context(), &api.RemoveServiceRequest{ServiceID: s.ID}); err != nil {
		t.Fatal(err)
	}
	before := l.m().raft.GetVersion().Index
	conn, err := n.m().members.LeaderConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var trailer metadata.MD
	_, err = api.NewControlClient(conn).RemoveService(t.Context(), &api.RemoveServiceRequest{ServiceID: s.ID}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.NotFound {
		t.Fatalf("removed twice: %v", err)
	}
	if far, err := strconv.ParseUint(first(trailer.Get(appliedKey)), 10, 64); err != nil || far < before {
		t.Errorf("the answer says %v, the store was at %d", trailer, before)
	}
	if service(n, s.ID) != nil {
		t.Error("it is read still")
	}
}
