// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"

	"satld/executor"
	"satld/healthcheck"
	"satld/image"
	"satld/jail"
	"satld/network"
)

const (
	webID  = "8fec38066feefda53bc4f63d93e5350a6160e64ac56d17b8cf035fcab2d03c40"
	runID  = "233dfd09fc812a49d159628e3cb61acd42cdc9848ab89913b66d6ab145242932"
	oldID  = "36d5f0e1893d0d47b3031d0e33376bbdcdc4ede84d2e9d252b1d97c4a991e8d3"
	bbID   = "sha256:1f812eb4ce04da7134dd4e1e045258da913584929a65aed40029d1043b81edbe"
	netID  = "bcd782d6c7f02208ccc83afe61d2938a98048a63e7e62dfe2dcab6709780bbdd"
	taskID = "k50zp88qegxqrbwi4k6ep01i5"
)

// webTask is the container of the recorded inspect: a task with a probe.
func webTask() executor.Snapshot {
	grace := 10
	return executor.Snapshot{
		ID: webID, Name: "web.3." + taskID, Aliases: []string{"web.3", "web"}, Image: "bb:1", ImageID: bbID,
		Created: time.Date(2026, 11, 29, 19, 19, 55, 248144082, time.UTC), State: executor.Running,
		Started: time.Date(2026, 11, 29, 19, 19, 55, 997213113, time.UTC), Pid: 4156,
		TaskID: taskID, ServiceID: "14dgvmzatjgtqwdqryd7y6yp0", ServiceName: "web", NodeID: "mtjm7qalbb3ltvq3tiqpkot30", Slot: 3,
		Config: &container.Config{Hostname: "vm", Env: []string{"PATH=/bin"}, Image: "bb:1", StopTimeout: &grace,
			Cmd: []string{"sh", "-c", "mkdir -p /tmp; sleep 1; touch /tmp/up; sleep 1000"},
			Healthcheck: &container.HealthConfig{Test: []string{"CMD-SHELL", "test -f /tmp/up || exit 1"},
				Interval: 2 * time.Second, Timeout: time.Second, StartPeriod: 5 * time.Second, Retries: 2},
			ExposedPorts: nat.PortSet{"80/tcp": {}, "443/tcp": {}}},
		HostConfig: &container.HostConfig{NetworkMode: "default"},
		Args:       []string{"sh", "-c", "mkdir -p /tmp; sleep 1; touch /tmp/up; sleep 1000"},
		Networks: []network.Attachment{{NetworkID: netID, Addr: netip.MustParsePrefix("10.88.0.3/20"),
			Gateway: netip.MustParseAddr("10.88.0.1"), MAC: "02:42:0a:58:00:03", Interface: "eth0"}},
		Ports:  []executor.PortBinding{{Proto: "tcp", Published: 8080, Target: 80}},
		Health: &healthcheck.Health{Status: healthcheck.Starting},
	}
}

// runContainer is a container of `run`, ended.
func runContainer() executor.Snapshot {
	return executor.Snapshot{
		ID: runID, Name: "db", Image: "db:2", ImageID: "sha256:" + strings.Repeat("d", 64),
		Created: time.Date(2026, 11, 29, 19, 0, 0, 0, time.UTC), State: executor.Exited, ExitCode: 3,
		Started: time.Date(2026, 11, 29, 19, 0, 1, 0, time.UTC), Finished: time.Date(2026, 11, 29, 19, 10, 0, 0, time.UTC),
		Config:     &container.Config{Labels: map[string]string{"tier": "back"}, Image: "db:2"},
		HostConfig: &container.HostConfig{NetworkMode: "bridge"}, Args: []string{"/bin/db"},
		Mounts: []jail.Mount{{Type: "bind", Source: "/srv/db", Target: "/data"}, {Type: "tmpfs", Source: "tmpfs", Target: "/run"}},
	}
}

