// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	goevents "github.com/docker/go-events"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	satlevents "satld/events"
	"satld/orchestrator"
)

func TestEventMatches(t *testing.T) {
	container := satlevents.Container("health_status: healthy", "c0ffee", map[string]string{"name": "web.1.x", "image": "bb:1", "app": "shop"})
	container.Scope = "local"
	image := events.Message{Type: events.ImageEventType, Action: "pull", Scope: "local", Actor: events.Actor{ID: "bb:1", Attributes: map[string]string{"name": "bb"}}}
	service := events.Message{Type: events.ServiceEventType, Action: "update", Scope: "swarm", Actor: events.Actor{ID: "svc1", Attributes: map[string]string{"name": "web"}}}
	for _, c := range []struct {
		filter string
		want   string // which of the three match
	}{
		{`{}`, "cis"},
		{`{"type":["container"]}`, "c"},
		{`{"type":["image","service"]}`, "is"},
		{`{"event":["update"]}`, "s"},
		{`{"event":["health_status"]}`, "c"},
		{`{"event":["health_status: healthy"]}`, "c"},
		{`{"event":["health_status: unhealthy"]}`, ""},
		{`{"container":["c0ff"]}`, "c"},
		{`{"container":["web"]}`, "c"}, // a prefix of its name, and not the service of that name
		{`{"service":["web"]}`, "s"},
		{`{"service":["svc1"]}`, "s"},
		{`{"image":["bb:1"]}`, "ci"},
		{`{"image":["bb"]}`, "ci"},
		{`{"image":["other"]}`, ""},
		{`{"label":["app=shop"]}`, "c"},
		{`{"label":["app"]}`, "c"},
		{`{"label":["app=bank"]}`, ""},
		{`{"scope":["swarm"]}`, "s"},
		{`{"node":["x"]}`, ""},
		{`{"daemon":["x"]}`, ""},
		{`{"network":["x"]}`, ""},
		{`{"type":["container"],"event":["update"]}`, ""},
	} {
		args, err := filters.FromJSON(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i, m := range []events.Message{container, image, service} {
			if eventMatches(args, m) {
				got += "cis"[i : i+1]
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.filter, got, c.want)
		}
	}
}

func TestEventStream(t *testing.T) {
	f := newFixture(t)
	at := func(sec int64, name string) {
		m := satlevents.Container("start", name, map[string]string{"name": name})
		m.Time, m.TimeNano = sec, sec*int64(time.Second)
		f.events.Publish(m)
	}
	at(100, "a")
	at(200, "b")
	at(300, "c")
	past := func(query string) string {
		var ids []string
		dec := json.NewDecoder(strings.NewReader(f.must(t, 200, "GET", "/events?"+query, "")))
		for {
			var m events.Message
			if err := dec.Decode(&m); err == io.EOF {
				return strings.Join(ids, " ")
			} else if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, m.Actor.ID)
		}
	}
	for query, want := range map[string]string{
		"since=1&until=1000":   "a b c",
		"since=200&until=1000": "b c",
		"since=150&until=250":  "b",
		"until=1000":           "",
		`since=1&until=1000&filters={"container":["b"]}`: "b",
		`since=1&until=1000&filters={"event":["die"]}`:   "",
	} {
		if got := past(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	f.refused(t, 400, "invalid filter 'x'", "GET", `/events?filters={"x":["y"]}`, "")
	f.refused(t, 400, "cannot be after", "GET", "/events?since=10&until=5", "")
	f.refused(t, 400, "since", "GET", "/events?since=yesterday", "")

	// Live: the stream is open before anything happens, and ends with the request.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", f.URL+`/events?filters={"type":["container"]}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for i := range 3 {
		f.events.Publish(events.Message{Type: events.ImageEventType, Action: "pull"})
		f.events.Publish(satlevents.Container("start", fmt.Sprint(i), nil))
		var m events.Message
		if err := dec.Decode(&m); err != nil || m.Actor.ID != fmt.Sprint(i) || m.Status != "start" {
			t.Fatalf("%v %+v", err, m)
		}
	}
	// until in the future ends the stream by itself.
	if got := past("until=" + fmt.Sprint(time.Now().Add(time.Second).Unix())); got != "" {
		t.Errorf("%q", got)
	}
}

func TestStoreEvent(t *testing.T) {
	service := func(image string, replicas, version uint64, state *api.UpdateStatus) *api.Service {
		return &api.Service{ID: "s1", SpecVersion: &api.Version{Index: version}, UpdateStatus: state, Spec: api.ServiceSpec{
			Annotations: api.Annotations{Name: "web"},
			Task:        api.TaskSpec{Runtime: &api.TaskSpec_Container{Container: &api.ContainerSpec{Image: image}}},
			Mode:        &api.ServiceSpec_Replicated{Replicated: &api.ReplicatedService{Replicas: replicas}},
		}}
	}
	node := func(a api.NodeSpec_Availability, s api.NodeStatus_State) *api.Node {
		return &api.Node{ID: "n1", Spec: api.NodeSpec{Availability: a}, Status: api.NodeStatus{State: s}, Description: &api.NodeDescription{Hostname: "vm"}}
	}
	started := &api.UpdateStatus{State: api.UpdateStatus_UPDATING}
	task := func(slot uint64, spent string) *api.Task {
		t := &api.Task{ID: "t1", ServiceID: "s1", Slot: slot, NodeID: "n1", ServiceAnnotations: api.Annotations{Name: "web"}, Status: api.TaskStatus{Err: "exit 1"}}
		if spent != "" {
			t.Annotations.Labels = map[string]string{orchestrator.LabelExhausted: spent}
		}
		return t
	}
	for _, c := range []struct {
		change goevents.Event
		want   string // "" is nothing to tell
	}{
		{api.EventCreateService{Service: service("bb:1", 1, 0, nil)}, "service create s1 name=web"},
		{api.EventDeleteService{Service: service("bb:1", 1, 0, nil)}, "service remove s1 name=web"},
		{api.EventUpdateService{Service: service("bb:2", 3, 5, nil), OldService: service("bb:1", 1, 0, nil)},
			"service update s1 image.new=bb:2 image.old=bb:1 name=web replicas.new=3 replicas.old=1"},
		{api.EventUpdateService{Service: service("bb:1", 1, 0, started), OldService: service("bb:1", 1, 0, nil)}, "service update s1 name=web updatestate.new=updating"},
		{api.EventUpdateService{Service: service("bb:1", 1, 0, nil), OldService: service("bb:1", 1, 0, nil)}, ""}, // the allocator's
		{api.EventUpdateNode{Node: node(api.NodeAvailabilityDrain, api.NodeStatus_READY), OldNode: node(api.NodeAvailabilityActive, api.NodeStatus_DOWN)},
			"node update n1 availability.new=drain availability.old=active name=vm state.new=ready state.old=down"},
		{api.EventUpdateNode{Node: node(api.NodeAvailabilityActive, api.NodeStatus_READY), OldNode: node(api.NodeAvailabilityActive, api.NodeStatus_READY)}, ""},
		{api.EventCreateNode{Node: node(api.NodeAvailabilityActive, api.NodeStatus_READY)}, "node create n1 name=vm"},
		{api.EventDeleteNode{Node: node(api.NodeAvailabilityActive, api.NodeStatus_READY)}, "node remove n1 name=vm"},
		{api.EventCreateNetwork{Network: &api.Network{ID: "net1", Spec: api.NetworkSpec{Annotations: api.Annotations{Name: "back"}}}}, "network create net1 name=back type=overlay"},
		{api.EventDeleteNetwork{Network: &api.Network{ID: "net1", Spec: api.NetworkSpec{Annotations: api.Annotations{Name: "back"}}}}, "network remove net1 name=back type=overlay"},
		{api.EventCreateNetwork{Network: &api.Network{ID: "i", Spec: api.NetworkSpec{Ingress: true}}}, ""},
		{api.EventCreateTask{}, ""},
		// cases/budget.md, budget-3: told once, when it happens.
		{api.EventUpdateTask{Task: task(2, "3 attempts in 1m"), OldTask: task(2, "")}, "service restart_budget_exhausted s1 error=exit 1 name=web slot=2 spent=3 attempts in 1m task=t1"},
		{api.EventUpdateTask{Task: task(0, "1 attempt"), OldTask: task(0, "")}, "service restart_budget_exhausted s1 error=exit 1 name=web node=n1 spent=1 attempt task=t1"},
		{api.EventUpdateTask{Task: task(2, "3 attempts"), OldTask: task(2, "3 attempts")}, ""},
		{api.EventUpdateTask{Task: task(2, ""), OldTask: task(2, "")}, ""},
	} {
		m, ok := storeEvent(c.change)
		got := ""
		if ok {
			var words []string
			for k, v := range m.Actor.Attributes {
				words = append(words, k+"="+v)
			}
			got = fmt.Sprintf("%s %s %s %s", m.Type, m.Action, m.Actor.ID, sorted(words))
			if m.Scope != "swarm" {
				t.Errorf("scope %s", m.Scope)
			}
		}
		if got != c.want {
			t.Errorf("%T: %q, want %q", c.change, got, c.want)
		}
	}
}

// TestRun follows the store from where it stands, until its context ends.
func TestRun(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.server.Run(ctx) }()
	_, live, unsubscribe := f.events.Subscribe(time.Time{})
	defer unsubscribe()
	// The watch begins at some time after Run began.
	var got events.Message
	for i := 0; got.Action == ""; i++ {
		f.create(t, fmt.Sprintf(`{"Name":"web%d","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`, i))
		select {
		case got = <-live:
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got.Type != events.ServiceEventType || got.Action != "create" || got.Scope != "swarm" || got.TimeNano == 0 || !strings.HasPrefix(got.Actor.Attributes["name"], "web") {
		t.Errorf("%+v", got)
	}
	f.cluster.update(t, func(tx store.Tx) error {
		n := store.GetNode(tx, fakeNodeID)
		n.Spec.Availability = api.NodeAvailabilityPause
		return store.UpdateNode(tx, n)
	})
	for got.Type != events.NodeEventType {
		select {
		case got = <-live:
		case <-time.After(10 * time.Second):
			t.Fatal("no node event")
		}
	}
	if got.Actor.Attributes["availability.new"] != "pause" {
		t.Errorf("%+v", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
