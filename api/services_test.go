// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
)

// must sends a request and fails unless it is answered with status.
func (f *fixture) must(t testing.TB, status int, method, path, body string) string {
	t.Helper()
	code, _, got := f.do(t, method, path, body)
	if code != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, code, got, status)
	}
	return got
}

// refused sends a request and checks that it is refused with status and words.
func (f *fixture) refused(t testing.TB, status int, says, method, path, body string) {
	t.Helper()
	code, h, got := f.do(t, method, path, body)
	var e struct{ Message string }
	if err := json.Unmarshal([]byte(got), &e); err != nil || e.Message == "" || h.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s: no JSON error: %d %q", method, path, code, got)
	}
	if code != status || !strings.Contains(e.Message, says) {
		t.Errorf("%s %s %s: %d %q, want %d %q", method, path, body, code, e.Message, status, says)
	}
}

func into[T any](t testing.TB, body string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

// create makes a service and returns its ID and warnings.
func (f *fixture) create(t testing.TB, spec string) (string, []string) {
	t.Helper()
	resp := into[swarm.ServiceCreateResponse](t, f.must(t, 201, "POST", "/v1.51/services/create", spec))
	return resp.ID, resp.Warnings
}

func (f *fixture) service(t testing.TB, id string) swarm.Service {
	t.Helper()
	return into[swarm.Service](t, f.must(t, 200, "GET", "/services/"+id, ""))
}

// setStatus changes what is no spec, as the engine does all the time.
func (f *fixture) setStatus(t testing.TB, id, message string) {
	t.Helper()
	f.cluster.update(t, func(tx store.Tx) error {
		svc := store.GetService(tx, id)
		svc.UpdateStatus = &api.UpdateStatus{State: api.UpdateStatus_UPDATING, Message: message}
		return store.UpdateService(tx, svc)
	})
}

func webSpec(env string) string {
	return `{"Name":"web","Labels":{"a":"b"},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Env":["A=` + env + `"]}},"Mode":{"Replicated":{"Replicas":2}}}`
}

func TestServiceLife(t *testing.T) {
	f := newFixture(t)
	id, warnings := f.create(t, webSpec("1"))
	if len(warnings) != 0 {
		t.Errorf("warnings %q", warnings)
	}
	f.refused(t, 409, "service web already exists", "POST", "/services/create", webSpec("1"))
	svc := f.service(t, "web") // by name
	if svc.ID != id || svc.Version.Index == 0 || *svc.Spec.Mode.Replicated.Replicas != 2 {
		t.Errorf("%+v", svc)
	}
	if got := f.service(t, id[:8]); got.ID != id { // by prefix
		t.Errorf("%+v", got)
	}
	f.must(t, 200, "POST", fmt.Sprintf("/services/web/update?version=%d", svc.Version.Index), webSpec("2"))
	after := f.service(t, id)
	if after.Version.Index <= svc.Version.Index || after.Spec.TaskTemplate.ContainerSpec.Env[0] != "A=2" || after.PreviousSpec == nil {
		t.Errorf("%+v", after)
	}
	// Rolled back by the server: the body is the current spec, as the CLI sends it.
	f.must(t, 200, "POST", fmt.Sprintf("/services/web/update?rollback=previous&version=%d", after.Version.Index), webSpec("2"))
	back := f.service(t, id)
	if back.Spec.TaskTemplate.ContainerSpec.Env[0] != "A=1" || back.UpdateStatus == nil || back.UpdateStatus.State != swarm.UpdateStateRollbackStarted {
		t.Errorf("%+v", back)
	}
	f.must(t, 200, "DELETE", "/services/web", "")
	f.refused(t, 404, "service web not found", "DELETE", "/services/web", "")
	f.refused(t, 404, "service web not found", "GET", "/services/web", "")
	f.refused(t, 404, "service web not found", "GET", "/services/web/logs?stdout=1", "")
	f.refused(t, 404, "service web not found", "POST", "/services/web/update?version=1", webSpec("1"))
}

func TestServiceRefusals(t *testing.T) {
	f := newFixture(t)
	f.create(t, webSpec("1"))
	for _, c := range []struct {
		status             int
		says, method, path string
		body               string
	}{
		{400, "got EOF", "POST", "/services/create", ""},
		{400, "invalid JSON", "POST", "/services/create", `{"Name":`},
		{400, "unexpected content after JSON", "POST", "/services/create", minimal + "{}"},
		{400, "ContainerSpec is missing", "POST", "/services/create", `{}`},
		{400, "cannot unmarshal", "POST", "/services/create", `{"Mode":{"Replicated":{"Replicas":-1}}}`},
		{400, "must specify only one service mode", "POST", "/services/create", inService(`"Mode":{"Global":{},"Replicated":{}}`)},
		{400, "invalid RestartCondition", "POST", "/services/create", inTask(`"RestartPolicy":{"Condition":"often"}`)},
		{404, "network nowhere not found", "POST", "/services/create", inTask(`"Networks":[{"Target":"nowhere"}]`)},
		{400, "named twice", "POST", "/services/create", inTask(`"Networks":[{"Target":"bridge"},{"Target":"satl0"}]`)},
		{501, "without a network", "POST", "/services/create", inTask(`"Networks":[{"Target":"none"}]`)},
		{400, "cannot be combined", "POST", "/services/create", inTask(`"Networks":[{"Target":"host"},{"Target":"bridge"}]`)},
		{400, "host network", "POST", "/services/create", `{"Name":"h","EndpointSpec":{"Ports":[{"TargetPort":80,"PublishedPort":80}]},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1"},"Networks":[{"Target":"host"}]}}`},
		{501, "driver options", "POST", "/services/create", inTask(`"Networks":[{"Target":"bridge","DriverOpts":{"x":"y"}}]`)},
		{400, "invalid service version", "POST", "/services/web/update", webSpec("1")},
		{400, "invalid service version", "POST", "/services/web/update?version=x", webSpec("1")},
		{500, outOfSequence, "POST", "/services/web/update?version=999", webSpec("1")},
		{400, "unrecognized rollback option", "POST", "/services/web/update?version=1&rollback=often", webSpec("1")},
		{400, "unsupported registryAuthFrom", "POST", "/services/web/update?version=1&registryAuthFrom=x", webSpec("1")},
		{400, "previous spec", "POST", "/services/web/update?version=1&registryAuthFrom=previous-spec", webSpec("1")},
		{400, "does not have a previous spec", "POST", "/services/web/update?version=1&rollback=previous", webSpec("1")},
		{501, "service mode change is not allowed", "POST", "/services/web/update?version=1", inService(`"Mode":{"Global":{}}`)},
		{501, "renaming services is not supported", "POST", "/services/web/update?version=1", strings.Replace(webSpec("1"), `"web"`, `"bew"`, 1)},
		{400, "Interval", "POST", "/services/web/update?version=1", inContainer(`"Healthcheck":{"Test":["CMD","x"],"Interval":-1}`)},
		{400, "invalid filter 'image'", "GET", `/services?filters={"image":["x"]}`, ""},
		{400, "invalid value for status", "GET", `/services?status=perhaps`, ""},
		{400, "invalid value for insertDefaults", "GET", `/services/web?insertDefaults=perhaps`, ""},
	} {
		f.refused(t, c.status, c.says, c.method, c.path, c.body)
	}
	if svc := f.service(t, "web"); svc.Version.Index != 1 || svc.PreviousSpec != nil {
		t.Errorf("a refused update left a trace: %+v", svc)
	}
	if n := len(into[[]swarm.Service](t, f.must(t, 200, "GET", "/services", ""))); n != 1 {
		t.Errorf("%d services after refused creations", n)
	}
}

// TestVersionMovesWithSpecOnly is cases/api.md, api-1.
func TestVersionMovesWithSpecOnly(t *testing.T) {
	f := newFixture(t)
	id, _ := f.create(t, webSpec("0"))
	for i := 1; i < 20; i++ {
		read := f.service(t, id).Version.Index
		f.setStatus(t, id, fmt.Sprint(i))
		if got := f.service(t, id).Version.Index; got != read {
			t.Fatalf("a status change moved the version from %d to %d", read, got)
		}
		f.must(t, 200, "POST", fmt.Sprintf("/services/%s/update?version=%d", id, read), webSpec(fmt.Sprint(i)))
		svc := f.service(t, id)
		if svc.Version.Index <= read || svc.Spec.TaskTemplate.ContainerSpec.Env[0] != fmt.Sprintf("A=%d", i) {
			t.Fatalf("not its own write read: %+v", svc)
		}
		// Another client that read before this update is refused, and nothing is lost.
		f.refused(t, 500, outOfSequence, "POST", fmt.Sprintf("/services/%s/update?version=%d", id, read), webSpec("lost"))
		if env := f.service(t, id).Spec.TaskTemplate.ContainerSpec.Env[0]; env != fmt.Sprintf("A=%d", i) {
			t.Fatalf("a refused update was applied: %s", env)
		}
	}
}

// racingControl lets a status change slip in between the read and the write.
type racingControl struct {
	api.ControlClient
	before func()
}

func (c *racingControl) UpdateService(ctx ctxT, r *api.UpdateServiceRequest, o ...callOption) (*api.UpdateServiceResponse, error) {
	if c.before != nil {
		before := c.before
		c.before = nil
		before()
	}
	return c.ControlClient.UpdateService(ctx, r, o...)
}

func TestUpdateAbsorbsStatusChange(t *testing.T) {
	f := newFixture(t)
	id, _ := f.create(t, webSpec("0"))
	racing := &racingControl{ControlClient: f.cluster.control}
	f.cluster.control = racing
	racing.before = func() { f.setStatus(t, id, "between") }
	f.must(t, 200, "POST", "/services/web/update?version=1", webSpec("1"))

	// But not another client's change of the spec.
	read := f.service(t, id).Version.Index
	racing.before = func() {
		f.must(t, 200, "POST", fmt.Sprintf("/services/web/update?version=%d", read), webSpec("theirs"))
	}
	f.refused(t, 500, outOfSequence, "POST", fmt.Sprintf("/services/web/update?version=%d", read), webSpec("ours"))
	if env := f.service(t, id).Spec.TaskTemplate.ContainerSpec.Env[0]; env != "A=theirs" {
		t.Errorf("lost update: %s", env)
	}
}

func TestServiceListFilters(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, webSpec("1"))
	db, _ := f.create(t, `{"Name":"db","Mode":{"Global":{}},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`)
	f.cluster.update(t, func(tx store.Tx) error {
		for i, state := range []api.TaskState{api.TaskStateRunning, api.TaskStateStarting} {
			if err := store.CreateTask(tx, &api.Task{ID: fmt.Sprintf("task%d", i), ServiceID: web, Slot: uint64(i + 1), NodeID: fakeNodeID,
				DesiredState: api.TaskStateRunning, Status: api.TaskStatus{State: state}}); err != nil {
				return err
			}
		}
		return nil
	})
	for filter, want := range map[string]string{
		``:                                   web + " " + db,
		`{"name":["we"]}`:                    web,
		`{"name":{"web":true,"db":true}}`:    web + " " + db,
		`{"id":["` + db[:6] + `"]}`:          db,
		`{"id":["web"]}`:                     "",
		`{"label":["a"]}`:                    web,
		`{"label":["a=b"]}`:                  web,
		`{"label":["a=c"]}`:                  "",
		`{"mode":["global"]}`:                db,
		`{"mode":["replicated"]}`:            web,
		`{"mode":["replicated","global"]}`:   web + " " + db,
		`{"runtime":["container"]}`:          web + " " + db,
		`{"runtime":["plugin"]}`:             "",
		`{"name":["web"],"mode":["global"]}`: "",
	} {
		var ids []string
		for _, s := range into[[]swarm.Service](t, f.must(t, 200, "GET", "/services?filters="+filter, "")) {
			ids = append(ids, s.ID)
			if s.ServiceStatus != nil {
				t.Errorf("status without being asked for")
			}
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %q, want %q", filter, got, want)
		}
	}
	list := into[[]swarm.Service](t, f.must(t, 200, "GET", "/services?status=true&filters={\"name\":[\"web\"]}", ""))
	if st := list[0].ServiceStatus; st == nil || st.RunningTasks != 1 || st.DesiredTasks != 2 {
		t.Errorf("status %+v", st)
	}
}

