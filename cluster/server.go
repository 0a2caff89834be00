// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"math"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/health"
	"github.com/moby/swarmkit/v2/manager/resourceapi"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"satld/mesh"
)

// maxMessage bounds one gRPC message, in bytes: a service with large configs,
// not a full list of tasks, which only goes to this process.
const maxMessage = 16 << 20

// services registers the manager's gRPC services on three servers. The remote
// one is for other nodes: every service is behind the check of the caller's
// certificate, and a follower hands requests on to the leader in the caller's
// name. That for strangers has what is needed to become a node. The local one
// is for this process, which needs no check and whose requests a follower hands
// on as its own.
func (n *member) services() {
	n.servers()
	remote, local := n.remote, n.local
	ctl := newControl(n.members, n.id.sec, n.log)
	resources := resourceapi.New(n.store)
	healthy := health.NewHealthServer()
	healthy.SetServingStatus("Raft", api.HealthCheckResponse_SERVING)
	auth := n.authorize
	forward := ca.WithMetadataForwardTLSInfo
	m := n.members

	for _, s := range []*grpc.Server{remote, n.strange} {
		api.RegisterCAServer(s, api.NewRaftProxyCAServer(api.NewAuthenticatedWrapperCAServer(n.caServer, auth), m, nil, forward))
		api.RegisterNodeCAServer(s, api.NewRaftProxyNodeCAServer(api.NewAuthenticatedWrapperNodeCAServer(n.caServer, auth), m, nil, forward))
	}
	api.RegisterDispatcherServer(remote, api.NewRaftProxyDispatcherServer(api.NewAuthenticatedWrapperDispatcherServer(n.dispatcher, auth), m, nil, forward))
	api.RegisterLogBrokerServer(remote, api.NewRaftProxyLogBrokerServer(api.NewAuthenticatedWrapperLogBrokerServer(n.logs, auth), m, nil, forward))
	api.RegisterResourceAllocatorServer(remote, api.NewRaftProxyResourceAllocatorServer(api.NewAuthenticatedWrapperResourceAllocatorServer(resources, auth), m, nil, forward))
	api.RegisterControlServer(remote, api.NewAuthenticatedWrapperControlServer(ctl, auth))
	api.RegisterLogsServer(remote, api.NewAuthenticatedWrapperLogsServer(n.logs, auth))
	api.RegisterHealthServer(remote, api.NewAuthenticatedWrapperHealthServer(healthy, auth))

	own := func(ctx context.Context) (context.Context, error) { return ctx, nil }
	api.RegisterControlServer(local, &reads{ControlServer: api.NewRaftProxyControlServer(ctl, m, n.asLocal, own), own: ctl, leads: n.raft.Leads, behind: m.behind})
	api.RegisterLogsServer(local, api.NewRaftProxyLogsServer(n.logs, m, n.asLocal, own))
	api.RegisterDispatcherServer(local, api.NewRaftProxyDispatcherServer(n.dispatcher, m, n.asLocal, own))
	api.RegisterCAServer(local, api.NewRaftProxyCAServer(n.caServer, m, n.asLocal, own))
	api.RegisterNodeCAServer(local, api.NewRaftProxyNodeCAServer(n.caServer, m, n.asLocal, own))
	api.RegisterLogBrokerServer(local, api.NewRaftProxyLogBrokerServer(n.logs, m, n.asLocal, own))
	api.RegisterResourceAllocatorServer(local, api.NewRaftProxyResourceAllocatorServer(resources, m, n.asLocal, own))
}

// servers makes the servers with what every node answers.
func (n *member) servers() {
	creds := greetedCreds{n.id.sec.ServerTLSCreds}
	patient := grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: peerSilence / 2, PermitWithoutStream: true})
	n.remote = grpc.NewServer(grpc.Creds(creds), grpc.MaxRecvMsgSize(maxMessage), grpc.ChainUnaryInterceptor(n.tellApplied), patient)
	n.strange = grpc.NewServer(grpc.Creds(creds), grpc.MaxRecvMsgSize(strangerMessage), grpc.MaxConcurrentStreams(strangerStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: strangerAge, MaxConnectionAgeGrace: peerSilence}), patient,
		grpc.UnknownServiceHandler(refuseStranger))
	n.local = grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.ChainUnaryInterceptor(n.tellApplied))
	n.calls = n.answers()
	n.remote.RegisterService(&peerService, n)
}