// oldContainer was created and never started.
func oldContainer() executor.Snapshot {
	return executor.Snapshot{ID: oldID, Name: "old", Image: bbID, ImageID: bbID, State: executor.Created,
		Created: time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC), Config: &container.Config{}, HostConfig: &container.HostConfig{}}
}

// withContainers fills a fixture with the three containers above.
func withContainers(f *fixture) {
	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{oldContainer(), webTask(), runContainer()}
	}
	f.containers.get = func(name string) (executor.Snapshot, error) {
		for _, c := range f.containers.list() {
			if c.ID == name || c.Name == name || slices.Contains(c.Aliases, name) || len(name) >= 4 && strings.HasPrefix(c.ID, name) {
				return c, nil
			}
		}
		return executor.Snapshot{}, noContainer(name)
	}
	f.containers.size = func(context.Context, string) (int64, int64, error) { return 10, 1982329, nil }
	f.images.get = func(ref string) (image.Image, error) {
		if ref == "bb:1" || ref == bbID {
			return image.Image{ID: bbID}, nil
		}
		return image.Image{}, noImage(ref)
	}
	f.networks.networks = []network.Network{{ID: netID, Name: "satl0"}}
}

func TestContainerStatus(t *testing.T) {
	now := time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return now.Add(-d) }
	health := func(s healthcheck.Status) *healthcheck.Health { return &healthcheck.Health{Status: s} }
	for _, c := range []struct {
		want string
		c    executor.Snapshot
	}{
		{"Created", executor.Snapshot{State: executor.Created}},
		{"Up Less than a second (health: starting)", executor.Snapshot{State: executor.Running, Started: at(100 * time.Millisecond), Health: health(healthcheck.Starting)}},
		{"Up 2 seconds (health: starting)", executor.Snapshot{State: executor.Running, Started: at(2 * time.Second), Health: health(healthcheck.Starting)}},
		{"Up 8 seconds (healthy)", executor.Snapshot{State: executor.Running, Started: at(8 * time.Second), Health: health(healthcheck.Healthy)}},
		{"Up About a minute (unhealthy)", executor.Snapshot{State: executor.Running, Started: at(70 * time.Second), Health: health(healthcheck.Unhealthy)}},
		{"Up 13 seconds", executor.Snapshot{State: executor.Running, Started: at(13 * time.Second)}},
		{"Up 2 hours (Paused)", executor.Snapshot{State: executor.Paused, Started: at(2 * time.Hour), Health: health(healthcheck.Healthy)}},
		{"Exited (0) 3 minutes ago", executor.Snapshot{State: executor.Exited, Started: at(time.Hour), Finished: at(3 * time.Minute)}},
		{"Exited (137) 5 days ago", executor.Snapshot{State: executor.Exited, ExitCode: 137, Finished: at(5 * 24 * time.Hour)}},
		{"Removal In Progress", executor.Snapshot{State: executor.Removing}},
		{"Dead", executor.Snapshot{State: executor.Dead}},
		{"Up Less than a second", executor.Snapshot{State: executor.Running, Started: at(-time.Second)}}, // the clock was set back
	} {
		if got := containerStatus(c.c, now); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestContainerListAsRecorded(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	for _, name := range []string{"containers-list", "containers-list-size"} {
		rec := readRecorded(t, name)
		code, _, body := f.do(t, rec.Method, rec.URI, "")
		if code != rec.Status {
			t.Fatalf("%s: %d %s", rec.URI, code, body)
		}
		p := "[]."
		sameShape(t, "", decoded(t, rec.RespBody), decoded(t, []byte(body)),
			// The recorded task is in the host's network, ours on a bridge.
			set(p+"NetworkSettings.Networks", p+"Status"),
			set(p+"Image", p+"ImageID", p+"State", p+"Command", p+"Labels.com.docker.swarm.service.name", p+"Labels.com.docker.swarm.task"))
	}
}

func TestContainerListEntry(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	_, _, body := f.do(t, "GET", "/v1.51/containers/json?all=1&size=1", "")
	var list []container.Summary
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || list[0].ID != webID || list[1].ID != runID || list[2].ID != oldID {
		t.Fatalf("not the three, newest first: %s", body)
	}
	web := list[0]
	if got := fmt.Sprint(web.Names, web.Command, web.Ports, web.SizeRw, web.SizeRootFs); got !=
		"[/web.3."+taskID+"]sh -c 'mkdir -p /tmp; sleep 1; touch /tmp/up; sleep 1000'[{0.0.0.0 80 8080 tcp} { 443 0 tcp}] 10 1982329" {
		t.Errorf("web: %s", got)
	}
	if ep := web.NetworkSettings.Networks["satl0"]; ep == nil || ep.IPAddress != "10.88.0.3" || ep.IPPrefixLen != 20 || ep.Gateway != "10.88.0.1" || len(ep.EndpointID) != 64 {
		t.Errorf("network: %+v", ep)
	}
	if web.Labels["com.docker.swarm.task.id"] != taskID || web.Labels["com.docker.swarm.task.name"] != "web.3."+taskID {
		t.Errorf("labels: %v", web.Labels)
	}
	// The image of db is gone: its ID is shown. Empty lists are no nulls.
	if list[1].Image != list[1].ImageID || strings.Contains(body, `"Ports":null`) || strings.Contains(body, `"Mounts":null`) {
		t.Errorf("db: %s", body)
	}
	if m := list[1].Mounts; len(m) != 2 || m[0].Source != "/srv/db" || m[0].Destination != "/data" || !m[0].RW || m[0].Propagation != "rprivate" || m[1].Source != "" {
		t.Errorf("mounts: %+v", m)
	}
	if code, _, body := f.do(t, "GET", "/containers/json?limit=1&all=0", ""); code != 200 || strings.Count(body, `"Id"`) != 1 {
		t.Errorf("limit: %d %s", code, body)
	}
	f.containers.list = nil
	if _, _, body := f.do(t, "GET", "/containers/json", ""); body != "[]\n" {
		t.Errorf("none: %q", body)
	}
}

func TestContainerFilters(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	for _, c := range []struct {
		filter string
		want   string // names of what is listed with all=1, or an error
		code   int
	}{
		{`{"id":["8fec"]}`, "web", 200},
		{`{"id":["zz"]}`, "", 200},
		{`{"name":["web"]}`, "web", 200},
		{`{"name":["^/db$"]}`, "db", 200},
		{`{"name":["^web$"]}`, "", 200},
		{`{"label":["tier=back"]}`, "db", 200},
		{`{"label":["com.docker.swarm.service.name=web"]}`, "web", 200},
		{`{"label":["com.docker.swarm.task.id=` + taskID + `"]}`, "web", 200},
		{`{"status":["exited"]}`, "db", 200},
		{`{"status":["created","running"]}`, "web old", 200},
		{`{"status":["gone"]}`, "invalid filter 'status=gone'", 400},
		{`{"health":["starting"]}`, "web", 200},
		{`{"health":["none"]}`, "db old", 200},
		{`{"health":["ill"]}`, "invalid filter 'health=ill'", 400},
		{`{"ancestor":["bb:1"]}`, "web old", 200},
		{`{"ancestor":["unknown"]}`, "", 200},
		{`{"exited":["3"]}`, "db", 200},
		{`{"exited":["0"]}`, "", 200},
		{`{"exited":["x"]}`, "invalid filter 'exited=x'", 400},
		{`{"network":["satl0"]}`, "web", 200},
		{`{"network":["bcd782"]}`, "web", 200},
		{`{"network":["other"]}`, "", 200},
		{`{"publish":["8080"]}`, "web", 200},
		{`{"publish":["8000-8100/tcp"]}`, "web", 200},
		{`{"publish":["8080/udp"]}`, "", 200},
		{`{"publish":["1:2"]}`, "should not contain ':'", 400},
		{`{"expose":["443/tcp"]}`, "web", 200},
		{`{"is-task":["true"]}`, "web", 200},
		{`{"is-task":["false"]}`, "db old", 200},
		{`{"is-task":["maybe"]}`, "invalid filter", 400},
		{`{"before":["db"]}`, "old", 200},
		{`{"since":["db"]}`, "web", 200},
		{`{"since":["nobody"]}`, "No such container: nobody", 404},
		{`{"volume":["/data"]}`, "db", 200},
		{`{"volume":["/srv/db"]}`, "db", 200},
		{`{"volume":["/x"]}`, "", 200},
		{`{"colour":["red"]}`, "invalid filter 'colour'", 400},
		{`{"name":{"web":true}}`, "web", 200},
		{`nonsense`, "invalid filter", 400},
	} {
		code, _, body := f.do(t, "GET", "/v1.41/containers/json?all=1&filters="+url.QueryEscape(c.filter), "")
		if code != c.code {
			t.Errorf("%s: %d %s", c.filter, code, body)
			continue
		}
		if code != 200 {
			if !strings.Contains(body, c.want) {
				t.Errorf("%s: %s", c.filter, body)
			}
			continue
		}
		var list []container.Summary
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range list {
			name, _, _ := strings.Cut(strings.TrimPrefix(s.Names[0], "/"), ".")
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.filter, got, c.want)
		}
	}
	// A status filter looks at all containers, whatever all says.
	if _, _, body := f.do(t, "GET", "/containers/json?filters="+url.QueryEscape(`{"status":["exited"]}`), ""); !strings.Contains(body, runID) {
		t.Errorf("status without all: %s", body)
	}
}

