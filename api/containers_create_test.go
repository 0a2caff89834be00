// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
	"satld/image"
	"satld/network"
)

// newCreateFixture has one image, bb:1 for linux/amd64, one user network and
// accepts every container; what was asked for is in the returned request.
func newCreateFixture(t testing.TB) (*fixture, *executor.CreateRequest) {
	t.Helper()
	f := newFixture(t)
	withContainers(f)
	f.images.get = func(ref string) (image.Image, error) {
		if ref != "bb:1" {
			return image.Image{}, noImage(ref)
		}
		return image.Image{ID: bbID, Config: v1.ConfigFile{OS: "linux", Architecture: "amd64",
			Config: v1.Config{ExposedPorts: map[string]struct{}{"80": {}, "53/udp": {}}}}}, nil
	}
	f.cluster.update(t, func(tx store.Tx) error {
		for id, name := range map[string]string{"backnet0000000000000000001": "back", "backnet0000000000000000002": "front"} {
			n := &api.Network{ID: id, Spec: api.NetworkSpec{Annotations: api.Annotations{Name: name}, DriverConfig: &api.Driver{Name: "bridge"}, Internal: name == "back"},
				IPAM: &api.IPAMOptions{Configs: []*api.IPAMConfig{{Subnet: "10.99.0.0/24"}}}}
			if err := store.CreateNetwork(tx, n); err != nil {
				return err
			}
		}
		return nil
	})
	req := &executor.CreateRequest{}
	f.containers.create = func(_ context.Context, r executor.CreateRequest) (string, []string, error) {
		*req = r
		return runID, nil, nil
	}
	return f, req
}

// What docker CLI 28.2.2 sends for `docker run bb:1 echo hi`.
const cliCreate = `{"Hostname":"","Domainname":"","User":"","AttachStdin":false,"AttachStdout":true,"AttachStderr":true,"Tty":false,"OpenStdin":false,
"StdinOnce":false,"Env":null,"Cmd":["echo","hi"],"Image":"bb:1","Volumes":{},"WorkingDir":"","Entrypoint":null,"OnBuild":null,"Labels":{},
"HostConfig":{"Binds":null,"ContainerIDFile":"","LogConfig":{"Type":"","Config":{}},"NetworkMode":"default","PortBindings":{},
"RestartPolicy":{"Name":"no","MaximumRetryCount":0},"AutoRemove":false,"VolumeDriver":"","VolumesFrom":null,"ConsoleSize":[24,80],"CapAdd":null,
"CapDrop":null,"CgroupnsMode":"","Dns":[],"DnsOptions":[],"DnsSearch":[],"ExtraHosts":null,"GroupAdd":null,"IpcMode":"","Cgroup":"","Links":null,
"OomScoreAdj":0,"PidMode":"","Privileged":false,"PublishAllPorts":false,"ReadonlyRootfs":false,"SecurityOpt":null,"UTSMode":"","UsernsMode":"",
"ShmSize":0,"Isolation":"","CpuShares":0,"Memory":0,"NanoCpus":0,"CgroupParent":"","BlkioWeight":0,"BlkioWeightDevice":[],"BlkioDeviceReadBps":[],
"BlkioDeviceWriteBps":[],"BlkioDeviceReadIOps":[],"BlkioDeviceWriteIOps":[],"CpuPeriod":0,"CpuQuota":0,"CpuRealtimePeriod":0,"CpuRealtimeRuntime":0,
"CpusetCpus":"","CpusetMems":"","Devices":[],"DeviceCgroupRules":null,"DeviceRequests":null,"MemoryReservation":0,"MemorySwap":0,
"MemorySwappiness":-1,"OomKillDisable":false,"PidsLimit":0,"Ulimits":[],"CpuCount":0,"CpuPercent":0,"IOMaximumIOps":0,"IOMaximumBandwidth":0,
"MaskedPaths":null,"ReadonlyPaths":null},
"NetworkingConfig":{"EndpointsConfig":{"default":{"IPAMConfig":null,"Links":null,"Aliases":null,"MacAddress":"","DriverOpts":null,"GwPriority":0,
"NetworkID":"","EndpointID":"","Gateway":"","IPAddress":"","IPPrefixLen":0,"IPv6Gateway":"","GlobalIPv6Address":"","GlobalIPv6PrefixLen":0,"DNSNames":null}}}}`

