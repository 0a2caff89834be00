// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/cluster"
)

func TestTaskList(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, webSpec("1"))
	db, _ := f.create(t, `{"Name":"db","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`)
	f.runTasks(t, web, 2)
	f.runTasks(t, db, 1)
	// A task of an older spec: not up to date, and to be shut down.
	f.cluster.update(t, func(tx store.Tx) error {
		old := store.GetTask(tx, web[:20]+"1").Copy()
		old.ID, old.SpecVersion, old.DesiredState = "oldtask", &api.Version{Index: 77}, api.TaskStateShutdown
		old.Spec.GetContainer().Image = "bb:0"
		return store.CreateTask(tx, old)
	})
	w1, w2, d1 := web[:20]+"1", web[:20]+"2", db[:20]+"1"
	for filter, want := range map[string]string{
		``:                               w1 + " " + w2 + " " + d1 + " oldtask",
		`{"service":["web"]}`:            w1 + " " + w2 + " oldtask",
		`{"service":["` + db + `"]}`:     d1,
		`{"service":["web","db"]}`:       w1 + " " + w2 + " " + d1 + " oldtask",
		`{"id":["old"]}`:                 "oldtask",
		`{"name":["web.2"]}`:             w2,
		`{"label":["a=b"]}`:              w1 + " " + w2 + " oldtask",
		`{"label":["a=c"]}`:              "",
		`{"node":["self"]}`:              w1 + " " + w2 + " " + d1 + " oldtask",
		`{"node":["vm"]}`:                w1 + " " + w2 + " " + d1 + " oldtask",
		`{"desired-state":["running"]}`:  w1 + " " + w2 + " " + d1,
		`{"desired-state":["shutdown"]}`: "oldtask",
		`{"service":{"web":true},"_up-to-date":{"true":true}}`: w1 + " " + w2,
	} {
		seen := map[string]bool{}
		for _, task := range into[[]swarm.Task](t, f.must(t, 200, "GET", "/tasks?filters="+filter, "")) {
			seen[task.ID] = true
		}
		ok := len(seen) == len(strings.Fields(want))
		for _, id := range strings.Fields(want) {
			ok = ok && seen[id]
		}
		if !ok {
			t.Errorf("%s: %v, want %s", filter, seen, want)
		}
	}
	f.refused(t, 404, "service nope not found", "GET", `/tasks?filters={"service":["nope"]}`, "")
	f.refused(t, 404, "node nope not found", "GET", `/tasks?filters={"node":["nope"]}`, "")
	f.refused(t, 400, "desired-state", "GET", `/tasks?filters={"desired-state":["happy"]}`, "")
	f.refused(t, 400, "invalid filter 'health'", "GET", `/tasks?filters={"health":["x"]}`, "")

	task := into[swarm.Task](t, f.must(t, 200, "GET", "/tasks/"+w1, ""))
	if task.Status.State != swarm.TaskStateRunning || task.Slot != 1 || task.NodeID != fakeNodeID || task.Spec.ContainerSpec.Image != "bb:1" {
		t.Errorf("%+v", task)
	}
	f.must(t, 200, "GET", "/tasks/oldt", "")
	f.must(t, 200, "GET", "/tasks/web.1."+w1, "")
	f.refused(t, 404, "task nope not found", "GET", "/tasks/nope", "")
}

