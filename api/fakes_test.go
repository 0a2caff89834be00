// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/docker/docker/api/types/container"
	gogotypes "github.com/gogo/protobuf/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/controlapi"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"satld/cluster"
	"satld/events"
	"satld/executor"
	"satld/image"
	"satld/jail"
	"satld/network"
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

// fakeContainers stubs executor.Containers: a nil field answers ErrNotFound.
type fakeContainers struct {
	list    func() []executor.Snapshot
	get     func(string) (executor.Snapshot, error)
	create  func(context.Context, executor.CreateRequest) (string, []string, error)
	start   func(context.Context, string) error
	stop    func(context.Context, string, *int, string) error
	restart func(context.Context, string, *int, string) error
	kill    func(context.Context, string, string) error
	remove  func(context.Context, string, bool, bool) error
	rename  func(context.Context, string, string) error
	pause   func(context.Context, string) error
	unpause func(context.Context, string) error
	wait    func(context.Context, string, container.WaitCondition) (<-chan executor.WaitResult, error)
	logs    func(context.Context, string, jail.LogQuery, func(jail.LogLine) error) error
	attach  func(context.Context, string, io.Reader, io.Writer, io.Writer) error
	resize  func(context.Context, string, uint16, uint16) error
	exec    func(context.Context, string, jail.ExecSpec) (jail.Process, error)
	top     func(context.Context, string, string) ([]string, [][]string, error)
	size    func(context.Context, string) (int64, int64, error)
}

func noContainer(id string) error {
	return errdefs.ErrNotFound.WithMessage("No such container: " + id)
}

func (f *fakeContainers) List() []executor.Snapshot {
	if f.list == nil {
		return nil
	}
	return f.list()
}

func (f *fakeContainers) Get(id string) (executor.Snapshot, error) {
	if f.get != nil {
		return f.get(id)
	}
	for _, c := range f.List() {
		if c.ID == id || c.Name == id || strings.HasPrefix(c.ID, id) {
			return c, nil
		}
	}
	return executor.Snapshot{}, noContainer(id)
}

func (f *fakeContainers) Create(ctx context.Context, req executor.CreateRequest) (string, []string, error) {
	if f.create == nil {
		return "", nil, errdefs.ErrNotImplemented
	}
	return f.create(ctx, req)
}

func (f *fakeContainers) Start(ctx context.Context, id string) error {
	if f.start == nil {
		return noContainer(id)
	}
	return f.start(ctx, id)
}

func (f *fakeContainers) Stop(ctx context.Context, id string, grace *int, signal string) error {
	if f.stop == nil {
		return noContainer(id)
	}
	return f.stop(ctx, id, grace, signal)
}

func (f *fakeContainers) Restart(ctx context.Context, id string, grace *int, signal string) error {
	if f.restart == nil {
		return noContainer(id)
	}
	return f.restart(ctx, id, grace, signal)
}

func (f *fakeContainers) Kill(ctx context.Context, id, signal string) error {
	if f.kill == nil {
		return noContainer(id)
	}
	return f.kill(ctx, id, signal)
}

func (f *fakeContainers) Remove(ctx context.Context, id string, force, volumes bool) error {
	if f.remove == nil {
		return noContainer(id)
	}
	return f.remove(ctx, id, force, volumes)
}

func (f *fakeContainers) Rename(ctx context.Context, id, name string) error {
	if f.rename == nil {
		return noContainer(id)
	}
	return f.rename(ctx, id, name)
}

func (f *fakeContainers) Pause(ctx context.Context, id string) error {
	if f.pause == nil {
		return noContainer(id)
	}
	return f.pause(ctx, id)
}

func (f *fakeContainers) Unpause(ctx context.Context, id string) error {
	if f.unpause == nil {
		return noContainer(id)
	}
	return f.unpause(ctx, id)
}