func TestContainerInspectAsRecorded(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	rec := readRecorded(t, "container-inspect")
	code, _, body := f.do(t, rec.Method, rec.URI, "")
	if code != rec.Status {
		t.Fatalf("%d %s", code, body)
	}
	want, got := decoded(t, rec.RespBody), decoded(t, []byte(body))
	sameShape(t, "", want, got,
		set(".NetworkSettings.Networks", ".GraphDriver.Data",
			// Omitted since they went away or when they are not set.
			".HostConfig.Init", ".HostConfig.KernelMemory", ".HostConfig.KernelMemoryTCP",
			// The runtime's own, not listed by it.
			".HostConfig.MaskedPaths", ".HostConfig.ReadonlyPaths"),
		set(".Id", ".Created", ".Path", ".State.Status", ".State.Running", ".State.Pid", ".State.StartedAt", ".State.FinishedAt",
			".State.Health.Status", ".State.Health.FailingStreak", ".Image", ".Name", ".Platform", ".Config.Image", ".Config.Hostname",
			".Config.Healthcheck.Interval", ".Config.Healthcheck.Retries",
			".HostConfig.LogConfig.Type", ".HostConfig.ShmSize", ".HostConfig.IpcMode", ".HostConfig.Isolation", ".HostConfig.Runtime"))
	if log, ok := got.(map[string]any)["State"].(map[string]any)["Health"].(map[string]any)["Log"].([]any); !ok || len(log) != 0 {
		t.Errorf("Log before the first probe is not []: %s", body)
	}
}