func TestNodes(t *testing.T) {
	f := newFixture(t)
	f.cluster.update(t, func(tx store.Tx) error {
		return store.CreateNode(tx, &api.Node{
			ID: "other0000000000000000000001", Role: api.NodeRoleWorker,
			Spec: api.NodeSpec{DesiredRole: api.NodeRoleWorker, Membership: api.NodeMembershipAccepted,
				Annotations: api.Annotations{Labels: map[string]string{"disk": "ssd"}}},
			Description: &api.NodeDescription{Hostname: "vm2", Engine: &api.EngineDescription{}},
			Status:      api.NodeStatus{State: api.NodeStatus_READY},
		})
	})
	for filter, want := range map[string]int{
		``: 2, `{"id":["node"]}`: 1, `{"name":["vm"]}`: 2, `{"name":["vm2"]}`: 1, `{"label":["rack=1"]}`: 1,
		`{"node.label":["disk"]}`: 1, `{"role":["manager"]}`: 1, `{"role":["worker"]}`: 1, `{"role":["manager","worker"]}`: 2,
		`{"membership":["accepted"]}`: 2, `{"membership":["pending"]}`: 0,
	} {
		if got := into[[]swarm.Node](t, f.must(t, 200, "GET", "/nodes?filters="+filter, "")); len(got) != want {
			t.Errorf("%s: %d nodes, want %d", filter, len(got), want)
		}
	}
	f.refused(t, 400, "invalid role filter", "GET", `/nodes?filters={"role":["boss"]}`, "")
	f.refused(t, 400, "invalid membership filter", "GET", `/nodes?filters={"membership":["boss"]}`, "")
	f.refused(t, 400, "invalid filter 'x'", "GET", `/nodes?filters={"x":["boss"]}`, "")

	node := into[swarm.Node](t, f.must(t, 200, "GET", "/nodes/self", ""))
	if node.ID != fakeNodeID || node.ManagerStatus == nil || !node.ManagerStatus.Leader || node.ManagerStatus.Addr != "127.0.0.1:2377" {
		t.Errorf("%+v", node)
	}
	f.refused(t, 404, "node nope not found", "GET", "/nodes/nope", "")
}

func TestNodeUpdate(t *testing.T) {
	f := newFixture(t)
	read := func() swarm.Node { return into[swarm.Node](t, f.must(t, 200, "GET", "/nodes/vm", "")) }
	send := func(version uint64, spec swarm.NodeSpec) (int, string) {
		body, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		code, _, got := f.do(t, "POST", fmt.Sprintf("/nodes/vm/update?version=%d", version), string(body))
		return code, got
	}
	before := read()
	// A change of status between the read and the update is no conflict.
	f.cluster.update(t, func(tx store.Tx) error {
		n := store.GetNode(tx, fakeNodeID)
		n.Status.Message = "busy"
		return store.UpdateNode(tx, n)
	})
	spec := before.Spec
	spec.Availability, spec.Labels = swarm.NodeAvailabilityDrain, map[string]string{"disk": "ssd"}
	if code, got := send(before.Version.Index, spec); code != 200 {
		t.Fatalf("%d %s", code, got)
	}
	after := read()
	if after.Spec.Availability != swarm.NodeAvailabilityDrain || after.Spec.Labels["disk"] != "ssd" || after.Version == before.Version {
		t.Errorf("%+v", after)
	}
	var membership api.NodeSpec_Membership
	f.cluster.store.View(func(tx store.ReadTx) { membership = store.GetNode(tx, fakeNodeID).Spec.Membership })
	if membership != api.NodeMembershipAccepted {
		t.Errorf("an update changed the membership to %v", membership)
	}
	if code, got := send(before.Version.Index, spec); code != 500 || !strings.Contains(got, outOfSequence) {
		t.Errorf("stale: %d %s", code, got)
	}
	spec.Role = swarm.NodeRoleWorker
	if code, got := send(after.Version.Index, spec); code != 400 || !strings.Contains(got, "last manager") {
		t.Errorf("role: %d %s", code, got)
	}
	f.refused(t, 400, "invalid Availability", "POST", "/nodes/vm/update?version=1", `{"Role":"manager","Availability":"lazy"}`)
	f.refused(t, 400, "invalid node version", "POST", "/nodes/vm/update", `{"Role":"manager","Availability":"active"}`)
	f.refused(t, 404, "not found", "POST", "/nodes/nope/update?version=1", `{"Role":"manager","Availability":"active"}`)
	f.refused(t, 400, "must be demoted to worker before removal", "DELETE", "/nodes/vm?force=1", "")
	f.refused(t, 404, "not found", "DELETE", "/nodes/nope", "")
}

