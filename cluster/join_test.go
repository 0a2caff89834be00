// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/internal/slowday"
)

// token is the cluster's join token for a role.
func token(t testing.TB, n *running, role api.NodeRole) string {
	t.Helper()
	r, err := n.Control().ListClusters(t.Context(), &api.ListClustersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if role == api.NodeRoleManager {
		return r.Clusters[0].RootCA.JoinTokens.Manager
	}
	return r.Clusters[0].RootCA.JoinTokens.Worker
}

func join(t testing.TB, n, to *running, role api.NodeRole) {
	t.Helper()
	err := led(func() error {
		return n.Join(t.Context(), Joining{Managers: []string{to.AdvertiseAddr()}, Token: token(t, to, role)})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// trio is a leader and two more managers.
func trio(t *testing.T) []*running {
	t.Helper()
	var nodes []*running
	for i := range 3 {
		n := startNode(t, stateDir(t), newFake(), func(c *Config) { c.Hostname = fmt.Sprint("host", i) })
		if i > 0 {
			join(t, n, nodes[0], api.NodeRoleManager)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// leader waits until exactly one of the nodes leads and the others know it.
func leader(t testing.TB, nodes ...*running) *running {
	t.Helper()
	var found *running
	eventually(t, 10*time.Second, "one leads", func() string {
		found = nil
		for _, n := range nodes {
			if n.Leader() {
				if found != nil {
					return "two lead"
				}
				found = n
			}
		}
		if found == nil {
			return "none leads"
		}
		for _, n := range nodes {
			if id, _ := n.m().raft.Leader(); id != found.NodeID() {
				return "not all know it"
			}
		}
		return ""
	})
	return found
}

func nodeOf(n *running, id string) (node *api.Node) {
	n.Store().View(func(tx store.ReadTx) { node = store.GetNode(tx, id) })
	return node
}

// A worker and a manager join with their tokens; tasks run on all of them.
func TestJoin(t *testing.T) {
	t.Parallel()
	a := startNode(t, stateDir(t), newFake(), nil)
	fb, fc := newFake(), newFake()
	b, c := startNode(t, stateDir(t), fb, nil), startNode(t, stateDir(t), fc, nil)
	own := b.ClusterID()
	join(t, b, a, api.NodeRoleWorker)
	join(t, c, a, api.NodeRoleManager)
	if b.ClusterID() != a.ClusterID() || b.ClusterID() == own || c.ClusterID() != a.ClusterID() {
		t.Error("not one cluster")
	}
	if b.Manager() || !c.Manager() || c.Leader() || !a.Leader() {
		t.Errorf("b manager %t, c manager %t leader %t, a leader %t", b.Manager(), c.Manager(), c.Leader(), a.Leader())
	}
	for _, n := range []*running{a, b, c} {
		eventually(t, 10*time.Second, "node up", func() string {
			node := nodeOf(a, n.NodeID())
			if node == nil || node.Status.State != api.NodeStatus_READY {
				return fmt.Sprint(node)
			}
			return ""
		})
	}
	everywhere := replicas("web", 0)
	everywhere.Mode = &api.ServiceSpec_Global{Global: &api.GlobalService{}}
	create(t, a, everywhere)
	eventually(t, 20*time.Second, "a task on each", func() string {
		if fb.called("start") == 0 || fc.called("start") == 0 {
			return fmt.Sprintf("started on b %d, on c %d", fb.called("start"), fc.called("start"))
		}
		return ""
	})
	if err := b.Join(t.Context(), Joining{Managers: []string{a.AdvertiseAddr()}, Token: "x"}); !errors.Is(err, ErrMember) {
		t.Errorf("joined twice: %v", err)
	}
	d := startNode(t, stateDir(t), newFake(), nil)
	err := d.Join(t.Context(), Joining{Managers: []string{b.AdvertiseAddr()}, Token: token(t, a, api.NodeRoleWorker)})
	if err == nil || !strings.Contains(err.Error(), "is a worker: give the address of a manager") {
		t.Errorf("joined at a worker: %v", err)
	}
}

// The leader's end: a new one in less than 5 s, nothing lost, tasks stay.
func TestLeaderEnds(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	s := create(t, l, replicas("web", 6))
	awaitLive(t, l, s.ID, 6)
	begun := time.Now()
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	var rest []*running
	for _, n := range nodes {
		if n != l {
			rest = append(rest, n)
		}
	}
	next := leader(t, rest...)
	t.Logf("a new leader after %v", time.Since(begun))
	for _, n := range rest {
		awaitLive(t, n, s.ID, 6)
	}
	create(t, next, replicas("another", 1))
	var other *running
	for _, n := range rest {
		if n != next {
			other = n
		}
	}
	create(t, other, replicas("third", 1))
}

// A manager that loses its majority refuses writes and still shows what it has.
func TestMinorityReads(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	s := create(t, l, replicas("web", 1))
	var last *running
	for _, n := range nodes {
		if n != l && last == nil {
			last = n
			eventually(t, 10*time.Second, "the service there", func() string {
				if service(n, s.ID) == nil {
					return "not yet"
				}
				return ""
			})
		} else if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, "the loss noticed", func() string {
		if id, _ := last.m().raft.Leader(); id != "" {
			return "it still follows " + id
		}
		return ""
	})
	if _, err := last.Control().GetService(t.Context(), &api.GetServiceRequest{ServiceID: s.ID}); err != nil {
		t.Errorf("read without a majority: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slowday.Of(10*time.Second))
	defer cancel()
	_, err := last.Control().CreateService(ctx, &api.CreateServiceRequest{Spec: replicas("no", 1)})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("written without a majority: %v", err)
	}
}

// A manager that was started again shows nothing before it shows all that it
// knew before its end.
func TestReturnedManagerReads(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	const services = 60
	for i := range services {
		create(t, l, replicas(fmt.Sprint("service", i), 0))
	}
	for _, n := range nodes {
		if n == l {
			continue
		}
		eventually(t, 10*time.Second, "all there", func() string {
			if now := countServices(n); now != services {
				return fmt.Sprint(now)
			}
			return ""
		})
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		back := startNode(t, n.cfg.StateDir, newFake(), func(c *Config) { c.ListenAddr = n.AdvertiseAddr() })
		ctx, cancel := context.WithTimeout(t.Context(), slowday.Of(10*time.Second))
		err := back.Loaded(ctx)
		cancel()
		if now := countServices(back); err != nil || now != services {
			t.Errorf("loaded with %d of %d services (%v)", now, services, err)
		}
	}
}

func countServices(n *running) int {
	var all []*api.Service
	n.Store().View(func(tx store.ReadTx) { all, _ = store.FindServices(tx, store.All) })
	return len(all)
}

func setRole(t testing.TB, by *running, id string, role api.NodeRole) error {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got, err := by.Control().GetNode(t.Context(), &api.GetNodeRequest{NodeID: id})
		if leaderless(err) && !slowday.Over(begun, 10*time.Second) {
			continue
		}
		if err != nil {
			return err
		}
		spec := got.Node.Spec.Copy()
		spec.DesiredRole = role
		_, err = by.Control().UpdateNode(t.Context(), &api.UpdateNodeRequest{NodeID: id, Spec: spec, NodeVersion: &got.Node.Meta.Version})
		sequence := status.Code(err) == codes.InvalidArgument && strings.Contains(err.Error(), "out of sequence")
		if !sequence && (!leaderless(err) || slowday.Over(begun, 10*time.Second)) {
			return err
		}
	}
}

// A worker is promoted, and a manager, the leader too, demoted; tasks stay.
func TestPromoteAndDemote(t *testing.T) {
	t.Parallel()
	a := startNode(t, stateDir(t), newFake(), nil)
	b, c := startNode(t, stateDir(t), newFake(), nil), startNode(t, stateDir(t), newFake(), nil)
	join(t, b, a, api.NodeRoleWorker)
	join(t, c, a, api.NodeRoleWorker)
	s := create(t, a, replicas("web", 6))
	before := awaitLive(t, a, s.ID, 6)
	if err := setRole(t, a, a.NodeID(), api.NodeRoleWorker); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the last manager demoted: %v", err)
	}
	for _, n := range []*running{b, c} {
		if err := setRole(t, a, n.NodeID(), api.NodeRoleManager); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, "a manager", func() string {
			if !n.Manager() || n.m().ready(t.Context()) != nil || !n.m().enlisted() {
				return "not yet"
			}
			return ""
		})
	}
	if l := leader(t, a, b, c); l != a {
		t.Error("the leadership moved")
	}
	eventually(t, 20*time.Second, "the old leader demoted", func() string {
		err := setRole(t, b, a.NodeID(), api.NodeRoleWorker)
		switch status.Code(err) {
		case codes.OK:
			return ""
		case codes.FailedPrecondition: // one of the two left is slow to answer
			return err.Error()
		}
		t.Fatal(err)
		return ""
	})
	eventually(t, 20*time.Second, "the old leader a worker", func() string {
		if a.Manager() {
			return "a manager still"
		}
		return ""
	})
	l := leader(t, b, c)
	if members := l.m().raft.Members(); len(members) != 2 {
		t.Errorf("members %v", members)
	}
	// Tasks went on all the time, and the demoted node runs new ones.
	eventually(t, 20*time.Second, "all nodes ready", func() string {
		for _, n := range []*running{a, b, c} {
			if node := nodeOf(l, n.NodeID()); node.Status.State != api.NodeStatus_READY {
				return node.Status.String()
			}
		}
		return ""
	})
	after := map[string]bool{}
	for _, x := range live(l, s.ID) {
		after[x.ID] = true
	}
	for _, x := range before {
		if !after[x.ID] {
			t.Errorf("task %s was replaced", x.ID)
		}
	}
	if _, err := os.Stat(a.cfg.StateDir + "/raft"); !os.IsNotExist(err) {
		t.Errorf("a worker keeps a store: %v", err)
	}
}

// A wrong token, an address where nobody is, and a node that holds services:
// refused, and nothing has changed.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, stateDir(t), newFake(), nil), startNode(t, stateDir(t), newFake(), nil)
	good := token(t, a, api.NodeRoleWorker)
	own := b.ClusterID()
	at := []string{a.AdvertiseAddr()}
	for name, c := range map[string]struct {
		Joining
		want string
	}{
		"no token":       {Joining{Managers: at}, "invalid join token"},
		"malformed":      {Joining{Managers: at, Token: "SWMTKN-1-bad"}, "invalid join token"},
		"other cluster":  {Joining{Managers: at, Token: token(t, b, api.NodeRoleWorker)}, "the token is of another cluster"},
		"wrong secret":   {Joining{Managers: at, Token: good[:len(good)-3] + "zzz"}, "valid join token is necessary"},
		"no manager":     {Joining{Token: good}, "at least one remote address"},
		"bad address":    {Joining{Managers: []string{"a b"}, Token: good}, "a b"},
		"not reachable":  {Joining{Managers: at, Token: token(t, a, api.NodeRoleManager), AdvertiseAddr: "127.0.0.1:1"}, "--advertise-addr"},
		"no address":     {Joining{Managers: at, Token: good, AdvertiseAddr: "999.1.1.1"}, "no address to advertise"},
		"no port":        {Joining{Managers: at, Token: good, AdvertiseAddr: "127.0.0.1:x"}, "no port"},
		"itself":         {Joining{Managers: []string{b.AdvertiseAddr()}, Token: token(t, b, api.NodeRoleManager)}, "cannot join itself"},
		"no such server": {Joining{Managers: []string{"127.0.0.1:1"}, Token: good}, "connection refused"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), slowday.Of(10*time.Second))
		err := b.Join(ctx, c.Joining)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Fatalf("%s: %v, want %q", name, err, c.want)
		}
		if b.ClusterID() != own || !b.Leader() {
			t.Fatalf("%s: its own cluster is gone", name)
		}
		if _, err := os.Stat(dirsOf(b.cfg.StateDir).next); !os.IsNotExist(err) {
			t.Errorf("%s: left certificates behind", name)
		}
	}
	create(t, b, replicas("mine", 1))
	if err := b.Join(t.Context(), Joining{Managers: []string{a.AdvertiseAddr()}, Token: good}); !errors.Is(err, ErrMember) || !strings.Contains(err.Error(), "has 1 service(s). Remove") {
		t.Errorf("with services: %v", err)
	}
}

// A worker leaves and is a fresh cluster of one; a manager only when forced,
// and the others go on without it.
func TestLeave(t *testing.T) {
	t.Parallel()
	a := startNode(t, stateDir(t), newFake(), nil)
	fb := newFake()
	b, c, d := startNode(t, stateDir(t), fb, nil), startNode(t, stateDir(t), newFake(), nil), startNode(t, stateDir(t), newFake(), nil)
	join(t, b, a, api.NodeRoleWorker)
	join(t, c, a, api.NodeRoleManager)
	join(t, d, a, api.NodeRoleManager)
	s := create(t, a, replicas("web", 8))
	awaitLive(t, a, s.ID, 8)
	id := b.NodeID()
	if err := b.Leave(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "alone", func() string {
		if !b.Leader() || b.ClusterID() == a.ClusterID() || b.NodeID() == id {
			return "not yet"
		}
		return ""
	})
	eventually(t, 10*time.Second, "the tasks of before stopped", func() string {
		if fb.called("start") > 0 && fb.called("remove") < fb.called("start") {
			return fmt.Sprint(fb.calls)
		}
		return ""
	})
	if err := a.Leave(t.Context(), false); !errors.Is(err, ErrLeaveManager) {
		t.Errorf("a manager leaves unforced: %v", err)
	}
	if err := a.Leave(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	l := leader(t, c, d)
	if members := l.m().raft.Members(); len(members) != 2 {
		t.Errorf("members %v", members)
	}
	create(t, l, replicas("more", 1))
	// And it may come back.
	eventually(t, 5*time.Second, "alone", func() string {
		if !a.Leader() {
			return "not yet"
		}
		return ""
	})
	join(t, a, c, api.NodeRoleManager)
	if l := leader(t, a, c, d); len(l.m().raft.Members()) != 3 {
		t.Errorf("members %v", l.m().raft.Members())
	}
}

// Members of a cluster come back after a restart, under a new address too,
// and with their log lost.
func TestManagersReturn(t *testing.T) {
	t.Parallel()
	nodes := trio(t)
	l := leader(t, nodes...)
	s := create(t, l, replicas("web", 3))
	awaitLive(t, l, s.ID, 3)
	for i, lose := range []bool{false, true} {
		var away *running
		var at int
		for k, n := range nodes {
			if n != l {
				away, at = n, k
			}
		}
		if err := away.stop(); err != nil {
			t.Fatal(err)
		}
		create(t, l, replicas(fmt.Sprint("meanwhile", i), 1))
		if lose {
			if err := os.RemoveAll(away.cfg.StateDir + "/raft"); err != nil {
				t.Fatal(err)
			}
		}
		back := startNode(t, away.cfg.StateDir, newFake(), nil) // on another port
		nodes[at] = back
		if back.NodeID() != away.NodeID() {
			t.Error("another node came back")
		}
		eventually(t, 20*time.Second, "it has caught up", func() string {
			if service(back, s.ID) == nil || !back.m().enlisted() {
				return "not yet"
			}
			return ""
		})
		create(t, back, replicas(fmt.Sprint("back", i), 1))
	}
	l = leader(t, nodes...)
	if members := l.m().raft.Members(); len(members) != 3 {
		t.Errorf("members %v", members)
	}
}

// A live node is not removed, neither in the moments after a leader began,
// which has not heard of it yet.
func TestRemoveLiveNode(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, stateDir(t), newFake(), nil), startNode(t, stateDir(t), newFake(), nil)
	join(t, b, a, api.NodeRoleWorker)
	starts := a.m().starts.Load()
	for begun := time.Now(); time.Since(begun) < 10*time.Second && a.m().starts.Load() == starts; time.Sleep(time.Millisecond) {
		if _, err := a.Control().RemoveNode(t.Context(), &api.RemoveNodeRequest{NodeID: b.NodeID()}); status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("removed: %v", err)
		}
	}
	if a.m().starts.Load() == starts {
		t.Error("the leader's parts did not begin anew: this test sees nothing")
	}
	if _, err := a.Control().RemoveNode(t.Context(), &api.RemoveNodeRequest{NodeID: b.NodeID(), Force: true}); err != nil {
		t.Error(err)
	}
}
