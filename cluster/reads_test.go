// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"testing"

	"github.com/moby/swarmkit/v2/api"
)

// shown is a store with a manager that is down, and what last ran there.
type shown struct{ api.ControlServer }

func (shown) ListNodes(context.Context, *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	node := func(id string, state api.NodeStatus_State, manager *api.ManagerStatus) *api.Node {
		return &api.Node{ID: id, Status: api.NodeStatus{State: state}, ManagerStatus: manager}
	}
	return &api.ListNodesResponse{Nodes: []*api.Node{
		node("here", api.NodeStatus_READY, &api.ManagerStatus{Reachability: api.RaftMemberStatus_REACHABLE}),
		node("gone", api.NodeStatus_DOWN, &api.ManagerStatus{Reachability: api.RaftMemberStatus_REACHABLE}),
		node("worker", api.NodeStatus_DOWN, nil),
		node("leader", api.NodeStatus_READY, &api.ManagerStatus{Leader: true, Reachability: api.RaftMemberStatus_REACHABLE}),
	}}, nil
}

func (s shown) GetNode(ctx context.Context, in *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	list, err := s.ListNodes(ctx, nil)
	for _, n := range list.Nodes {
		if n.ID == in.NodeID {
			return &api.GetNodeResponse{Node: n}, err
		}
	}
	return nil, err
}

func (shown) ListTasks(context.Context, *api.ListTasksRequest) (*api.ListTasksResponse, error) {
	task := func(service, node string, state api.TaskState) *api.Task {
		return &api.Task{ServiceID: service, NodeID: node, Status: api.TaskStatus{State: state}}
	}
	return &api.ListTasksResponse{Tasks: []*api.Task{
		task("web", "here", api.TaskStateRunning), task("web", "gone", api.TaskStateRunning),
		task("web", "gone", api.TaskStateFailed), task("web", "worker", api.TaskStateRunning),
		task("db", "here", api.TaskStateRunning), task("lost", "gone", api.TaskStateRunning), task("lost", "", api.TaskStatePending),
	}}, nil
}

func (shown) ListServiceStatuses(context.Context, *api.ListServiceStatusesRequest) (*api.ListServiceStatusesResponse, error) {
	status := func(id string, running, desired uint64) *api.ListServiceStatusesResponse_ServiceStatus {
		return &api.ListServiceStatusesResponse_ServiceStatus{ServiceID: id, RunningTasks: running, DesiredTasks: desired}
	}
	return &api.ListServiceStatusesResponse{Statuses: []*api.ListServiceStatusesResponse_ServiceStatus{
		status("web", 3, 3), status("db", 1, 1), status("lost", 1, 1),
	}}, nil
}

// TestDownNodeIsShown: what the store last heard of a node that is down is not
// shown as what is, on any manager.
func TestDownNodeIsShown(t *testing.T) {
	for _, leads := range []bool{false, true} {
		r := &reads{ControlServer: shown{}, own: shown{}, leads: func() bool { return leads }, behind: func() bool { return false }}
		nodes, err := r.ListNodes(t.Context(), &api.ListNodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes.Nodes {
			one, err := r.GetNode(t.Context(), &api.GetNodeRequest{NodeID: n.ID})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range []*api.ManagerStatus{n.ManagerStatus, one.Node.ManagerStatus} {
				// The leader knows by itself, here that it gets answers.
				want := !leads && n.ID == "gone"
				if m != nil && (m.Reachability == api.RaftMemberStatus_UNREACHABLE) != want {
					t.Errorf("leads %t: %s is %s", leads, n.ID, m.Reachability)
				}
			}
		}
		statuses, err := r.ListServiceStatuses(t.Context(), &api.ListServiceStatusesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]uint64{"web": 1, "db": 1, "lost": 0}
		for _, s := range statuses.Statuses {
			if s.RunningTasks != want[s.ServiceID] {
				t.Errorf("%s: %d running, want %d", s.ServiceID, s.RunningTasks, want[s.ServiceID])
			}
		}
	}
}