func TestCreateFromCLI(t *testing.T) {
	f, req := newCreateFixture(t)
	code, _, body := f.do(t, "POST", "/v1.51/containers/create?name=hi", cliCreate)
	if code != 201 || body != `{"Id":"`+runID+`","Warnings":[]}`+"\n" {
		t.Fatalf("%d %s", code, body)
	}
	if req.Name != "hi" || req.Config.Image != "bb:1" || fmt.Sprint(req.Config.Cmd) != "[echo hi]" ||
		!reflect.DeepEqual(req.NetworkIDs, []string{network.DefaultID}) || req.HostConfig.PidsLimit != nil {
		t.Errorf("%+v", req)
	}
}

// The container API reads no healthcheck, and `run -p` is never warned about.
func TestCreateDropsHealthcheck(t *testing.T) {
	f, req := newCreateFixture(t)
	code, _, body := f.do(t, "POST", "/containers/create", `{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"],"Interval":1000000000,"Retries":-4},
		"ExposedPorts":{"80/tcp":{}},"HostConfig":{"PortBindings":{"80/tcp":[{"HostPort":"8080"}]}}}`)
	if code != 201 || !strings.Contains(body, `"Warnings":[]`) {
		t.Fatalf("%d %s", code, body)
	}
	if req.Config.Healthcheck != nil || len(req.HostConfig.PortBindings) != 1 || req.Name != "" {
		t.Errorf("%+v", req)
	}
}

func TestCreateNetworks(t *testing.T) {
	f, req := newCreateFixture(t)
	back, front := "backnet0000000000000000001", "backnet0000000000000000002"
	for _, c := range []struct {
		mode, endpoints string
		want            []string
		code            int
	}{
		{"default", `{}`, []string{network.DefaultID}, 201},
		{"", `{}`, []string{network.DefaultID}, 201},
		{"bridge", `{"bridge":{}}`, []string{network.DefaultID}, 201},
		{"satl0", `{}`, []string{network.DefaultID}, 201},
		{"host", `{"host":{}}`, nil, 201},
		{"host", `{"back":{}}`, nil, 400},
		{"back", `{"back":{"Aliases":["db"]}}`, []string{back}, 201},
		{"back", `{}`, []string{back}, 201},
		{"front", `{"back":{},"front":{}}`, []string{front, back}, 201},
		{back, `{}`, []string{back}, 201},
		{"backnet", `{}`, nil, 400},
		{"nowhere", `{}`, nil, 400}, // a 404 is a missing image to the CLI
		{"back", `{"back":{"IPAMConfig":{"IPv4Address":"10.99.0.9"}}}`, nil, 501},
		{"back", `{"back":{"MacAddress":"02:00:00:00:00:01"}}`, nil, 501},
		{"back", `{"back":{"Links":["a:b"]}}`, nil, 501},
		{"back", `{"back":{"DriverOpts":{"a":"b"}}}`, nil, 501},
	} {
		*req = executor.CreateRequest{}
		code, _, body := f.do(t, "POST", "/containers/create", `{"Image":"bb:1","HostConfig":{"NetworkMode":"`+c.mode+`"},"NetworkingConfig":{"EndpointsConfig":`+c.endpoints+`}}`)
		if code != c.code || !reflect.DeepEqual(req.NetworkIDs, c.want) {
			t.Errorf("%s %s: %d %s %v", c.mode, c.endpoints, code, body, req.NetworkIDs)
		}
		if strings.Contains(c.endpoints, "db") && !reflect.DeepEqual(req.Aliases[back], []string{"db"}) {
			t.Errorf("aliases: %v", req.Aliases)
		}
	}
	// The bridges are there before the container is.
	if n, ok := f.networks.Get(back); !ok || n.Subnet.String() != "10.99.0.0/24" || !n.Internal || n.Name != "back" {
		t.Errorf("%+v", n)
	}
}

