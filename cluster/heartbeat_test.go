// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"strings"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// A period of heartbeats that no node can keep is refused; and where one is in
// the store, nobody dies of it.
func TestHeartbeatPeriod(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	for _, period := range []time.Duration{-time.Second, 1, 10 * time.Millisecond} {
		c := clusterOf(n)
		spec := c.Spec.Copy()
		spec.Dispatcher.HeartbeatPeriod = gogotypes.DurationProto(period)
		_, err := n.Control().UpdateCluster(t.Context(), &api.UpdateClusterRequest{ClusterID: c.ID, ClusterVersion: &c.Meta.Version, Spec: spec})
		if err == nil || !strings.Contains(err.Error(), "heartbeat") {
			t.Errorf("%v: %v", period, err)
		}
	}
	err := n.Store().Update(func(tx store.Tx) error {
		c := store.GetCluster(tx, n.ClusterID()).Copy()
		c.Spec.Dispatcher.HeartbeatPeriod = gogotypes.DurationProto(time.Nanosecond)
		return store.UpdateCluster(tx, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, dir, newFake(), nil)
	if got, err := gogotypes.DurationFromProto(clusterOf(n).Spec.Dispatcher.HeartbeatPeriod); err != nil || got != minHeartbeat {
		t.Errorf("the next leader took over %v (%v)", got, err)
	}
	s := create(t, n, replicas("web", 1))
	awaitLive(t, n, s.ID, 1)
}
