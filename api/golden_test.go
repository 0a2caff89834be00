// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

// recording is one exchange of the docker CLI with a real Docker Engine, as
// recorded in testdata/recorded.
type recording struct {
	Method     string
	URI        string `json:"uri"`
	Status     int
	ReqBody    json.RawMessage
	RespBody   any
	RespHeader map[string]string
}

func readRecording(t *testing.T, name string) recording {
	t.Helper()
	matches, err := filepath.Glob(filepath.Join("testdata", "recorded", name+"-*.json"))
	if err != nil || len(matches) != 1 {
		t.Fatalf("recording %s: %v %v", name, matches, err)
	}
	b, err := os.ReadFile(matches[0])
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%s: %v", matches[0], err)
	}
	return r
}

// leftOut are fields of the recorded answers (Docker 20.10) that ours lack,
// with the reason.
var leftOut = map[string]string{
	"VirtualIPs":                          "discovery is DNS, there are none",
	"Peers":                               "no gossip between nodes",
	"KernelMemory":                        "gone from Docker since API 1.42",
	"KernelMemoryTCP":                     "not with every cgroup version",
	"BridgeNfIptables":                    "gone from Docker since API 1.50",
	"BridgeNfIp6tables":                   "gone from Docker since API 1.50",
	"Expected":                            "gone from Docker since API 1.49",
	"AllowNondistributableArtifactsCIDRs": "gone from Docker since API 1.47",
	"AllowNondistributableArtifactsHostnames":        "gone from Docker since API 1.47",
	"com.docker.network.driver.overlay.vxlanid_list": "no vxlan on one node",
	"runc":                           "named as in the configuration",
	"io.containerd.runc.v2":          "no containerd",
	"io.containerd.runtime.v1.linux": "no containerd",
	"Plugins":                        "named by the executor",
}

// hasShape checks that got has what want has, of the same kinds.
func hasShape(t *testing.T, path string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: %T, want an object", path, got)
			return
		}
		for k, v := range w {
			gv, present := g[k]
			switch {
			case present:
				hasShape(t, path+"."+k, v, gv)
			case leftOut[k] == "":
				t.Errorf("%s.%s is missing", path, k)
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			t.Errorf("%s: %T, want a list", path, got)
			return
		}
		if len(w) > 0 && len(g) > 0 {
			hasShape(t, path+"[0]", w[0], g[0])
		}
	case nil: // says nothing of the kind
	default:
		if got != nil && fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
			t.Errorf("%s: %T %v, want %T", path, got, got, want)
		}
	}
}

