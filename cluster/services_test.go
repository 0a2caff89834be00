// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func update(n *running, s *api.Service, spec api.ServiceSpec) (*api.Service, error) {
	r, err := n.Control().UpdateService(context.Background(), &api.UpdateServiceRequest{
		ServiceID: s.ID, ServiceVersion: &s.Meta.Version, Spec: &spec,
	})
	if err != nil {
		return nil, err
	}
	return r.Service, nil
}

func TestUpdateScaleRemove(t *testing.T) {
	n := startNode(t, stateDir(t), newFake(), nil)
	first := replicas("web", 1)
	first.Update = &api.UpdateConfig{Parallelism: 2, Monitor: gogotypes.DurationProto(100 * time.Millisecond)}
	s := create(t, n, first)
	awaitLive(t, n, s.ID, 1)
	s = service(n, s.ID)
	spec := *s.Spec.Copy()
	spec.Mode = &api.ServiceSpec_Replicated{Replicated: &api.ReplicatedService{Replicas: 4}}
	if _, err := update(n, s, spec); err != nil {
		t.Fatal(err)
	}
	awaitLive(t, n, s.ID, 4)
	if _, err := update(n, s, spec); err == nil || !strings.Contains(err.Error(), "update out of sequence") {
		t.Errorf("an update of an old version: %v", err)
	}
	old := awaitLive(t, n, s.ID, 4)
	s = service(n, s.ID)
	spec = *s.Spec.Copy()
	spec.Task.GetContainer().Image = "other"
	if _, err := update(n, s, spec); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "all tasks are new ones", func() string {
		now := live(n, s.ID)
		for _, x := range now {
			if x.Spec.GetContainer().Image != "other" {
				return "an old one runs"
			}
		}
		if len(now) != 4 {
			return fmt.Sprint(len(now))
		}
		return ""
	})
	for _, x := range old {
		var gone *api.Task
		n.Store().View(func(tx store.ReadTx) { gone = store.GetTask(tx, x.ID) })
		if gone != nil && gone.Status.State <= api.TaskStateRunning {
			t.Errorf("old task %s is %s", x.ID, gone.Status.State)
		}
	}
	if _, err := n.Control().RemoveService(t.Context(), &api.RemoveServiceRequest{ServiceID: s.ID}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "all tasks are gone", func() string {
		if left := len(tasks(n, s.ID)); left > 0 {
			return fmt.Sprint(left, " left")
		}
		return ""
	})
}

// TestPortConflictsInParallel: of services that are created or updated at the
// same time with the same published port one gets it, the others are refused.
func TestPortConflictsInParallel(t *testing.T) {
	n := startNode(t, stateDir(t), newFake(), nil)
	const parallel = 10
	conflicts := func(write func(i int) error) {
		t.Helper()
		errs := make(chan error, parallel)
		begin := make(chan struct{})
		for i := range parallel {
			go func() { <-begin; errs <- write(i) }()
		}
		close(begin)
		taken := 0
		for range parallel {
			switch err := <-errs; {
			case err == nil:
				taken++
			case status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "is already in use by service"):
				t.Errorf("refused with %v", err)
			}
		}
		if taken != 1 {
			t.Errorf("%d of %d got the port", taken, parallel)
		}
	}
	conflicts(func(i int) error {
		_, err := n.Control().CreateService(t.Context(), &api.CreateServiceRequest{Spec: replicas(fmt.Sprint("new", i), 0, ingress(7000, 80))})
		return err
	})
	var old []*api.Service
	for i := range parallel {
		old = append(old, create(t, n, replicas(fmt.Sprint("old", i), 0)))
	}
	conflicts(func(i int) error {
		// The allocator may write the service meanwhile.
		for {
			_, err := update(n, service(n, old[i].ID), *replicas(old[i].Spec.Annotations.Name, 0, ingress(7001, 80)))
			if err == nil || !strings.Contains(err.Error(), "out of sequence") {
				return err
			}
		}
	})
}

