// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"

	"github.com/moby/swarmkit/v2/api"
)

// reads answers what only reads from this manager's own store, leader or not,
// so that a manager without a majority still shows what there is; all else
// goes where the ControlServer in it sends it.
type reads struct {
	api.ControlServer
	own   api.ControlServer
	leads func() bool // this manager
}

func (r *reads) GetNode(ctx context.Context, in *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	out, err := r.own.GetNode(ctx, in)
	if err == nil {
		r.reach(out.Node)
	}
	return out, err
}

func (r *reads) ListNodes(ctx context.Context, in *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	out, err := r.own.ListNodes(ctx, in)
	if err == nil {
		for _, n := range out.Nodes {
			r.reach(n)
		}
	}
	return out, err
}

// reach says of a manager that is down that it is unreachable. The leader
// knows by itself who answers its heartbeats; the others know no more than what
// it wrote down of the node.
func (r *reads) reach(n *api.Node) {
	if n.ManagerStatus != nil && n.Status.State == api.NodeStatus_DOWN && !n.ManagerStatus.Leader && !r.leads() {
		n.ManagerStatus.Reachability = api.RaftMemberStatus_UNREACHABLE
	}
}

func (r *reads) GetTask(ctx context.Context, in *api.GetTaskRequest) (*api.GetTaskResponse, error) {
	return r.own.GetTask(ctx, in)
}

func (r *reads) ListTasks(ctx context.Context, in *api.ListTasksRequest) (*api.ListTasksResponse, error) {
	return r.own.ListTasks(ctx, in)
}

func (r *reads) GetService(ctx context.Context, in *api.GetServiceRequest) (*api.GetServiceResponse, error) {
	return r.own.GetService(ctx, in)
}

func (r *reads) ListServices(ctx context.Context, in *api.ListServicesRequest) (*api.ListServicesResponse, error) {
	return r.own.ListServices(ctx, in)
}

func (r *reads) ListServiceStatuses(ctx context.Context, in *api.ListServiceStatusesRequest) (*api.ListServiceStatusesResponse, error) {
	out, err := r.own.ListServiceStatuses(ctx, in)
	if err != nil {
		return nil, err
	}
	return out, r.discount(ctx, out.Statuses)
}

// discount takes tasks off the running ones whose node is down: what they last
// were is in the store, and nobody knows whether they run.
func (r *reads) discount(ctx context.Context, statuses []*api.ListServiceStatusesResponse_ServiceStatus) error {
	nodes, err := r.own.ListNodes(ctx, &api.ListNodesRequest{})
	if err != nil {
		return err
	}
	down := map[string]bool{}
	for _, n := range nodes.Nodes {
		if n.Status.State == api.NodeStatus_DOWN {
			down[n.ID] = true
		}
	}
	if len(down) == 0 {
		return nil
	}
	tasks, err := r.own.ListTasks(ctx, &api.ListTasksRequest{})
	if err != nil {
		return err
	}
	lost := map[string]uint64{}
	for _, t := range tasks.Tasks {
		// Of jobs only those of the last execution are counted, and they are few.
		if down[t.NodeID] && t.Status.State == api.TaskStateRunning && t.JobIteration == nil {
			lost[t.ServiceID]++
		}
	}
	for _, s := range statuses {
		s.RunningTasks -= min(s.RunningTasks, lost[s.ServiceID])
	}
	return nil
}

func (r *reads) GetNetwork(ctx context.Context, in *api.GetNetworkRequest) (*api.GetNetworkResponse, error) {
	return r.own.GetNetwork(ctx, in)
}

func (r *reads) ListNetworks(ctx context.Context, in *api.ListNetworksRequest) (*api.ListNetworksResponse, error) {
	return r.own.ListNetworks(ctx, in)
}

func (r *reads) GetCluster(ctx context.Context, in *api.GetClusterRequest) (*api.GetClusterResponse, error) {
	return r.own.GetCluster(ctx, in)
}

func (r *reads) ListClusters(ctx context.Context, in *api.ListClustersRequest) (*api.ListClustersResponse, error) {
	return r.own.ListClusters(ctx, in)
}

func (r *reads) GetSecret(ctx context.Context, in *api.GetSecretRequest) (*api.GetSecretResponse, error) {
	return r.own.GetSecret(ctx, in)
}

func (r *reads) ListSecrets(ctx context.Context, in *api.ListSecretsRequest) (*api.ListSecretsResponse, error) {
	return r.own.ListSecrets(ctx, in)
}

func (r *reads) GetConfig(ctx context.Context, in *api.GetConfigRequest) (*api.GetConfigResponse, error) {
	return r.own.GetConfig(ctx, in)
}

func (r *reads) ListConfigs(ctx context.Context, in *api.ListConfigsRequest) (*api.ListConfigsResponse, error) {
	return r.own.ListConfigs(ctx, in)
}