// cases/api.md, api-2; the names a task's container answers to.
func TestContainerInspectHealth(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	health := func(name string) (any, bool) {
		code, _, body := f.do(t, "GET", "/v1.51/containers/"+name+"/json", "")
		if code != 200 {
			t.Fatalf("%s: %d %s", name, code, body)
		}
		h, ok := decoded(t, []byte(body)).(map[string]any)["State"].(map[string]any)["Health"]
		return h, ok
	}
	for _, name := range []string{webID, webID[:12], "web.3." + taskID, "web.3", "web"} {
		if _, ok := health(name); !ok {
			t.Errorf("%s: no Health", name)
		}
	}
	if h, ok := health("db"); ok {
		t.Errorf("db has no probe and Health %v", h)
	}
	web := webTask()
	start := time.Date(2026, 11, 29, 19, 20, 0, 123456789, time.UTC)
	web.Health = &healthcheck.Health{Status: healthcheck.Unhealthy, FailingStreak: 2, Log: []healthcheck.Result{
		{Start: start, End: start.Add(time.Second), ExitCode: -1, Output: "Health check exceeded timeout (1s)"}}}
	f.containers.get = func(string) (executor.Snapshot, error) { return web, nil }
	h, _ := health("web")
	got, _ := json.Marshal(h)
	if want := `{"FailingStreak":2,"Log":[{"End":"2026-11-29T19:20:01.123456789Z","ExitCode":-1,"Output":"Health check exceeded timeout (1s)",` +
		`"Start":"2026-11-29T19:20:00.123456789Z"}],"Status":"unhealthy"}`; string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	code, _, body := f.do(t, "GET", "/containers/x/json?size=1", "")
	if code != 200 || !strings.Contains(body, `"SizeRw":10`) || !strings.Contains(body, `"SizeRootFs":1982329`) {
		t.Errorf("size: %d %s", code, body)
	}
}

