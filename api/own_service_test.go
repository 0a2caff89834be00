// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/api/wire"
	"satld/orchestrator"
)

func TestBudgetText(t *testing.T) {
	for _, c := range []struct {
		budget    wire.Budget
		most      uint64
		exhausted []string
		want      string
	}{
		{wire.Budget{Condition: "any"}, 0, nil, "no limit, 0 used"},
		{wire.Budget{Condition: "any"}, 7, nil, "no limit, 7 used"},
		{wire.Budget{Condition: "none"}, 0, nil, "tasks are never restarted"},
		{wire.Budget{Condition: "on-failure", MaxAttempts: 3}, 2, nil, "2 of 3 attempts used"},
		{wire.Budget{Condition: "any", MaxAttempts: 3, Window: time.Minute}, 1, nil, "1 of 3 attempts used in 1m0s"},
		{wire.Budget{Condition: "any", MaxAttempts: 5}, 5, []string{"slot 1"}, "restart budget exhausted (5/5): slot 1"},
		{wire.Budget{Condition: "any", MaxAttempts: 5, Window: time.Minute}, 5, []string{"slot 1", "slot 4"}, "restart budget exhausted (5/5 in 1m0s): slot 1, slot 4"},
		{wire.Budget{Condition: "any"}, 5, []string{"node vm"}, "restart budget exhausted: node vm"},
	} {
		if got := budgetText(c.budget, c.most, c.exhausted); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestServiceMore: bounds and budget of a service that is there.
func TestServiceMore(t *testing.T) {
	f := newFixture(t)
	web, _ := f.create(t, `{"Name":"web","Labels":{"satl.traffic.fail-open":"true"},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Healthcheck":{"Test":["CMD","x"]}},
		"RestartPolicy":{"Condition":"any","MaxAttempts":3,"Window":60000000000,"Delay":1000000000}},"Mode":{"Replicated":{"Replicas":2}},
		"EndpointSpec":{"Ports":[{"Protocol":"tcp","TargetPort":80,"PublishedPort":8080}]}}`)
	f.runTasks(t, web, 2)
	get := func() wire.Service {
		t.Helper()
		return into[wire.Service](t, f.must(t, 200, "GET", "/satl/v1/services/web", ""))
	}
	s := get()
	if s.ID != web || s.Name != "web" || s.Version != 1 || !s.FailOpen || s.Explain.Bounds.OutOfPool != 39*time.Second || len(s.Explain.Warnings) != 0 {
		t.Errorf("%+v", s)
	}
	b := s.Budget
	if b.MaxAttempts != 3 || b.Window != time.Minute || b.Delay != time.Second || b.Condition != "any" || b.Exhausted || b.Text != "0 of 3 attempts used in 1m0s" || len(b.Slots) != 2 {
		t.Errorf("%+v", b)
	}
	f.cluster.update(t, func(tx store.Tx) error {
		task := store.GetTask(tx, web[:20]+"2")
		task.Status.State = api.TaskStateFailed
		task.Annotations.Labels = map[string]string{orchestrator.LabelCount: "3", orchestrator.LabelExhausted: "3 attempts in 1m"}
		return store.UpdateTask(tx, task)
	})
	if b := get().Budget; !b.Exhausted || b.Text != "restart budget exhausted (3/3 in 1m0s): slot 2" || b.Slots[0].Exhausted || !b.Slots[1].Exhausted {
		t.Errorf("%+v", b)
	}
	f.create(t, `{"Name":"plain","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`)
	plain := into[wire.Service](t, f.must(t, 200, "GET", "/satl/v1/services/plain", ""))
	if plain.Explain.Probe != nil || plain.Explain.Bounds != nil || plain.Budget.Delay != 5*time.Second || plain.Budget.Text != "no limit, 0 used" {
		t.Errorf("%+v", plain)
	}
	// A spec that this satld would refuse, stored by another one.
	f.cluster.update(t, func(tx store.Tx) error {
		found, err := store.FindServices(tx, store.ByName("plain"))
		if err != nil {
			return err
		}
		found[0].Spec.Task.GetContainer().Labels = map[string]string{"satl.health.nonsense": "1"}
		return store.UpdateService(tx, found[0])
	})
	plain = into[wire.Service](t, f.must(t, 200, "GET", "/satl/v1/services/plain", ""))
	if len(plain.Explain.Warnings) != 1 || !strings.Contains(plain.Explain.Warnings[0], "satl.health.nonsense") {
		t.Errorf("%+v", plain.Explain)
	}
	f.refused(t, 404, "service nope not found", "GET", "/satl/v1/services/nope", "")
}