func TestSwarm(t *testing.T) {
	f := newFixture(t)
	sw := into[swarm.Swarm](t, f.must(t, 200, "GET", "/swarm", ""))
	if sw.ID != fakeClusterID || sw.JoinTokens.Worker != "SWMTKN-1-worker" || sw.JoinTokens.Manager != "SWMTKN-1-manager" {
		t.Errorf("%+v", sw)
	}
	f.refused(t, 409, "swarm is not locked", "POST", "/swarm/unlock", `{}`)
	if body := f.must(t, 200, "GET", "/swarm/unlockkey", ""); !strings.Contains(body, `"UnlockKey":""`) {
		t.Error(body)
	}

	update := func(query string, change func(*swarm.Spec)) (int, string) {
		now := into[swarm.Swarm](t, f.must(t, 200, "GET", "/swarm", ""))
		change(&now.Spec)
		body, err := json.Marshal(now.Spec)
		if err != nil {
			t.Fatal(err)
		}
		code, _, got := f.do(t, "POST", fmt.Sprintf("/swarm/update?version=%d%s", now.Version.Index, query), string(body))
		return code, got
	}
	limit := int64(9)
	if code, got := update("", func(s *swarm.Spec) {
		s.Orchestration.TaskHistoryRetentionLimit = &limit
		s.Labels = map[string]string{"a": "b"}
	}); code != 200 {
		t.Errorf("%d %s", code, got)
	}
	now := into[swarm.Swarm](t, f.must(t, 200, "GET", "/swarm", ""))
	if *now.Spec.Orchestration.TaskHistoryRetentionLimit != 9 || now.Spec.Labels["a"] != "b" || now.Spec.Raft.ElectionTick != 10 || now.Version == sw.Version {
		t.Errorf("%+v", now)
	}
	if code, got := update("&rotateWorkerToken=true", func(*swarm.Spec) {}); code != 200 {
		t.Errorf("%d %s", code, got)
	}
	rotated := into[swarm.Swarm](t, f.must(t, 200, "GET", "/swarm", ""))
	if rotated.JoinTokens.Worker == now.JoinTokens.Worker || rotated.JoinTokens.Manager != now.JoinTokens.Manager {
		t.Errorf("tokens %+v", rotated.JoinTokens)
	}
	for says, change := range map[string]func(*swarm.Spec){
		"raft settings": func(s *swarm.Spec) { s.Raft.ElectionTick = 99 },
		"autolock":      func(s *swarm.Spec) { s.EncryptionConfig.AutoLockManagers = true },
		"certificate":   func(s *swarm.Spec) { s.CAConfig.ExternalCAs = []*swarm.ExternalCA{{URL: "https://ca"}} },
		"log driver":    func(s *swarm.Spec) { s.TaskDefaults.LogDriver = &swarm.Driver{Name: "json-file"} },
	} {
		if code, got := update("", change); code != 501 || !strings.Contains(got, says) {
			t.Errorf("%s: %d %s", says, code, got)
		}
	}
	if code, got := update("", func(s *swarm.Spec) { s.Name = "other" }); code != 400 {
		t.Errorf("%d %s", code, got)
	}
	f.refused(t, 500, outOfSequence, "POST", "/swarm/update?version=1", `{"Name":"default"}`)
	f.refused(t, 501, "autolock", "POST", "/swarm/update?version=1&rotateManagerUnlockKey=1", `{}`)
}

func TestWhatThereIsNot(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/plugins"} {
		if body := f.must(t, 200, "GET", path, ""); strings.TrimSpace(body) != "[]" {
			t.Errorf("%s: %s", path, body)
		}
		f.refused(t, 400, "invalid filter 'x'", "GET", path+`?filters={"x":["y"]}`, "")
	}
	if body := f.must(t, 200, "GET", "/volumes", ""); !strings.Contains(body, `"Volumes":[]`) {
		t.Error(body)
	}
	for _, c := range []struct {
		status             int
		says, method, path string
	}{
		{501, "volumes are not supported", "POST", "/volumes/create"},
		{404, "no such volume", "GET", "/volumes/x"},
		{404, "no such volume", "DELETE", "/volumes/x"},
		{404, "volumes are not supported", "PUT", "/volumes/x"},
		{501, "building images", "POST", "/build?t=x"},
		{501, "sessions", "POST", "/session"},
		{501, "checkpoints", "GET", "/containers/x/checkpoints"},
		{501, "plugins", "POST", "/plugins/pull?remote=x"},
		{404, "plugin", "GET", "/plugins/x/json"},
	} {
		f.refused(t, c.status, c.says, c.method, c.path, "")
	}
	f.must(t, 204, "DELETE", "/volumes/x?force=1", "")
	f.must(t, 200, "POST", "/volumes/prune", "")
}

