// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/controlapi"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"satld/cluster"
	"satld/executor"
)

func init() {
	// The control API's gRPC tells each connection at level info.
	if err := log.SetLevel("error"); err != nil {
		panic(err)
	}
}

// fakeCluster is a cluster of one: a real store and SwarmKit's real control
// API over an in-memory connection, without raft, agent or orchestrator.
type fakeCluster struct {
	membership
	store *store.MemoryStore
	// control is SwarmKit's; wrap it to inject failures.
	control api.ControlClient
	ready   func(context.Context) error
	loaded  func(context.Context) error
	reports []cluster.Report // of any service
	// subscribed answers a subscription to the output of other nodes' tasks.
	subscribed func(*api.SubscribeLogsRequest) ([]api.LogMessage, error)
}

const (
	fakeNodeID    = "node0000000000000000000001"
	fakeClusterID = "clus0000000000000000000001"
)

func newFakeCluster(t testing.TB) *fakeCluster {
	t.Helper()
	s := store.NewMemoryStore(&fakeProposer{})
	server := grpc.NewServer()
	api.RegisterControlServer(server, controlapi.NewServer(s, nil, nil, nil, nil))
	lis := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:bufnet", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		_ = s.Close()
	})
	c := &fakeCluster{store: s, control: api.NewControlClient(conn)}
	root, err := ca.CreateRootCA("satl")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := root.Signer()
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := ca.IssuerFromAPIRootCA(&api.RootCA{CACert: root.Certs})
	if err != nil {
		t.Fatal(err)
	}
	c.update(t, func(tx store.Tx) error {
		if err := store.CreateCluster(tx, &api.Cluster{
			ID: fakeClusterID,
			Spec: api.ClusterSpec{
				Annotations:   api.Annotations{Name: store.DefaultClusterName},
				Orchestration: api.OrchestrationConfig{TaskHistoryRetentionLimit: 5},
				Dispatcher:    api.DispatcherConfig{HeartbeatPeriod: gogotypes.DurationProto(5 * time.Second)},
				Raft:          api.RaftConfig{SnapshotInterval: 10000, LogEntriesForSlowFollowers: 500, HeartbeatTick: 1, ElectionTick: 10},
				CAConfig:      ca.DefaultCAConfig(),
			},
			RootCA: api.RootCA{CACert: root.Certs, CAKey: signer.Key, CACertHash: root.Digest.String(),
				JoinTokens: api.JoinTokens{Worker: "SWMTKN-1-worker", Manager: "SWMTKN-1-manager"}},
		}); err != nil {
			return err
		}
		if err := store.CreateNetwork(tx, &api.Network{ID: "ingr0000000000000000000001",
			Spec: api.NetworkSpec{Annotations: api.Annotations{Name: "ingress"}, Ingress: true}}); err != nil {
			return err
		}
		return store.CreateNode(tx, &api.Node{
			ID: fakeNodeID, Role: api.NodeRoleManager,
			Spec: api.NodeSpec{DesiredRole: api.NodeRoleManager, Availability: api.NodeAvailabilityActive, Membership: api.NodeMembershipAccepted},
			Description: &api.NodeDescription{
				Hostname: "vm", Platform: &api.Platform{Architecture: "x86_64", OS: "linux"},
				Resources: &api.Resources{NanoCPUs: 2e9, MemoryBytes: 1 << 30},
				Engine:    &api.EngineDescription{EngineVersion: "0.1.0", Labels: map[string]string{"rack": "1"}},
				TLSInfo:   &api.NodeTLSInfo{TrustRoot: root.Certs, CertIssuerSubject: issuer.Subject, CertIssuerPublicKey: issuer.PublicKey},
			},
			Status: api.NodeStatus{State: api.NodeStatus_READY, Addr: "127.0.0.1"},
		})
	})
	return c
}

// fakeProposer commits at once and counts versions, as raft would.
type fakeProposer struct{ index atomic.Uint64 }

func (p *fakeProposer) ProposeValue(_ context.Context, _ []api.StoreAction, commit func()) error {
	p.index.Add(1)
	if commit != nil {
		commit()
	}
	return nil
}

func (p *fakeProposer) GetVersion() *api.Version { return &api.Version{Index: p.index.Load()} }

func (p *fakeProposer) ChangesBetween(api.Version, api.Version) ([]state.Change, error) {
	return nil, errors.New("no history")
}

// update changes the fake's store; it fails the test when it cannot.
func (c *fakeCluster) update(t testing.TB, f func(tx store.Tx) error) {
	t.Helper()
	if err := c.store.Update(f); err != nil {
		t.Fatal(err)
	}
}

func (c *fakeCluster) NodeID() string             { return fakeNodeID }
func (c *fakeCluster) Manager() bool              { return true }
func (c *fakeCluster) Leader() bool               { return true }
func (c *fakeCluster) Store() *store.MemoryStore  { return c.store }
func (c *fakeCluster) Control() api.ControlClient { return c.control }
func (c *fakeCluster) AdvertiseAddr() string      { return "127.0.0.1:2377" }
func (c *fakeCluster) Loaded(ctx context.Context) error {
	if c.loaded != nil {
		return c.loaded(ctx)
	}
	return nil
}

func (c *fakeCluster) Ready(ctx context.Context) error {
	if c.ready != nil {
		return c.ready(ctx)
	}
	return nil
}

func (c *fakeCluster) CreateNetwork(_ context.Context, n *api.Network) error {
	if executor.IsOverlay(n) { // the leader gives it a subnet
		n.IPAM = &api.IPAMOptions{Configs: []*api.IPAMConfig{{Subnet: "10.89.16.0/24", Gateway: "10.89.16.1"}}}
	}
	return c.store.Update(func(tx store.Tx) error { return store.CreateNetwork(tx, n) })
}

func (c *fakeCluster) RemoveNetwork(ctx context.Context, id string) error {
	_, err := c.control.RemoveNetwork(ctx, &api.RemoveNetworkRequest{NetworkID: id})
	return err
}

func (c *fakeCluster) Reports(serviceID string) (out []cluster.Report, err error) {
	for _, r := range c.reports {
		if r.ServiceID == serviceID {
			out = append(out, r)
		}
	}
	return out, nil
}

func (c *fakeCluster) SetTaskReady(_ context.Context, id string, ready bool) error {
	return c.store.Update(func(tx store.Tx) error {
		t := store.GetTask(tx, id)
		if t == nil {
			return errdefs.ErrNotFound
		}
		cluster.SetReady(&t.Annotations, ready)
		return store.UpdateTask(tx, t)
	})
}

// Short names for what a wrapped control client's methods take.
type (
	ctxT       = context.Context
	callOption = grpc.CallOption
)