// answers are the calls that this node takes from others.
func (n *member) answers() map[string]call {
	return map[string]call{
		"enlist": handle(managerOnly, true, n.admitManager),
		"resign": handle(managerOnly, true, n.letGo),
		"reach": handle(managerOnly, false, func(ctx context.Context, _ string, in reachQuestion) (any, error) {
			return nil, reachable(ctx, in.Addr)
		}),
		"tell": handle(anyNode, false, func(ctx context.Context, caller string, r mesh.Report) (any, error) {
			if n.directory == nil || n.cfg.Traffic == nil {
				return nil, status.Error(codes.Unavailable, "this node is not a manager")
			}
			return nil, n.observer.Told(ctx, caller, r)
		}),
		"serving": handle(anyNode, false, func(context.Context, string, struct{}) (any, error) {
			if n.cfg.Traffic == nil {
				return nil, status.Error(codes.Unimplemented, "this node has no traffic")
			}
			r, _ := n.cfg.life.Report(n.cfg.Traffic.Own)
			return r, nil
		}),
		"directory": handle(anyNode, false, func(ctx context.Context, _ string, known string) (any, error) {
			if n.directory == nil {
				return nil, status.Error(codes.Unavailable, "this node is not a manager")
			}
			return n.directory.Read(ctx, known)
		}),
		"leader": handle(managerOnly, false, func(context.Context, string, struct{}) (any, error) {
			if n.raft == nil {
				return nil, status.Error(codes.Unavailable, "this node is not a manager")
			}
			id, addr := n.raft.Leader()
			return api.Peer{NodeID: id, Addr: addr}, nil
		}),
		"applied":          handle(managerOnly, true, n.howFar),
		"create-network":   handle(managerOnly, true, n.storeNetwork),
		"keep-report":      handle(anyNode, true, n.keepReport),
		"may-replace":      handle(anyNode, true, n.mayReplace),
		"attach-container": handle(anyNode, true, n.attachContainer),
		"detach-container": handle(anyNode, true, n.detachContainer),
		"task-ready":       handle(managerOnly, true, n.taskReady),
		"health":           handle(managerOnly, false, n.tellHealth),
	}
}

// authorize lets a caller pass whose certificate (or, forwarded by a manager,
// whose forwarded certificate) has one of the roles, is of this cluster and
// was not removed from it.
func (n *member) authorize(ctx context.Context, roles []string) error {
	_, err := ca.AuthorizeForwardedRoleAndOrg(ctx, roles, []string{ca.ManagerRole}, n.id.clusterID(), n.removedNodes())
	return err
}

// removedNodes are the certificates of nodes that were removed from the
// cluster, by node ID.
func (n *member) removedNodes() (removed map[string]*api.BlacklistedCertificate) {
	n.store.View(func(tx store.ReadTx) {
		if c := store.GetCluster(tx, n.id.clusterID()); c != nil {
			removed = c.BlacklistedCertificates
		}
	})
	return removed
}

// asLocal marks a request as this node's own. The address is the one it
// advertises, never one learned from a socket.
func (n *member) asLocal(ctx context.Context) (context.Context, error) {
	creds := n.id.sec.ClientTLSCreds
	return context.WithValue(ctx, ca.LocalRequestKey, ca.RemoteNodeInfo{
		Roles:        []string{creds.Role()},
		Organization: creds.Organization(),
		NodeID:       creds.NodeID(),
		RemoteAddr:   n.advertise,
	}), nil
}

// dialLocal is this process's connection to its own services.
func (n *member) dialLocal() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///local",
		grpc.WithContextDialer(n.pipe.Dial),
		grpc.WithChainUnaryInterceptor(n.unreached, n.awaitApplied), grpc.WithStatsHandler(sending{}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
}