func TestPublishedPorts(t *testing.T) {
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	a := create(t, n, replicas("a", 1, ingress(8080, 80), ingress(0, 81)))
	x := awaitLive(t, n, a.ID, 1)[0]
	if len(x.Endpoint.Ports) != 2 || x.Endpoint.Ports[0].PublishedPort != 8080 || x.Endpoint.Ports[1].PublishedPort != 30000 {
		t.Errorf("task's ports %v", x.Endpoint.Ports)
	}
	if got := published(service(n, a.ID)); !reflect.DeepEqual(got, []uint32{8080, 30000}) {
		t.Errorf("service's ports %v", got)
	}
	_, err := n.Control().CreateService(t.Context(), &api.CreateServiceRequest{Spec: replicas("b", 1, ingress(8080, 80))})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "port '8080' is already in use by service 'a'") {
		t.Errorf("the same port: %v", err)
	}
	_, err = n.Control().CreateService(t.Context(), &api.CreateServiceRequest{Spec: replicas("b", 1, ingress(30000, 80))})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("another's automatic port: %v", err)
	}
	b := create(t, n, replicas("b", 1, ingress(0, 80)))
	awaitLive(t, n, b.ID, 1)
	// Two at a time: the API's own check sees neither.
	n.Store().Update(func(tx store.Tx) error {
		for _, id := range []string{"x1", "x2"} {
			s := &api.Service{ID: id, Spec: *replicas(id, 1, ingress(9999, 80)), SpecVersion: &api.Version{}}
			if err := store.CreateService(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	awaitLive(t, n, "x1", 1)
	eventually(t, 5*time.Second, "the other's task says why it waits", func() string {
		for _, x := range tasks(n, "x2") {
			if x.Status.State == api.TaskStateNew && strings.Contains(x.Status.Err, "port 9999/tcp is already published by service x1") {
				return ""
			}
		}
		return fmt.Sprint(tasks(n, "x2"))
	})
	if _, err := n.Control().RemoveService(t.Context(), &api.RemoveServiceRequest{ServiceID: "x1"}); err != nil {
		t.Fatal(err)
	}
	awaitLive(t, n, "x2", 1)

	s := service(n, a.ID)
	spec := *s.Spec.Copy()
	spec.Endpoint.Ports = []*api.PortConfig{ingress(0, 81)}
	if _, err := update(n, s, spec); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the automatic port is kept, the other freed", func() string {
		if got := published(service(n, a.ID)); !reflect.DeepEqual(got, []uint32{30000}) {
			return fmt.Sprint(got)
		}
		return ""
	})
	n.stop()
	n = startNode(t, dir, newFake(), nil)
	if got := fmt.Sprint(published(service(n, a.ID)), published(service(n, b.ID))); got != "[30000] [30001]" {
		t.Errorf("after a restart: %v", got)
	}
}

func TestGlobalAndDrain(t *testing.T) {
	f := newFake()
	n := startNode(t, stateDir(t), f, nil)
	spec := replicas("everywhere", 0)
	spec.Mode = &api.ServiceSpec_Global{Global: &api.GlobalService{}}
	global := create(t, n, spec)
	awaitLive(t, n, global.ID, 1)
	web := create(t, n, replicas("web", 2))
	awaitLive(t, n, web.ID, 2)

	availability := func(a api.NodeSpec_Availability) {
		t.Helper()
		// The dispatcher writes the node's status now and then.
		for try := 0; ; try++ {
			r, err := n.Control().GetNode(t.Context(), &api.GetNodeRequest{NodeID: n.NodeID()})
			if err != nil {
				t.Fatal(err)
			}
			r.Node.Spec.Availability = a
			_, err = n.Control().UpdateNode(t.Context(), &api.UpdateNodeRequest{NodeID: n.NodeID(), NodeVersion: &r.Node.Meta.Version, Spec: &r.Node.Spec})
			if err == nil {
				return
			}
			if try == 5 {
				t.Fatal(err)
			}
		}
	}
	availability(api.NodeAvailabilityDrain)
	eventually(t, 10*time.Second, "nothing runs on a drained node", func() string {
		if k := len(live(n, web.ID)) + len(live(n, global.ID)); k > 0 {
			return fmt.Sprint(k, " run")
		}
		return ""
	})
	eventually(t, 10*time.Second, "all three tasks are shut down", func() string {
		if c := f.called("shutdown"); c != 3 {
			return fmt.Sprint(c)
		}
		return ""
	})
	availability(api.NodeAvailabilityActive)
	awaitLive(t, n, web.ID, 2)
	awaitLive(t, n, global.ID, 1)
}

func TestFailedTaskIsReplaced(t *testing.T) {
	f := newFake()
	n := startNode(t, stateDir(t), f, nil)
	var first atomic.Value // the ID of the task that fails
	f.wait = func(ctx context.Context, x *api.Task) error {
		first.CompareAndSwap(nil, x.ID)
		if first.Load() == x.ID {
			return errFake
		}
		<-ctx.Done()
		return ctx.Err()
	}
	spec := replicas("web", 1)
	s := create(t, n, spec)
	eventually(t, 15*time.Second, "the failed task's successor runs", func() string {
		all := tasks(n, s.ID)
		for _, x := range all {
			if x.ID == first.Load() && (x.Status.State != api.TaskStateFailed || x.Status.Err != errFake.Error()) {
				return x.Status.String()
			}
		}
		if l := live(n, s.ID); len(l) != 1 || l[0].ID == first.Load() {
			return fmt.Sprint(len(l), " run")
		}
		return ""
	})
}

func TestNetworks(t *testing.T) {
	n := startNode(t, stateDir(t), newFake(), nil)
	network := &api.Network{Spec: api.NetworkSpec{
		Annotations:  api.Annotations{Name: "back"},
		DriverConfig: &api.Driver{Name: "bridge"},
		IPAM:         &api.IPAMOptions{Configs: []*api.IPAMConfig{{Subnet: "10.99.0.0/24"}}},
	}}
	if err := n.CreateNetwork(t.Context(), network); err != nil || network.ID == "" {
		t.Fatal(err)
	}
	twice := network.Copy()
	twice.ID = ""
	if err := n.CreateNetwork(t.Context(), twice); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the same name: %v", err)
	}
	spec := replicas("web", 1)
	spec.Task.Networks = []*api.NetworkAttachmentConfig{{Target: network.ID, Aliases: []string{"www"}}}
	s := create(t, n, spec)
	x := awaitLive(t, n, s.ID, 1)[0]
	if len(x.Networks) != 1 || x.Networks[0].Network.ID != network.ID || x.Networks[0].Aliases[0] != "www" {
		t.Errorf("task's networks %v", x.Networks)
	}
	if err := n.RemoveNetwork(t.Context(), network.ID); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("removing a network in use: %v", err)
	}
	if _, err := n.Control().RemoveService(t.Context(), &api.RemoveServiceRequest{ServiceID: s.ID}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the network can be removed", func() string {
		if err := n.RemoveNetwork(t.Context(), network.ID); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := n.RemoveNetwork(t.Context(), network.ID); status.Code(err) != codes.NotFound {
		t.Errorf("removing it again: %v", err)
	}
	r, err := n.Control().ListNetworks(t.Context(), &api.ListNetworksRequest{})
	if err != nil || len(r.Networks) != 1 || r.Networks[0].Spec.Annotations.Name != "ingress" {
		t.Fatal(r, err)
	}
	if err := n.RemoveNetwork(t.Context(), r.Networks[0].ID); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("removing the ingress network: %v", err)
	}
}