func TestCreateHostNetworkDiscardsPorts(t *testing.T) {
	f, req := newCreateFixture(t)
	_, _, body := f.do(t, "POST", "/containers/create", `{"Image":"bb:1","HostConfig":{"NetworkMode":"host","PortBindings":{"80/tcp":[{"HostPort":"80"}]}}}`)
	if !strings.Contains(body, "Published ports are discarded when using host network mode") || req.HostConfig.PortBindings != nil {
		t.Errorf("%s %+v", body, req.HostConfig)
	}
}

func TestCreatePublishAll(t *testing.T) {
	f, req := newCreateFixture(t)
	if code, _, body := f.do(t, "POST", "/containers/create", `{"Image":"bb:1","ExposedPorts":{"9000/tcp":{}},"HostConfig":{"PublishAllPorts":true}}`); code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	if len(req.Config.ExposedPorts) != 3 {
		t.Errorf("%v", req.Config.ExposedPorts)
	}
	for _, p := range []string{"80/tcp", "53/udp", "9000/tcp"} {
		if !strings.Contains(fmt.Sprint(req.Config.ExposedPorts), p) {
			t.Errorf("no %s: %v", p, req.Config.ExposedPorts)
		}
	}
}

func TestCreateRefused(t *testing.T) {
	f, req := newCreateFixture(t)
	host := func(fields string) string { return `{"Image":"bb:1","HostConfig":{` + fields + `}}` }
	for _, c := range []struct {
		query, body, want string
		code              int
	}{
		{"", ``, "EOF", 400},
		{"", `{`, "invalid JSON", 400},
		{"", `{"Image":7}`, "invalid JSON", 400},
		{"", `{"Image":"bb:1","Healthcheck":{"Interval":"10s"}}`, "invalid JSON", 400},
		{"", `{"HostConfig":{}}`, "config cannot be empty", 400},
		{"", `{"Cmd":["x"]}`, "no image", 400},
		{"", `{"Image":"nosuch"}`, "No such image: nosuch:latest", 404},
		{"?platform=linux/arm64", `{"Image":"bb:1"}`, "does not match the specified platform (linux/arm64)", 404},
		{"?platform=a/b/c/d", `{"Image":"bb:1"}`, "invalid platform", 400},
		{"?name=a", `{"Image":"bb:1"}`, "Invalid container name (a), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed", 400},
		{"?name=-x", `{"Image":"bb:1"}`, "Invalid container name", 400},
		{"", `{"Image":"bb:1","Env":["=x"]}`, "invalid environment variable", 400},
		{"", `{"Image":"bb:1","StopSignal":"SIGNOTHING"}`, "SIGNOTHING", 400},
		{"", `{"Image":"bb:1","WorkingDir":"srv"}`, "absolute path", 400},
		{"", `{"Image":"bb:1","Volumes":{"/data":{}}}`, "anonymous volumes", 501},
		{"", `{"Image":"bb:1","NetworkDisabled":true}`, "without a network", 501},
		{"", `{"Image":"bb:1","MacAddress":"02:00:00:00:00:01"}`, "MAC address", 501},
		{"", `{"Image":"bb:1","ExposedPorts":{"x/tcp":{}}}`, "port", 400},
		{"", `{"Image":"bb:1","ExposedPorts":{"80/icmp":{}}}`, "port", 400},
		{"", host(`"PortBindings":{"80/tcp":[{"HostPort":"http"}]}`), "invalid port specification", 400},
		{"", host(`"PortBindings":{"80/tcp":[{"HostPort":"8000-8010"}]}`), "range of host ports", 501},
		{"", host(`"PortBindings":{"80/tcp":[{"HostIp":"x","HostPort":"80"}]}`), "invalid IP address", 400},
		{"", host(`"PortBindings":{"80/tcp":[{"HostIp":"::1","HostPort":"80"}]}`), "IPv6", 501},
		{"", host(`"NetworkMode":"none"`), "without a network", 501},
		{"", host(`"NetworkMode":"container:web"`), "network of another container", 501},
		{"", host(`"RestartPolicy":{"Name":"always"}`), "restart policies", 501},
		{"", host(`"RestartPolicy":{"Name":"sometimes"}`), "sometimes", 400},
		{"", host(`"RestartPolicy":{"Name":"always"},"AutoRemove":true`), "can't create 'AutoRemove'", 400},
		{"", host(`"VolumesFrom":["web"]`), "volumes-from", 501},
		{"", host(`"Mounts":[{"Target":"/v"}]`), `the mount of "/v": volumes are not supported`, 501},
		{"", host(`"VolumeDriver":"nfs"`), "volume drivers", 501},
		{"", host(`"Links":["web:w"]`), "links", 501},
		{"", host(`"Devices":[{"PathOnHost":"/dev/sda"}]`), "devices", 501},
		{"", host(`"DeviceRequests":[{"Count":-1}]`), "devices", 501},
		{"", host(`"DeviceCgroupRules":["c 1:3 r"]`), "devices", 501},
		{"", host(`"StorageOpt":{"size":"1G"}`), "storage options", 501},
		{"", host(`"MaskedPaths":[]`), "masked", 501},
		{"", host(`"IpcMode":"host"`), "IPC mode host", 501},
		{"", host(`"IpcMode":"shareable"`), "IPC mode shareable", 501},
		{"", host(`"PidMode":"host"`), "PID mode host", 501},
		{"", host(`"UTSMode":"host"`), "UTS mode host", 501},
		{"", host(`"UsernsMode":"private"`), "user namespace mode private", 501},
		{"", host(`"CgroupnsMode":"host"`), "cgroup namespace mode host", 501},
		{"", host(`"CgroupParent":"/x"`), "cgroup-parent", 501},
		{"", host(`"SecurityOpt":["seccomp=unconfined"]`), "security option seccomp=unconfined", 501},
		{"", host(`"SecurityOpt":["apparmor=x"]`), "security option apparmor=x", 501},
		{"", host(`"SecurityOpt":["no-new-privileges=maybe"]`), "security option", 501},
		{"", host(`"Runtime":"kata"`), "unknown or invalid runtime name: kata", 400},
		{"", host(`"Isolation":"hyperv"`), "invalid isolation", 400},
		{"", host(`"CpuShares":512`), "CPU shares", 501},
		{"", host(`"CpuQuota":50000`), "CPU period and quota", 501},
		{"", host(`"CpusetCpus":"0"`), "sets of CPUs", 501},
		{"", host(`"BlkioWeight":100`), "block I/O", 501},
		{"", host(`"BlkioDeviceReadBps":[{"Path":"/dev/sda","Rate":1}]`), "block I/O", 501},
		{"", host(`"MemoryReservation":1000`), "memory reservations", 501},
		{"", host(`"Memory":67108864,"MemorySwap":67108864`), "swap limits", 501},
		{"", host(`"MemorySwappiness":10`), "swappiness", 501},
		{"", host(`"OomKillDisable":true`), "out-of-memory", 501},
		{"", host(`"Memory":-1`), "memory limit", 400},
		{"", host(`"Memory":6291455`), "Minimum memory limit allowed is 6MB", 400},
		{"", host(`"ShmSize":-1`), "/dev/shm", 400},
		{"", host(fmt.Sprintf(`"NanoCpus":%d`, int64(runtime.NumCPU())*1e9+1)), "range of CPUs is from 0.01 to", 400},
		{"", host(`"ConsoleSize":[70000,1]`), "invalid console size", 400},
		{"", host(`"OomScoreAdj":1001`), "oom score", 400},
		{"", host(`"Ulimits":[{"Name":"nofile","Soft":20,"Hard":10}]`), "ulimit", 400},
		{"", host(`"Mounts":[{"Type":"volume","Source":"v","Target":"/x"}]`), `the mount of "/x": volumes are not supported: mount a directory of the host`, 501},
		{"", host(`"Mounts":[{"Type":"bind","Source":"x","Target":"/x"}]`), "must be absolute", 400},
		{"", host(`"Mounts":[{"Type":"bind","Source":"/x","Target":"x"}]`), "must be absolute", 400},
		{"", host(`"Mounts":[{"Type":"bind","Source":"/x","Target":"/x","TmpfsOptions":{}}]`), "TmpfsOptions must not be specified", 400},
		{"", host(`"Mounts":[{"Type":"tmpfs","Target":"/x","TmpfsOptions":{"Options":[["exec"]]}}]`), "tmpfs options", 501},
		{"", host(`"CpuShares":512,"Links":["a:b"]`), "links between containers (use a network); CPU shares", 501},
	} {
		*req = executor.CreateRequest{}
		code, _, body := f.do(t, "POST", "/v1.51/containers/create"+c.query, c.body)
		var msg struct{ Message string }
		_ = json.Unmarshal([]byte(body), &msg)
		if code != c.code || !strings.Contains(msg.Message, c.want) {
			t.Errorf("%s%s: %d %s, want %d %q", c.query, c.body, code, body, c.code, c.want)
		}
		if req.Config != nil {
			t.Errorf("%s%s: a container was made", c.query, c.body)
		}
	}
	for _, fields := range []string{`"SecurityOpt":["no-new-privileges"]`, `"SecurityOpt":["no-new-privileges:true"]`, `"UsernsMode":"host"`, `"IpcMode":"private"`, `"CgroupnsMode":"private"`,
		`"Runtime":"runc"`, `"Memory":67108864,"MemorySwap":-1`, `"NanoCpus":500000000`, `"Init":true`, `"Tmpfs":{"/run":"size=1m"}`,
		`"Mounts":[{"Type":"bind","Source":"/srv","Target":"/srv","ReadOnly":true}]`, `"Binds":["/srv:/srv:ro"]`, `"LogConfig":{"Type":"local","Config":{"max-size":"1m"}}`,
		`"Privileged":true`, `"ReadonlyRootfs":true`, `"PidsLimit":100`, `"CapAdd":["NET_ADMIN"]`, `"Dns":["1.1.1.1"]`, `"ExtraHosts":["a:1.2.3.4"]`} {
		if code, _, body := f.do(t, "POST", "/containers/create", host(fields)); code != 201 {
			t.Errorf("%s: %d %s", fields, code, body)
		}
	}
}

