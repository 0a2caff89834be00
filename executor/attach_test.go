// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/moby/swarmkit/v2/api"

	"satld/network"
)

func overlayNetwork(id string) *api.Network {
	return &api.Network{
		ID: id, Spec: api.NetworkSpec{Annotations: api.Annotations{Name: id}, DriverConfig: &api.Driver{Name: "overlay"}},
		IPAM:        &api.IPAMOptions{Configs: []*api.IPAMConfig{{Subnet: "10.89.16.0/24"}}},
		DriverState: &api.Driver{Name: "overlay", Options: map[string]string{VNIOption: "4098"}},
	}
}

// A container that is no task gets its address in an overlay network from the
// cluster once, keeps it over restarts without anybody to ask, and gives it
// back at its end.
func TestContainerInAnOverlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, led)
		node := &api.Node{ID: "here", Attachments: []*api.NetworkAttachment{{Network: overlayNetwork("overlay1"), Addresses: []string{"10.89.16.2/24"}}}}
		id, _, err := b.node.Create(t.Context(), CreateRequest{
			Name: "one", Config: &container.Config{Image: "app:1"}, NetworkIDs: []string{network.DefaultID, "overlay1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.leader.set(false, errors.New("no leader"))
		if err := b.node.Start(t.Context(), id); err == nil || !strings.Contains(err.Error(), "no leader") {
			t.Fatalf("start without a leader: %v", err)
		}
		b.leader.set(false, nil)
		go func() { // the node is told of the network while the container starts
			time.Sleep(3 * time.Second)
			_ = b.node.Configure(t.Context(), node)
		}()
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		want := []network.Place{{NetworkID: network.DefaultID}, {NetworkID: "overlay1", Addr: netip.MustParseAddr("10.89.16.10")}}
		if got := b.nets.places[b.record(id).runtimeID()]; !slices.Equal(got, want) {
			t.Errorf("at %v, want %v", got, want)
		}
		if n := b.nets.overlays["overlay1"]; n.Gateway != netip.MustParseAddr("10.89.16.2") || n.VNI != 4098 {
			t.Errorf("network %+v", n)
		}
		b.rt.end(id, 0)
		synctest.Wait()
		b.close()
		b.leader.set(false, errors.New("no leader"))
		b.open()
		if err := b.node.Start(t.Context(), id); err != nil {
			t.Fatalf("a second start: %v", err)
		}
		if got := b.nets.places[b.record(id).runtimeID()]; !slices.Equal(got, want) {
			t.Errorf("at %v, want %v", got, want)
		}
		// Nobody to give it back to; the cluster says later that it still has it.
		if err := b.node.Remove(t.Context(), id, true, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.leader.set(false, nil)
		if len(b.leader.addrs) != 1 {
			t.Fatalf("addresses %v", b.leader.addrs)
		}
		told := node.Copy()
		told.Attachments = append(told.Attachments, &api.NetworkAttachment{
			Network: overlayNetwork("overlay1"), Addresses: []string{"10.89.16.10/24"}, Aliases: []string{id},
		})
		if err := b.node.Configure(t.Context(), told); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(b.leader.addrs) != 0 {
			t.Errorf("not given back: %v", b.leader.addrs)
		}
		b.close()
	})
}
