// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"

	"github.com/moby/swarmkit/v2/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// reads answers what only reads from this manager's own store, leader or not,
// so that a manager without a majority still shows what there is; all else
// goes where the ControlServer in it sends it, and so do questions while the
// store is known to be behind.
type reads struct {
	api.ControlServer
	own    api.ControlServer
	leads  func() bool // this manager
	behind func() bool // this manager's store, and it stays so
}

// read answers one question: who hands writes on has to read what they did.
// What the leader does not answer, or not in time, is what was here last.
func read[Q, A any](ctx context.Context, r *reads, in Q, far, own func(context.Context, Q) (A, error)) (A, error) {
	if r.behind() {
		bounded, cancel := context.WithTimeout(ctx, farBound)
		defer cancel()
		if out, err := far(bounded, in); err == nil || status.Code(err) == codes.NotFound {
			return out, err
		}
	}
	return own(ctx, in)
}

func (r *reads) GetNode(ctx context.Context, in *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	return read(ctx, r, in, r.ControlServer.GetNode, func(ctx context.Context, in *api.GetNodeRequest) (*api.GetNodeResponse, error) {
		out, err := r.own.GetNode(ctx, in)
		if err == nil {
			r.reach(out.Node)
		}
		return out, err
	})
}

func (r *reads) ListNodes(ctx context.Context, in *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	return read(ctx, r, in, r.ControlServer.ListNodes, func(ctx context.Context, in *api.ListNodesRequest) (*api.ListNodesResponse, error) {
		out, err := r.own.ListNodes(ctx, in)
		if err == nil {
			for _, n := range out.Nodes {
				r.reach(n)
			}
		}
		return out, err
	})
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
	return read(ctx, r, in, r.ControlServer.GetTask, r.own.GetTask)
}

func (r *reads) ListTasks(ctx context.Context, in *api.ListTasksRequest) (*api.ListTasksResponse, error) {
	return read(ctx, r, in, r.ControlServer.ListTasks, r.own.ListTasks)
}

func (r *reads) GetService(ctx context.Context, in *api.GetServiceRequest) (*api.GetServiceResponse, error) {
	return read(ctx, r, in, r.ControlServer.GetService, r.own.GetService)
}

func (r *reads) ListServices(ctx context.Context, in *api.ListServicesRequest) (*api.ListServicesResponse, error) {
	return read(ctx, r, in, r.ControlServer.ListServices, r.own.ListServices)
}

func (r *reads) ListServiceStatuses(ctx context.Context, in *api.ListServiceStatusesRequest) (*api.ListServiceStatusesResponse, error) {
	out, err := read(ctx, r, in, r.ControlServer.ListServiceStatuses, r.own.ListServiceStatuses)
	if err != nil {
		return nil, err
	}
	return out, r.discount(ctx, out.Statuses)
}

// discount takes tasks off the running ones whose node is down: what they last
// were is in the store, and nobody knows whether they run.
func (r *reads) discount(ctx context.Context, statuses []*api.ListServiceStatusesResponse_ServiceStatus) error {
	nodes, err := r.ListNodes(ctx, &api.ListNodesRequest{})
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
	tasks, err := r.ListTasks(ctx, &api.ListTasksRequest{})
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
	return read(ctx, r, in, r.ControlServer.GetNetwork, r.own.GetNetwork)
}

func (r *reads) ListNetworks(ctx context.Context, in *api.ListNetworksRequest) (*api.ListNetworksResponse, error) {
	return read(ctx, r, in, r.ControlServer.ListNetworks, r.own.ListNetworks)
}

func (r *reads) GetCluster(ctx context.Context, in *api.GetClusterRequest) (*api.GetClusterResponse, error) {
	return read(ctx, r, in, r.ControlServer.GetCluster, r.own.GetCluster)
}

func (r *reads) ListClusters(ctx context.Context, in *api.ListClustersRequest) (*api.ListClustersResponse, error) {
	return read(ctx, r, in, r.ControlServer.ListClusters, r.own.ListClusters)
}

func (r *reads) GetSecret(ctx context.Context, in *api.GetSecretRequest) (*api.GetSecretResponse, error) {
	return read(ctx, r, in, r.ControlServer.GetSecret, r.own.GetSecret)
}

func (r *reads) ListSecrets(ctx context.Context, in *api.ListSecretsRequest) (*api.ListSecretsResponse, error) {
	return read(ctx, r, in, r.ControlServer.ListSecrets, r.own.ListSecrets)
}

func (r *reads) GetConfig(ctx context.Context, in *api.GetConfigRequest) (*api.GetConfigResponse, error) {
	return read(ctx, r, in, r.ControlServer.GetConfig, r.own.GetConfig)
}

func (r *reads) ListConfigs(ctx context.Context, in *api.ListConfigsRequest) (*api.ListConfigsResponse, error) {
	return read(ctx, r, in, r.ControlServer.ListConfigs, r.own.ListConfigs)
}