func TestCreateOldVersions(t *testing.T) {
	f, req := newCreateFixture(t)
	if code, _, body := f.do(t, "POST", "/v1.24/containers/create", `{"Image":"bb:1","HostConfig":{"AutoRemove":true}}`); code != 201 || req.HostConfig.AutoRemove {
		t.Errorf("%d %s %+v", code, body, req.HostConfig)
	}
	if code, _, _ := f.do(t, "POST", "/v1.25/containers/create", `{"Image":"bb:1","HostConfig":{"AutoRemove":true}}`); code != 201 || !req.HostConfig.AutoRemove {
		t.Errorf("%d %+v", code, req.HostConfig)
	}
	f.containers.create = func(context.Context, executor.CreateRequest) (string, []string, error) {
		return runID, []string{"careful"}, nil
	}
	if _, _, body := f.do(t, "POST", "/containers/create", `{"Image":"bb:1"}`); !strings.Contains(body, `"Warnings":["careful"]`) {
		t.Errorf("%s", body)
	}
}

// FuzzContainerCreate: no body makes the API panic, and what is refused is
// refused as the client's fault or as not supported.
func FuzzContainerCreate(f *testing.F) {
	f.Add(cliCreate)
	f.Add(`{"Image":"bb:1","HostConfig":{"Ulimits":[null],"Mounts":[{}],"BlkioWeightDevice":[null],"PortBindings":{"80/tcp":null}}}`)
	f.Add(`{"Image":"bb:1","NetworkingConfig":{"EndpointsConfig":{"":null,"back":{"IPAMConfig":null}}}}`)
	f.Add(`{"Image":"bb:1","Healthcheck":{"Test":["NONE"]},"ExposedPorts":{"":{}}}`)
	fix, _ := newCreateFixture(f)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest("POST", "/containers/create", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		fix.server.ServeHTTP(w, r)
		switch w.Code {
		case 201, 400, 404, 501:
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