func TestPublishedDefaultsStored(t *testing.T) {
	var logged bytes.Buffer
	f := newFixture(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	const published = `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"]}}},"EndpointSpec":{"Ports":[{"Protocol":"tcp","TargetPort":80,"PublishedPort":8080}]}}`
	id, warnings := f.create(t, published)
	if len(warnings) != 0 {
		t.Errorf("warnings %q", warnings)
	}
	if h := f.service(t, id).Spec.TaskTemplate.ContainerSpec.Healthcheck; h.Interval != 5e9 || h.Timeout != 3e9 || h.Retries != 2 || h.StartPeriod != 0 {
		t.Errorf("stored %+v", h)
	}
	const line = `tighter health probe defaults applied to a published service name=web published=8080->80/tcp applied=interval=5s timeout=3s retries=2`
	if !strings.Contains(logged.String(), line) {
		t.Errorf("log %s, want %s", &logged, line)
	}
	// Removing the port restores nothing; the spec is sent back as it was read.
	svc := f.service(t, id)
	svc.Spec.EndpointSpec.Ports = nil
	logged.Reset()
	body, err := json.Marshal(svc.Spec)
	if err != nil {
		t.Fatal(err)
	}
	f.must(t, 200, "POST", fmt.Sprintf("/services/web/update?version=%d", svc.Version.Index), string(body))
	if h := f.service(t, id).Spec.TaskTemplate.ContainerSpec.Healthcheck; h.Interval != 5e9 || h.Retries != 2 {
		t.Errorf("restored %+v", h)
	}
	if strings.Contains(logged.String(), "tighter") {
		t.Errorf("logged again: %s", &logged)
	}
	// At update too: a port and a fresh probe. A refused one has applied nothing.
	version := f.service(t, id).Version.Index
	f.refused(t, 500, "out of sequence", "POST", fmt.Sprintf("/services/web/update?version=%d", version-1), published)
	if strings.Contains(logged.String(), "tighter") {
		t.Errorf("logged of a refused update: %s", &logged)
	}
	f.must(t, 200, "POST", fmt.Sprintf("/services/web/update?version=%d", version), published)
	if !strings.Contains(logged.String(), line) {
		t.Errorf("log at update %s", &logged)
	}
}

func TestNoProbeWarning(t *testing.T) {
	var logged bytes.Buffer
	f := newFixture(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	const spec = `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}},"EndpointSpec":{"Ports":[{"Protocol":"tcp","TargetPort":80,"PublishedPort":8080}]}}`
	const warning = "service web publishes 8080->80/tcp and has no healthcheck: its tasks are published as soon as the jail starts, before the workload can answer, and stay published while a dead container keeps its share of the traffic"
	_, warnings := f.create(t, spec)
	if len(warnings) != 1 || warnings[0] != warning {
		t.Errorf("create: %q", warnings)
	}
	if n := strings.Count(logged.String(), warning); n != 1 {
		t.Errorf("logged %d times: %s", n, &logged)
	}
	resp := into[swarm.ServiceUpdateResponse](t, f.must(t, 200, "POST", "/services/web/update?version=1", spec))
	if len(resp.Warnings) != 1 || resp.Warnings[0] != warning {
		t.Errorf("update: %q", resp.Warnings)
	}
	// A rollback is warned of for what it brings back, not for what is sent with it.
	const bare = `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`
	update := func(query, spec string) []string {
		version := f.service(t, "web").Version.Index
		return into[swarm.ServiceUpdateResponse](t, f.must(t, 200, "POST", fmt.Sprintf("/services/web/update?%sversion=%d", query, version), spec)).Warnings
	}
	if w := update("", bare); len(w) != 0 {
		t.Errorf("without ports: %q", w)
	}
	if w := update("rollback=previous&", bare); len(w) != 1 || w[0] != warning {
		t.Errorf("rollback to ports: %q", w)
	}
	if w := update("rollback=previous&", spec); len(w) != 0 {
		t.Errorf("rollback to no ports: %q", w)
	}
	// A made-up name is in the warning too.
	_, warnings = f.create(t, strings.Replace(strings.Replace(spec, `"Name":"web",`, "", 1), "8080", "8081", 1))
	if len(warnings) != 1 || strings.HasPrefix(warnings[0], "service  ") {
		t.Errorf("nameless: %q", warnings)
	}
}

func TestPortsTaken(t *testing.T) {
	f := newFixture(t)
	publishing := func(name string, port int) string {
		return fmt.Sprintf(`{"Name":%q,"TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"]}}},"EndpointSpec":{"Ports":[{"Protocol":"tcp","TargetPort":80,"PublishedPort":%d,"PublishMode":"ingress"}]}}`, name, port)
	}
	id, _ := f.create(t, publishing("web", 8080))
	f.refused(t, 400, "port '8080' is already in use by service 'web' ("+id+") as an ingress port", "POST", "/services/create", publishing("other", 8080))

	f.containers.list = func() []executor.Snapshot {
		return []executor.Snapshot{
			{ID: "c1", Name: "runner", Ports: []executor.PortBinding{{Proto: "tcp", Published: 9090, Target: 80}}},
			{ID: "c2", Name: "web.1.x", TaskID: "x", Ports: []executor.PortBinding{{Proto: "tcp", Published: 8080, Target: 80}}},
		}
	}
	f.refused(t, 400, "port '9090' is already in use by container 'runner'", "POST", "/services/create", publishing("other", 9090))

	f.server.portBusy = func(proto string, port uint32) bool { return proto == "tcp" && port == 8081 }
	other, warnings := f.create(t, publishing("other", 8081))
	if len(warnings) != 1 || !strings.Contains(warnings[0], "port 8081/tcp is in use by a process on node vm") {
		t.Errorf("warnings %q", warnings)
	}
	// Not looked at again: the service itself may be what is found.
	resp := into[swarm.ServiceUpdateResponse](t, f.must(t, 200, "POST", "/services/"+other+"/update?version=1", publishing("other", 8081)))
	if len(resp.Warnings) != 0 {
		t.Errorf("warnings at update %q", resp.Warnings)
	}
}

func TestRegistryAuthKept(t *testing.T) {
	f := newFixture(t)
	send := func(path, body, auth string) int {
		req, err := http.NewRequestWithContext(t.Context(), "POST", f.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Registry-Auth", auth)
		resp, err := f.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	kept := func() (auth string) {
		f.cluster.store.View(func(tx store.ReadTx) {
			all, _ := store.FindServices(tx, store.ByName("web"))
			if o := all[0].Spec.Task.GetContainer().PullOptions; o != nil {
				auth = o.RegistryAuth
			}
		})
		return auth
	}
	const first, second = "eyJ1c2VybmFtZSI6ImEiLCJwYXNzd29yZCI6ImIifQ==", "eyJ1c2VybmFtZSI6ImMiLCJwYXNzd29yZCI6ImQifQ=="
	if code := send("/services/create", webSpec("1"), "!!!"); code != 400 {
		t.Errorf("junk credentials: %d", code)
	}
	if code := send("/services/create", webSpec("1"), first); code != 201 || kept() != first {
		t.Fatalf("%d, kept %q", code, kept())
	}
	update := func(query, auth string) {
		t.Helper()
		v := f.service(t, "web").Version.Index
		if code := send(fmt.Sprintf("/services/web/update?version=%d%s", v, query), webSpec("2"), auth); code != 200 {
			t.Fatalf("%d", code)
		}
	}
	if update("", ""); kept() != first {
		t.Errorf("lost at update: %q", kept())
	}
	if update("", second); kept() != second {
		t.Errorf("not replaced: %q", kept())
	}
	if update("&registryAuthFrom=previous-spec", ""); kept() != first {
		t.Errorf("not the previous one's: %q", kept())
	}
	if body := f.must(t, 200, "GET", "/services/web", ""); strings.Contains(body, first) {
		t.Error("credentials are shown")
	}
}

func TestWorkerIsRefused(t *testing.T) {
	f := newFixture(t)
	f.server.cfg.Cluster = worker{f.cluster}
	for _, path := range []string{"/services", "/services/web/logs?stdout=1", "/tasks", "/nodes", "/swarm", "/secrets", "/configs"} {
		f.refused(t, 503, "This node is not a swarm manager", "GET", path, "")
	}
}

type worker struct{ *fakeCluster }

func (worker) Manager() bool { return false }
