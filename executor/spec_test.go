// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-connections/nat"
	"github.com/moby/swarmkit/v2/api"

	"satld/jail"
)

func TestMergeEnv(t *testing.T) {
	for _, tc := range []struct{ base, over, want []string }{
		{[]string{"PATH=/bin", "A=1"}, []string{"A=2", "B=3"}, []string{"PATH=/bin", "A=2", "B=3"}},
		{[]string{"PATH=/bin", "A=1", "B=2"}, []string{"A"}, []string{"PATH=/bin", "B=2"}},
		{[]string{"PATH=/bin", "A=1", "B=2", "C=3"}, []string{"A", "C=4"}, []string{"PATH=/bin", "B=2", "C=4"}},
		{nil, []string{"A="}, []string{"PATH=" + defaultPath, "A="}},
	} {
		if got := mergeEnv(tc.base, tc.over); !slices.Equal(got, tc.want) {
			t.Errorf("%q over %q: %q, want %q", tc.over, tc.base, got, tc.want)
		}
	}
}

func TestBindMounts(t *testing.T) {
	m, err := bindMount("/src:/dst:ro,rslave")
	if err != nil || m.Source != "/src" || m.Target != "/dst" || !m.ReadOnly || !slices.Equal(m.Options, []string{"rslave"}) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"/src", "named:/dst", "/src:relative", "/src:/dst:bogus", "/a:/b:ro:x"} {
		if _, err := bindMount(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// Parents are mounted before what lies in them.
func TestMountsInOrder(t *testing.T) {
	got, err := mounts(&container.HostConfig{
		Binds: []string{"/x:/data/sub"},
		Mounts: []mount.Mount{
			{Type: mount.TypeTmpfs, Target: "/data", TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 1 << 20, Mode: 0o700}},
		},
	})
	if err != nil || len(got) != 2 || got[0].Target != "/data" || !slices.Equal(got[0].Options, []string{"size=1048576", "mode=700"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := mounts(&container.HostConfig{Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: "v", Target: "/v"}}}); err == nil {
		t.Error("a named volume was accepted and would be ignored")
	}
}

func TestHostPorts(t *testing.T) {
	bind := func(port, hostIP, hostPort string) *container.HostConfig {
		return &container.HostConfig{PortBindings: nat.PortMap{nat.Port(port): {{HostIP: hostIP, HostPort: hostPort}}}}
	}
	taken := []PortBinding{{Proto: "tcp", Published: 8080, Target: 80}, {Proto: "tcp", HostIP: "127.0.0.1", Published: 8081, Target: 80}}
	for _, tc := range []struct {
		name string
		host *container.HostConfig
		want string // the binding, or a part of the error
	}{
		{"free", bind("80/tcp", "", "9090"), ":9090->80/tcp"},
		{"address", bind("53/udp", "127.0.0.1", "53"), "127.0.0.1:53->53/udp"},
		{"any address", bind("80/tcp", "0.0.0.0", "9090"), ":9090->80/tcp"},
		{"picked", bind("80/tcp", "", ""), ":32768->80/tcp"},
		{"other protocol", bind("80/udp", "", "8080"), ":8080->80/udp"},
		{"other address", bind("80/tcp", "127.0.0.2", "8081"), "127.0.0.2:8081->80/tcp"},
		{"taken", bind("80/tcp", "", "8080"), "already allocated"},
		{"taken for an address", bind("80/tcp", "127.0.0.2", "8080"), "already allocated"},
		{"taken at an address", bind("80/tcp", "", "8081"), "already allocated"},
		{"range", bind("80/tcp", "", "1-2"), "ranges are not supported"},
		{"ipv6", bind("80/tcp", "::1", "80"), "only IPv4"},
	} {
		got, err := hostPorts(&container.Config{}, tc.host, taken)
		if err != nil {
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if len(got) != 1 || got[0].String() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
		}
	}
}

func TestTaskRecord(t *testing.T) {
	task := webTask(nil)
	task.Networks = []*api.NetworkAttachment{{Network: &api.Network{ID: "n1"}, Aliases: []string{"front"}}}
	task.Spec.LogDriver = &api.Driver{Name: "json-file", Options: map[string]string{"max-size": "1m"}}
	rec, err := taskRecord(task, task.Spec.GetContainer())
	if err != nil {
		t.Fatal(err)
	}
	if rec.Name != "web.1.task1" || rec.slotName() != "web.1" || !slices.Equal(rec.NetworkIDs, []string{"n1"}) || !slices.Equal(rec.Aliases["n1"], []string{"front"}) {
		t.Errorf("%+v", rec)
	}
	if rec.grace().Seconds() != 2 || rec.Config.Labels["com.docker.swarm.task.id"] != "task1" || rec.Ports[0].Published != 8080 {
		t.Errorf("%+v", rec)
	}
	if size, _, err := logLimits(rec.HostConfig.LogConfig); err != nil || size != 1<<20 {
		t.Errorf("log limits %d, %v", size, err)
	}
	if taskContainerID("a") == taskContainerID("b") || len(taskContainerID("a")) != 64 {
		t.Error("container IDs of tasks")
	}
	if none, err := taskRecord(webTask(nil), task.Spec.GetContainer()); err != nil || len(none.NetworkIDs) != 1 {
		t.Errorf("a task without a network is in none: %v, %v", none.NetworkIDs, err)
	}
}

func TestSelectProcesses(t *testing.T) {
	titles, rows, err := selectProcesses("UID PID CMD\nroot 7 sh -c x\nroot 8 other\n", []int{7})
	if err != nil || len(titles) != 3 || len(rows) != 1 || rows[0][2] != "sh -c x" {
		t.Errorf("%q %q %v", titles, rows, err)
	}
	if _, _, err := selectProcesses("A B\n1 2\n", []int{1}); err == nil {
		t.Error("a table without PID was accepted")
	}
}

// What a spec asks of its jail and terminal reaches the runtime; what an image's
// labels say does not.
func TestRuntimeSpec(t *testing.T) {
	n := &Node{dir: t.TempDir(), cfg: Config{JailFirst: true, Networks: &fakeNetworks{}}}
	img, err := (&fakeImages{labels: map[string]string{"satl.jail.allow.mount": "true"}}).Get("app:1")
	if err != nil {
		t.Fatal(err)
	}
	img.Config.OS = "linux"
	r := Record{ID: "a1", Config: &container.Config{Labels: map[string]string{"satl.jail.allow.mlock": "true", "other": "1"}}, HostConfig: &container.HostConfig{}}
	if err := r.fillFrom(img); err != nil {
		t.Fatal(err)
	}
	if err := saveRecord(n.dir, r); err != nil {
		t.Fatal(err)
	}
	r.HostConfig.ConsoleSize = [2]uint{31, 101}
	s, err := n.runtimeSpec(r, "/root", "")
	if err != nil {
		t.Fatal(err)
	}
	if want := (jail.TermSize{Rows: 31, Columns: 101}); s.Size != want {
		t.Errorf("terminal of %v, want %v", s.Size, want)
	}
	if !maps.Equal(s.JailParams, map[string]string{"allow.mlock": "true"}) || s.OS != "linux" {
		t.Errorf("params %v, OS %q", s.JailParams, s.OS)
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP, "9": syscall.SIGKILL, "FOO": 0, "0": 0, "999": 0} {
		got, err := parseSignal(text)
		if got != want || (err != nil) != (want == 0) || err != nil && !cerrdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