func (f *fakeContainers) Wait(ctx context.Context, id string, c container.WaitCondition) (<-chan executor.WaitResult, error) {
	if f.wait == nil {
		return nil, noContainer(id)
	}
	return f.wait(ctx, id, c)
}

func (f *fakeContainers) Logs(ctx context.Context, id string, q jail.LogQuery, each func(jail.LogLine) error) error {
	if f.logs == nil {
		return noContainer(id)
	}
	return f.logs(ctx, id, q, each)
}

func (f *fakeContainers) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.Writer) error {
	if f.attach == nil {
		return noContainer(id)
	}
	return f.attach(ctx, id, stdin, stdout, stderr)
}

func (f *fakeContainers) Resize(ctx context.Context, id string, w, h uint16) error {
	if f.resize == nil {
		return noContainer(id)
	}
	return f.resize(ctx, id, w, h)
}

func (f *fakeContainers) Exec(ctx context.Context, id string, spec jail.ExecSpec) (jail.Process, error) {
	if f.exec == nil {
		return nil, noContainer(id)
	}
	return f.exec(ctx, id, spec)
}

func (f *fakeContainers) Top(ctx context.Context, id, args string) ([]string, [][]string, error) {
	if f.top == nil {
		return nil, nil, noContainer(id)
	}
	return f.top(ctx, id, args)
}

func (f *fakeContainers) Size(ctx context.Context, id string) (int64, int64, error) {
	if f.size == nil {
		return 0, 0, noContainer(id)
	}
	return f.size(ctx, id)
}

// fakeImages stubs image.Images; a nil field answers ErrNotFound.
type fakeImages struct {
	pull   func(context.Context, string, image.Auth, image.Progress) (image.Image, error)
	load   func(context.Context, io.Reader, image.Progress) ([]image.Image, error)
	save   func(context.Context, []string, io.Writer) error
	imp    func(context.Context, io.Reader, string, string, []string) (image.Image, error)
	get    func(string) (image.Image, error)
	list   func() []image.Image
	tag    func(string, string) error
	remove func(context.Context, string, bool) ([]string, []string, error)
	digest func(context.Context, string, image.Auth) (v1.Descriptor, []v1.Platform, error)
	usage  func(context.Context, string) (int64, error)
	layers int64
}

func noImage(ref string) error { return errdefs.ErrNotFound.WithMessage("No such image: " + ref) }

func (f *fakeImages) Pull(ctx context.Context, ref string, auth image.Auth, p image.Progress) (image.Image, error) {
	if f.pull == nil {
		return image.Image{}, noImage(ref)
	}
	return f.pull(ctx, ref, auth, p)
}

func (f *fakeImages) Load(ctx context.Context, r io.Reader, p image.Progress) ([]image.Image, error) {
	if f.load == nil {
		return nil, errdefs.ErrInvalidArgument
	}
	return f.load(ctx, r, p)
}

func (f *fakeImages) Save(ctx context.Context, refs []string, w io.Writer) error {
	if f.save == nil {
		return noImage(strings.Join(refs, " "))
	}
	return f.save(ctx, refs, w)
}

func (f *fakeImages) Import(ctx context.Context, r io.Reader, ref, message string, changes []string) (image.Image, error) {
	if f.imp == nil {
		return image.Image{}, errdefs.ErrInvalidArgument
	}
	return f.imp(ctx, r, ref, message, changes)
}

func (f *fakeImages) Get(ref string) (image.Image, error) {
	if f.get == nil {
		return image.Image{}, noImage(ref)
	}
	return f.get(ref)
}

func (f *fakeImages) List() []image.Image {
	if f.list == nil {
		return nil
	}
	return f.list()
}

func (f *fakeImages) Tag(ref, target string) error {
	if f.tag == nil {
		return noImage(ref)
	}
	return f.tag(ref, target)
}

func (f *fakeImages) Remove(ctx context.Context, ref string, force bool) ([]string, []string, error) {
	if f.remove == nil {
		return nil, nil, noImage(ref)
	}
	return f.remove(ctx, ref, force)
}