func TestContainerInspectEnded(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	_, _, body := f.do(t, "GET", "/containers/db/json", "")
	var c container.InspectResponse
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(c.State.Status, c.State.Running, c.State.Pid, c.State.ExitCode, c.State.FinishedAt, c.Name, c.Path, c.Args, c.ExecIDs); got !=
		"exited false 0 3 2026-11-29T19:10:00Z /db /bin/db [] []\n" {
		t.Errorf("%s", got)
	}
	if !strings.Contains(body, `"ExecIDs":null`) || !strings.Contains(body, `"Ports":{}`) {
		t.Errorf("%s", body)
	}
	if code, _, body := f.do(t, "GET", "/containers/nobody/json", ""); code != 404 || body != `{"message":"No such container: nobody"}`+"\n" {
		t.Errorf("%d %s", code, body)
	}
}

func TestContainerInspectHostNetwork(t *testing.T) {
	c := webTask()
	c.HostNetwork, c.Networks = true, nil
	out := containerJSON(c, func(id string) string { return id })
	if _, ok := out.NetworkSettings.Networks["host"]; !ok || out.HostConfig.NetworkMode != "host" || c.HostConfig.NetworkMode != "default" {
		t.Errorf("%+v %s", out.NetworkSettings.Networks, out.HostConfig.NetworkMode)
	}
}

func TestContainerRefusals(t *testing.T) {
	f := newFixture(t)
	withContainers(f)
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/containers/web/stats", 501},
		{"GET", "/containers/web/changes", 501},
		{"GET", "/containers/web/export", 501},
		{"GET", "/containers/web/archive?path=/", 501},
		{"PUT", "/containers/web/archive?path=/", 501},
		{"HEAD", "/containers/web/archive?path=/", 200}, // for docker cp: see archiveStat
		{"HEAD", "/containers/nobody/archive?path=/", 404},
		{"POST", "/containers/web/update", 501},
		{"POST", "/commit?container=web", 501},
		{"GET", "/containers/web/attach/ws", 501},
		{"GET", "/containers/nobody/stats", 404},
		{"POST", "/containers/web/start?checkpoint=x", 501},
		{"POST", "/containers/web/stop?t=soon", 400},
		{"DELETE", "/containers/web?link=1", 501},
		{"POST", "/containers/web/rename?name=a/b", 400},
		{"POST", "/containers/web/rename", 400},
		{"POST", "/containers/web/resize?h=1", 400},
		{"POST", "/containers/web/resize?h=1&w=70000", 400},
		{"POST", "/containers/web/wait?condition=soon", 400},
	} {
		if code, _, body := f.do(t, c.method, c.path, ""); code != c.code || c.method != "HEAD" && !strings.Contains(body, `"message"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, body)
		}
	}
}
