// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	dockernet "github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
	"satld/image"
	"satld/network"
)

// newNetworkFixture is a fixture whose networks get subnets, as the real ones do.
func newNetworkFixture(t *testing.T) *fixture {
	f := newFixture(t)
	next := 0
	f.networks.ensure = func(n network.Network) (network.Network, error) {
		if known, ok := f.networks.Get(n.ID); ok {
			return known, nil
		}
		if !n.Subnet.IsValid() {
			n.Subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88, byte(16 * next), 0}), 20)
			next++
		}
		if !n.Gateway.IsValid() {
			n.Gateway = n.Subnet.Addr().Next()
		}
		f.networks.networks = append(f.networks.networks, n)
		return n, nil
	}
	if _, err := f.networks.Ensure(t.Context(), network.Network{ID: network.DefaultID, Name: "satl0"}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) network(t *testing.T, path string) dockernet.Inspect {
	t.Helper()
	return into[dockernet.Inspect](t, f.must(t, 200, "GET", path, ""))
}

func names(list []dockernet.Summary) string {
	var out []string
	for _, n := range list {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestNetworkLife(t *testing.T) {
	f := newNetworkFixture(t)
	made := into[dockernet.CreateResponse](t, f.must(t, 201, "POST", "/networks/create", `{"Name":"back","Driver":"overlay","Labels":{"a":"b"},"Attachable":true,"CheckDuplicate":true}`))
	back := f.network(t, "/networks/back")
	if back.ID != made.ID || back.Driver != "overlay" || back.Scope != "swarm" || back.Labels["a"] != "b" || !back.Attachable ||
		len(back.IPAM.Config) != 1 || back.IPAM.Config[0].Subnet != "10.89.16.0/24" || back.IPAM.Config[0].Gateway != "10.89.16.1" {
		t.Errorf("%+v", back)
	}
	if _, ok := f.networks.Get(made.ID); ok {
		t.Error("an overlay's bridge is made before the cluster has an address for it")
	}
	f.must(t, 201, "POST", "/networks/create", `{"Name":"front","IPAM":{"Config":[{"Subnet":"10.99.0.0/24","Gateway":"10.99.0.254"}]},"Internal":true}`)
	front := f.network(t, "/networks/front?scope=local")
	if front.Driver != "bridge" || front.Scope != "local" || front.IPAM.Config[0].Subnet != "10.99.0.0/24" || front.IPAM.Config[0].Gateway != "10.99.0.254" || !front.Internal {
		t.Errorf("%+v", front)
	}
	// What the clients ask when front is named for a service.
	f.refused(t, 404, "network front not found: services take networks of driver overlay, and it is of driver bridge", "GET", "/networks/front?scope=swarm", "")
	f.refused(t, 409, "network with name back already exists", "POST", "/networks/create", `{"Name":"back"}`)
	for path, want := range map[string]string{
		"/networks":  "back bridge front host none",
		"/networks/": "back bridge front host none",
		`/networks?filters={"driver":["bridge"]}`:            "bridge front",
		`/networks?filters={"name":["ba"]}`:                  "back",
		`/networks?filters={"name":["satl0"]}`:               "bridge",
		`/networks?filters={"id":["` + made.ID + `"]}`:       "back",
		`/networks?filters={"label":["a=b"]}`:                "back",
		`/networks?filters={"scope":["swarm"]}`:              "back",
		`/networks?filters={"type":["custom"]}`:              "back front",
		`/networks?filters={"type":["builtin"]}`:             "bridge host none",
		`/networks?filters={"dangling":["true"]}`:            "back front",
		`/networks?filters={"dangling":["false"]}`:           "bridge host none",
		`/networks?filters={"type":["custom"],"name":["f"]}`: "front",
	} {
		if got := names(into[[]dockernet.Summary](t, f.must(t, 200, "GET", path, ""))); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	f.refused(t, 400, "invalid filter 'x'", "GET", `/networks?filters={"x":["y"]}`, "")
	f.refused(t, 400, "'type'='x'", "GET", `/networks?filters={"type":["x"]}`, "")
	f.refused(t, 400, "dangling", "GET", `/networks?filters={"dangling":["perhaps"]}`, "")
	f.must(t, 204, "DELETE", "/networks/"+made.ID[:10], "")
	local := f.network(t, "/networks/front").ID
	f.must(t, 204, "DELETE", "/networks/front", "")
	if _, ok := f.networks.Get(local); ok {
		t.Error("the bridge stays")
	}
	f.refused(t, 404, "network back not found", "DELETE", "/networks/back", "")
}

func TestNetworkRefusals(t *testing.T) {
	f := newNetworkFixture(t)
	for body, c := range map[string]struct {
		status int
		says   string
	}{
		`{}`:                                        {400, "invalid network name"},
		`{"Name":"a/b"}`:                            {400, "invalid network name"},
		`{"Name":"host"}`:                           {403, "pre-defined network"},
		`{"Name":"satl0"}`:                          {403, "pre-defined network"},
		`{"Name":"x","Driver":"macvlan"}`:           {501, `network driver "macvlan"`},
		`{"Name":"x","Ingress":true}`:               {501, "ingress"},
		`{"Name":"x","ConfigOnly":true}`:            {501, "configuration-only"},
		`{"Name":"x","ConfigFrom":{"Network":"y"}}`: {501, "configuration-only"},
		`{"Name":"x","EnableIPv6":true}`:            {501, "IPv6"},
		`{"Name":"x","EnableIPv4":false}`:           {501, "without IPv4"},
		`{"Name":"x","Scope":"global"}`:             {400, "invalid scope"},
		`{"Name":"x","Driver":"overlay","Options":{"encrypted":""}}`:                         {501, "encrypted"},
		`{"Name":"x","Options":{"com.docker.network.driver.mtu":"9000"}}`:                    {501, "mtu"},
		`{"Name":"x","IPAM":{"Driver":"dhcp"}}`:                                              {501, "IPAM"},
		`{"Name":"x","IPAM":{"Options":{"a":"b"}}}`:                                          {501, "IPAM"},
		`{"Name":"x","IPAM":{"Config":[{"Subnet":"10.0.0.0/24"},{"Subnet":"10.0.1.0/24"}]}}`: {501, "more than one subnet"},
		`{"Name":"x","IPAM":{"Config":[{"Subnet":"10.0.0.0/24","IPRange":"10.0.0.0/25"}]}}`:  {501, "IP ranges"},
		`{"Name":"x","IPAM":{"Config":[{"Subnet":"fd00::/64"}]}}`:                            {400, "invalid subnet"},
		`{"Name":"x","IPAM":{"Config":[{"Gateway":"10.0.0.1"}]}}`:                            {400, "needs a subnet"},
		`{"Name":"x","IPAM":{"Config":[{"Subnet":"10.0.0.0/24","Gateway":"10.1.0.1"}]}}`:     {400, "invalid gateway"},
	} {
		f.refused(t, c.status, c.says, "POST", "/networks/create", body)
	}
	if n := len(f.networks.networks); n != 1 {
		t.Errorf("%d bridges after refused creations", n)
	}
	f.networks.ensure = func(network.Network) (network.Network, error) {
		return network.Network{}, errdefs.ErrConflict.WithMessage("subnet overlaps")
	}
	f.refused(t, 409, "subnet overlaps", "POST", "/networks/create", `{"Name":"x"}`)
	for _, name := range []string{"host", "none", "bridge", "satl0"} {
		f.refused(t, 403, "cannot be removed", "DELETE", "/networks/"+name, "")
	}
	f.refused(t, 501, "not supported", "POST", "/networks/bridge/connect", `{"Container":"x"}`)
	f.refused(t, 501, "not supported", "POST", "/networks/bridge/disconnect", `{"Container":"x"}`)
	f.refused(t, 400, "verbose", "GET", "/networks/bridge?verbose=perhaps", "")
}

func TestPredefinedNetworks(t *testing.T) {
	f := newNetworkFixture(t)
	for _, name := range []string{"bridge", "satl0", "default", network.DefaultID, network.DefaultID[:12]} {
		n := f.network(t, "/networks/"+name)
		if n.ID != network.DefaultID || n.Name != "bridge" || n.IPAM.Config[0].Subnet != "10.88.0.0/20" || n.Options["com.docker.network.bridge.name"] != "satl0" {
			t.Errorf("%s: %+v", name, n)
		}
	}
	// A container in it shows the same name, and is found by both.
	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{{ID: "c1", Name: "c1", State: executor.Running, Config: &container.Config{}, HostConfig: &container.HostConfig{},
			Networks: []network.Attachment{{NetworkID: network.DefaultID, Addr: netip.MustParsePrefix("10.88.0.2/20")}}}}
	}
	for _, name := range []string{"bridge", "satl0"} {
		list := into[[]container.Summary](t, f.must(t, 200, "GET", `/containers/json?filters={"network":["`+name+`"]}`, ""))
		if len(list) != 1 || list[0].NetworkSettings.Networks["bridge"] == nil {
			t.Errorf("%s: %+v", name, list)
		}
	}
	f.containers.list = nil
	if n := f.network(t, "/networks/none"); n.Driver != "null" {
		t.Errorf("%+v", n)
	}
	host := f.network(t, "/networks/host?scope=swarm")
	if host.Driver != "host" || host.Scope != "swarm" || host.Labels[predefinedLabel] != "true" {
		t.Errorf("%+v", host)
	}
	// A service in them is stored by ID, and its network is in the store.
	f.create(t, `{"Name":"a","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"},"Networks":[{"Target":"`+host.ID+`"}]}}`)
	f.create(t, `{"Name":"b","Networks":[{"Target":"satl0","Aliases":["x"]}],"TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`)
	b := f.service(t, "b")
	if got := b.Spec.TaskTemplate.Networks; len(got) != 1 || got[0].Target != network.DefaultID || got[0].Aliases[0] != "x" {
		t.Errorf("%+v", b.Spec)
	}
	f.cluster.store.View(func(tx store.ReadTx) {
		if n := store.GetNetwork(tx, host.ID); n == nil || n.Spec.DriverConfig.Name != "host" {
			t.Errorf("host in the store: %+v", n)
		}
		if n := store.GetNetwork(tx, network.DefaultID); n == nil || n.Spec.DriverConfig.Name != "bridge" {
			t.Errorf("default in the store: %+v", n)
		}
	})
	// They, and the ingress network behind published ports, are not shown twice.
	f.create(t, `{"Name":"c","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}},"EndpointSpec":{"Ports":[{"TargetPort":80,"PublishedPort":8080}]}}`)
	f.create(t, `{"Name":"d","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}},"EndpointSpec":{"Ports":[{"TargetPort":80,"PublishedPort":8081}]}}`)
	if got := names(into[[]dockernet.Summary](t, f.must(t, 200, "GET", "/networks", ""))); got != "bridge host none" {
		t.Errorf("shown %s", got)
	}
	f.server.sweepNetworks(t.Context())
	if _, ok := f.networks.Get(network.DefaultID); !ok {
		t.Error("the default network's bridge was swept away")
	}
}

func TestNetworkInUse(t *testing.T) {
	f := newNetworkFixture(t)
	made := into[dockernet.CreateResponse](t, f.must(t, 201, "POST", "/networks/create", `{"Name":"back","Driver":"overlay"}`))
	if _, err := f.networks.Ensure(t.Context(), network.Network{ID: made.ID, Name: "back"}); err != nil { // as this node is told
		t.Fatal(err)
	}
	web, _ := f.create(t, `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"},"Networks":[{"Target":"back"}]}}`)
	f.refused(t, 409, "in use by service web", "DELETE", "/networks/back", "")
	if got := names(into[[]dockernet.Summary](t, f.must(t, 200, "GET", `/networks?filters={"dangling":["true"]}`, ""))); got != "" {
		t.Errorf("dangling %s", got)
	}
	f.cluster.update(t, func(tx store.Tx) error {
		return store.CreateTask(tx, &api.Task{ID: "task1", ServiceID: web, Slot: 1, NodeID: fakeNodeID, DesiredState: api.TaskStateRunning,
			Status: api.TaskStatus{State: api.TaskStateRunning}, ServiceAnnotations: api.Annotations{Name: "web"},
			Networks: []*api.NetworkAttachment{{Network: store.GetNetwork(tx, made.ID), Addresses: []string{"10.88.16.2/20"}}}})
	})
	container := executor.Snapshot{ID: "c1", Name: "web.1.task1", TaskID: "task1", State: executor.Running,
		Networks: []network.Attachment{{NetworkID: made.ID, Addr: netip.MustParsePrefix("10.88.16.2/20"), MAC: "02:42:00:00:00:01"}}}
	f.containers.list = func() []executor.Snapshot { return []executor.Snapshot{container} }

	n := f.network(t, "/networks/back?verbose=true")
	if e := n.Containers["c1"]; e.Name != "web.1.task1" || e.IPv4Address != "10.88.16.2/20" || e.MacAddress != "02:42:00:00:00:01" {
		t.Errorf("%+v", n.Containers)
	}
	if s := n.Services["web"]; len(s.Tasks) != 1 || s.Tasks[0].EndpointIP != "10.88.16.2/20" {
		t.Errorf("%+v", n.Services)
	}

	// As `stack rm` does: the service, then the network at once. The engine
	// tells the task to stop meanwhile; its container is still there.
	f.must(t, 200, "DELETE", "/services/web", "")
	told := make(chan error, 1)
	go func() {
		told <- f.cluster.store.Update(func(tx store.Tx) error {
			task := store.GetTask(tx, "task1")
			task.DesiredState = api.TaskStateRemove
			return store.UpdateTask(tx, task)
		})
	}()
	f.networks.remove = func(string) error { return errdefs.ErrConflict.WithMessage("attached") }
	f.must(t, 204, "DELETE", "/networks/back", "")
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	f.refused(t, 404, "not found", "GET", "/networks/back", "")
	if _, ok := f.networks.Get(made.ID); !ok {
		t.Fatal("the bridge went away under a container")
	}
	f.networks.remove = nil
	f.server.sweepNetworks(t.Context())
	if _, ok := f.networks.Get(made.ID); ok {
		t.Error("the bridge stays for ever")
	}

	// A container of `run` is kept out unless the network is attachable, as Docker does.
	f.must(t, 201, "POST", "/networks/create", `{"Name":"closed","Driver":"overlay"}`)
	f.images.get = func(string) (image.Image, error) { return image.Image{ID: "sha256:1"}, nil }
	f.refused(t, 403, "not manually attachable", "POST", "/containers/create", `{"Image":"bb:1","HostConfig":{"NetworkMode":"closed"}}`)

	// A container of `run` holds its network.
	made = into[dockernet.CreateResponse](t, f.must(t, 201, "POST", "/networks/create", `{"Name":"mine"}`))
	container = executor.Snapshot{ID: "c2", Name: "runner", State: executor.Running, Networks: []network.Attachment{{NetworkID: made.ID}}}
	f.refused(t, 409, "in use by container runner", "DELETE", "/networks/mine", "")
}

func TestNetworkPrune(t *testing.T) {
	f := newNetworkFixture(t)
	for _, body := range []string{`{"Name":"a","Labels":{"keep":"no"}}`, `{"Name":"b","Driver":"overlay"}`, `{"Name":"c","Labels":{"keep":"yes"}}`} {
		f.must(t, 201, "POST", "/networks/create", body)
	}
	f.create(t, `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"},"Networks":[{"Target":"b"}]}}`)
	prune := func(filter string) string {
		report := into[dockernet.PruneReport](t, f.must(t, 200, "POST", "/networks/prune?filters="+filter, ""))
		slices.Sort(report.NetworksDeleted)
		return strings.Join(report.NetworksDeleted, " ")
	}
	if got := prune(`{"label!":["keep"]}`); got != "" {
		t.Errorf("pruned %s", got)
	}
	if got := prune(`{"label":["keep=no"]}`); got != "a" {
		t.Errorf("pruned %s", got)
	}
	if got := prune(`{"until":["1h"]}`); got != "" {
		t.Errorf("pruned %s", got)
	}
	if got := prune(""); got != "c" {
		t.Errorf("pruned %s", got)
	}
	f.refused(t, 400, "invalid filter 'x'", "POST", `/networks/prune?filters={"x":["y"]}`, "")
	if svc := into[[]swarm.Service](t, f.must(t, 200, "GET", "/services", "")); len(svc) != 1 {
		t.Error("a service went away")
	}
}