// Init, join and leave are the cluster's; what a client asks for beyond that
// is refused.
func TestMembership(t *testing.T) {
	f := newFixture(t)
	if body := f.must(t, 200, "POST", "/swarm/init", `{"ListenAddr":"0.0.0.0:2377","AdvertiseAddr":"10.0.0.1","SubnetSize":24}`); strings.TrimSpace(body) != `"`+fakeNodeID+`"` {
		t.Errorf("init: %s", body)
	}
	f.must(t, 200, "POST", "/swarm/init", `{"ListenAddr":"0.0.0.0:2377","ForceNewCluster":true}`)
	f.must(t, 200, "POST", "/swarm/join", `{"ListenAddr":"0.0.0.0:2377","RemoteAddrs":["10.0.0.9:2377"],"JoinToken":"t","Availability":"drain"}`)
	f.must(t, 200, "POST", "/swarm/leave?force=1", "")
	m := f.cluster.membership
	if len(m.inits) != 1 || m.inits[0] != "10.0.0.1" || m.forced != 1 || len(m.left) != 1 || !m.left[0] {
		t.Errorf("%+v", m)
	}
	if len(m.joined) != 1 || m.joined[0].Managers[0] != "10.0.0.9:2377" || m.joined[0].Token != "t" || m.joined[0].Availability != api.NodeAvailabilityDrain {
		t.Errorf("%+v", m.joined)
	}
	f.refused(t, 501, "autolock", "POST", "/swarm/init", `{"AutoLockManagers":true}`)
	f.refused(t, 501, "overlay-pool", "POST", "/swarm/init", `{"DefaultAddrPool":["10.0.0.0/8"]}`)
	f.refused(t, 501, "always 4789", "POST", "/swarm/init", `{"DataPathPort":4790}`)
	f.refused(t, 501, "--availability", "POST", "/swarm/init", `{"Availability":"drain"}`)
	f.refused(t, 501, "certificate authorities", "POST", "/swarm/init", `{"Spec":{"CAConfig":{"ExternalCAs":[{"Protocol":"cfssl","URL":"https://ca"}]}}}`)
	f.refused(t, 501, "raft settings", "POST", "/swarm/init", `{"Spec":{"Raft":{"SnapshotInterval":1}}}`)
	if len(m.inits) != 1 {
		t.Errorf("refused, and begun: %q", m.inits)
	}
	f.must(t, 200, "POST", "/swarm/init", `{"DataPathPort":4789,"Spec":{"Orchestration":{"TaskHistoryRetentionLimit":7},"Dispatcher":{"HeartbeatPeriod":7000000000}}}`)
	if spec := into[swarm.Swarm](t, f.must(t, 200, "GET", "/swarm", "")).Spec; *spec.Orchestration.TaskHistoryRetentionLimit != 7 || spec.Dispatcher.HeartbeatPeriod != 7*time.Second {
		t.Errorf("begun with %+v", spec)
	}
	f.refused(t, 501, "--listen-addr", "POST", "/swarm/join", `{"ListenAddr":"10.0.0.7:2377"}`)
	f.refused(t, 501, "data path", "POST", "/swarm/join", `{"DataPathAddr":"10.0.0.7"}`)
	f.refused(t, 400, "invalid availability", "POST", "/swarm/join", `{"Availability":"lazy"}`)
	f.cluster.err = cluster.ErrMember
	f.refused(t, 503, "This node is already part of a swarm", "POST", "/swarm/join", `{}`)
	f.refused(t, 503, "This node is already part of a swarm", "POST", "/swarm/init", `{}`)
	f.cluster.err = cluster.ErrLeaveManager
	f.refused(t, 503, "participating as a manager", "POST", "/swarm/leave", "")
}