func (f *fakeImages) Digest(ctx context.Context, ref string, auth image.Auth) (v1.Descriptor, []v1.Platform, error) {
	if f.digest == nil {
		return v1.Descriptor{}, nil, noImage(ref)
	}
	return f.digest(ctx, ref, auth)
}

func (f *fakeImages) Usage(ctx context.Context, id string) (int64, error) {
	if f.usage == nil {
		return 0, nil
	}
	return f.usage(ctx, id)
}

func (f *fakeImages) Mount(context.Context, string, string) (string, error) { panic("not the API's") }
func (f *fakeImages) Unmount(context.Context, string) error                 { panic("not the API's") }
func (f *fakeImages) Release(context.Context, string) error                 { panic("not the API's") }
func (f *fakeImages) Sweep(context.Context, map[string]bool) error          { panic("not the API's") }
func (f *fakeImages) LayersSize() int64                                     { return f.layers }

// fakeNetworks stubs network.Networks with networks in a slice.
type fakeNetworks struct {
	networks []network.Network
	ensure   func(network.Network) (network.Network, error)
	remove   func(string) error
	attached map[string][]network.Attachment // by container
}

func (f *fakeNetworks) Ensure(_ context.Context, n network.Network) (network.Network, error) {
	if f.ensure != nil {
		return f.ensure(n)
	}
	f.networks = append(f.networks, n)
	return n, nil
}

func (f *fakeNetworks) Remove(_ context.Context, id string) error {
	if f.remove != nil {
		return f.remove(id)
	}
	for i, n := range f.networks {
		if n.ID == id {
			f.networks = append(f.networks[:i], f.networks[i+1:]...)
			return nil
		}
	}
	return errdefs.ErrNotFound.WithMessage("no bridge for network " + id)
}

func (f *fakeNetworks) Get(id string) (network.Network, bool) {
	for _, n := range f.networks {
		if n.ID == id {
			return n, true
		}
	}
	return network.Network{}, false
}

func (f *fakeNetworks) List() []network.Network { return f.networks }

func (f *fakeNetworks) Attach(context.Context, string, []network.Place) (string, []network.Attachment, error) {
	panic("not the API's")
}

func (f *fakeNetworks) Attachments(id string) []network.Attachment { return f.attached[id] }

func (f *fakeNetworks) Detach(context.Context, string) error         { panic("not the API's") }
func (f *fakeNetworks) Sweep(context.Context, map[string]bool) error { panic("not the API's") }

// fixture is a server over fakes, listening on loopback.
type fixture struct {
	*httptest.Server
	server     *Server
	cluster    *fakeCluster
	containers *fakeContainers
	images     *fakeImages
	networks   *fakeNetworks
	events     *events.Log
}

// newFixture starts a server over fakes; change may adjust its Config.
func newFixture(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{cluster: newFakeCluster(t), containers: &fakeContainers{}, images: &fakeImages{},
		networks: &fakeNetworks{}, events: new(events.Log)}
	cfg := Config{Cluster: f.cluster, Containers: f.containers, Images: f.images, Networks: f.networks, Events: f.events,
		Version: "0.1.0", BuildTime: "2026-11-29T00:00:00Z", Root: t.TempDir(), NodeName: "vm", NetworkName: "satl0", Runtime: "runc", Redirect: "nft"}
	for _, c := range change {
		c(&cfg)
	}
	f.server = New(cfg)
	f.server.portBusy = func(string, uint32) bool { return false }
	f.Server = httptest.NewServer(f.server)
	t.Cleanup(f.Close)
	return f
}

// do sends one request; a non-empty body is sent as JSON. It returns the
// status, the headers and the whole body.
func (f *fixture) do(t testing.TB, method, path, body string) (int, http.Header, string) {
	t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, rd)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := f.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// Short names for what a wrapped control client's methods take.
type (
	ctxT       = context.Context
	callOption = grpc.CallOption
)
