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
	own api.ControlServer
}

func (r *reads) GetNode(ctx context.Context, in *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	return r.own.GetNode(ctx, in)
}

func (r *reads) ListNodes(ctx context.Context, in *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	return r.own.ListNodes(ctx, in)
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
	return r.own.ListServiceStatuses(ctx, in)
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