// TestRecordedExchanges replays what the docker CLI sent to a real engine, in
// its order, and compares status and shape of the answers.
func TestRecordedExchanges(t *testing.T) {
	f := newFixture(t)
	// IDs of the recording and what stands for them here.
	ids := []string{
		"mtjm7qalbb3ltvq3tiqpkot30", fakeNodeID,
		"jb8gm4514dx1uhgispfjewy3g", hostNetworkID,
	}
	replay := func(name string) any {
		t.Helper()
		r := readRecording(t, name)
		translate := strings.NewReplacer(ids...)
		uri := translate.Replace(r.URI)
		if strings.Contains(uri, "version=") {
			// The version that the service has now.
			u, err := url.Parse(uri)
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			q.Set("version", fmt.Sprint(f.service(t, "web").Version.Index))
			u.RawQuery = q.Encode()
			uri = u.String()
		}
		code, h, body := f.do(t, r.Method, uri, translate.Replace(string(r.ReqBody)))
		if code != r.Status {
			t.Fatalf("%s: %s %s: %d %s, want %d", name, r.Method, uri, code, body, r.Status)
		}
		for header := range r.RespHeader {
			if header != "Content-Type" && h.Get(header) == "" {
				t.Errorf("%s: no header %s", name, header)
			}
		}
		if r.RespBody == nil {
			return nil
		}
		if got, want := h.Get("Content-Type"), r.RespHeader["Content-Type"]; got != want {
			t.Errorf("%s: Content-Type %q, want %q", name, got, want)
		}
		var got any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v: %s", name, err, body)
		}
		hasShape(t, name, r.RespBody, got)
		return got
	}
	created := func(name string) string {
		t.Helper()
		m, ok := replay(name).(map[string]any)
		if !ok {
			t.Fatalf("%s: no object", name)
		}
		for _, key := range []string{"ID", "Id"} {
			if id, ok := m[key].(string); ok {
				return id
			}
		}
		t.Fatalf("%s: no ID in %v", name, m)
		return ""
	}

	for _, name := range []string{"01", "05", "06", "07"} {
		replay(name)
	}
	web := created("09")
	ids = append(ids, "14dgvmzatjgtqwdqryd7y6yp0", web)
	replay("10")
	f.allocate(t, "web")
	f.runTasks(t, web, 2)
	if tasks := replay("11").([]any); len(tasks) != 2 {
		t.Errorf("%d tasks", len(tasks))
	}
	replay("12")
	list := replay("13").([]any)
	if status := list[0].(map[string]any)["ServiceStatus"].(map[string]any); status["RunningTasks"] != 2.0 {
		t.Errorf("status %v", status)
	}
	if none := replay("14").([]any); len(none) != 0 {
		t.Errorf("a name matched as an ID: %v", none)
	}
	for _, name := range []string{"16", "17", "18", "19", "20", "21", "27", "28", "30", "31"} {
		replay(name)
	}
	stack := created("32")
	ids = append(ids, "kitu73mof3w5zso9itya1ppxb", stack)
	f.must(t, 201, "POST", "/services/create", `{"Name":"s1_web","Labels":{"com.docker.stack.image":"bb:1","com.docker.stack.namespace":"s1"},
		"TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Args":["sh"],"Labels":{"com.docker.stack.namespace":"s1"},"Privileges":{"CredentialSpec":null,"SELinuxContext":null},
		"Healthcheck":{"Test":["CMD-SHELL","exit 0"],"Interval":2000000000}},"Resources":{},"RestartPolicy":{"Condition":"on-failure","MaxAttempts":3,"Window":60000000000},
		"Placement":{},"Networks":[{"Target":"s1_default","Aliases":["web"]}]},"Mode":{"Replicated":{"Replicas":2}},
		"UpdateConfig":{"Parallelism":1,"FailureAction":"rollback","MaxFailureRatio":0,"Order":"start-first"},"EndpointSpec":{"Mode":"vip"}}`)
	f.allocate(t, "s1_web")
	for _, name := range []string{"33", "34", "35"} {
		replay(name)
	}
	f.must(t, 200, "DELETE", "/services/s1_web", "")
	for _, name := range []string{"37", "36", "38"} {
		replay(name)
	}
}

// allocate does what the cluster's allocator does to a service.
func (f *fixture) allocate(t testing.TB, name string) {
	t.Helper()
	f.cluster.update(t, func(tx store.Tx) error {
		all, err := store.FindServices(tx, store.ByName(name))
		if err != nil {
			return err
		}
		all[0].Endpoint = &api.Endpoint{Spec: all[0].Spec.Endpoint.Copy()}
		return store.UpdateService(tx, all[0])
	})
}

// runTasks does what the engine would: n running tasks of a service.
func (f *fixture) runTasks(t testing.TB, serviceID string, n int) {
	t.Helper()
	f.cluster.update(t, func(tx store.Tx) error {
		svc := store.GetService(tx, serviceID)
		for slot := 1; slot <= n; slot++ {
			if err := store.CreateTask(tx, &api.Task{
				ID: fmt.Sprintf("%s%d", serviceID[:20], slot), ServiceID: serviceID, Slot: uint64(slot), NodeID: fakeNodeID,
				Spec: svc.Spec.Task, SpecVersion: svc.SpecVersion, ServiceAnnotations: svc.Spec.Annotations,
				DesiredState: api.TaskStateRunning,
				Status:       api.TaskStatus{State: api.TaskStateRunning, Message: "started", PortStatus: &api.PortStatus{}},
			}); err != nil {
				return err
			}
		}
		return nil
	})
}
