// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// TestMayReplace is the rule of satl.health.replace-parallelism, slot by slot.
func TestMayReplace(t *testing.T) {
	run, dead := api.TaskStateRunning, api.TaskStateFailed
	task := func(slot uint64, state api.TaskState, age time.Duration, labels ...string) *api.Task {
		x := taskAt(slot, "n1", state, age)
		x.ID += "-" + age.String()
		if ended(x) {
			x.DesiredState = api.TaskStateShutdown
		}
		for i := 0; i < len(labels); i += 2 {
			setLabel(x, labels[i], labels[i+1])
		}
		return x
	}
	granted := func(ago time.Duration) []string { return []string{LabelGranted, formatTime(epoch.Add(-ago))} }
	asks := task(1, run, time.Hour)
	for _, c := range []struct {
		name       string
		limit      string
		others     []*api.Task
		may, grant bool
	}{
		{"no label", "", nil, true, false},
		{"no limit", "0", []*api.Task{task(2, run, time.Hour, granted(time.Second)...)}, true, false},
		{"no number", "some", []*api.Task{task(2, run, time.Hour, granted(time.Second)...)}, true, false},
		{"nobody else", "1", nil, true, true},
		{"others run", "1", []*api.Task{task(2, run, time.Hour), task(3, run, time.Hour)}, true, true},
		{"another is granted and still runs", "1", []*api.Task{task(2, run, time.Hour, granted(time.Second)...)}, false, false},
		{"another is granted, two may", "2", []*api.Task{task(2, run, time.Hour, granted(time.Second)...)}, true, true},
		{"another was granted and recovered", "1", []*api.Task{task(2, run, time.Hour, granted(2*time.Minute)...)}, true, true},
		{"another failed just now", "1", []*api.Task{task(2, dead, time.Hour, granted(time.Second)...)}, false, false},
		{"another's successor waits", "1", []*api.Task{task(2, dead, time.Hour, granted(time.Second)...), task(2, api.TaskStateReady, time.Second)}, false, false},
		{"another's successor starts", "1", []*api.Task{task(2, dead, time.Hour, granted(time.Minute)...), task(2, api.TaskStateStarting, 30*time.Second)}, false, false},
		{"another's successor is past its deadline", "1", []*api.Task{
			task(2, dead, time.Hour, granted(time.Minute)...), task(2, api.TaskStateStarting, StartLimit+time.Second)}, true, true},
		{"another's successor runs", "1", []*api.Task{task(2, dead, time.Hour, granted(time.Minute)...), task(2, run, time.Second)}, true, true},
		{"another's budget is exhausted", "1", []*api.Task{task(2, dead, time.Hour, append(granted(time.Minute), LabelExhausted, "1 attempt")...)}, true, true},
		{"another is to have no successor", "1", []*api.Task{task(2, dead, time.Hour, append(granted(time.Minute), LabelEnd, "none")...)}, true, true},
		{"another, granted and told to stop, stops", "1", []*api.Task{stop(task(2, run, time.Hour, granted(time.Minute)...), epoch)}, false, false},
		{"another is slow to stop", "1", []*api.Task{stop(task(2, run, time.Hour, granted(2*time.Minute)...), epoch)}, false, false},
		{"another's successor is the last", "1", []*api.Task{
			task(2, dead, time.Hour, granted(time.Minute)...), task(2, dead, time.Second, LabelExhausted, "1 attempt")}, true, true},
		{"another failed without asking", "1", []*api.Task{task(2, dead, time.Hour), task(2, api.TaskStateStarting, time.Second)}, true, true},
	} {
		v := View{Service: serviceOf(4), Nodes: upNodes("n1"), Tasks: append([]*api.Task{asks}, c.others...)}
		if c.limit != "" {
			v.Service.Spec.Annotations.Labels = map[string]string{LabelParallelism: c.limit}
		}
		if may, grant := MayReplace(v, asks.ID, epoch); may != c.may || grant != c.grant {
			t.Errorf("%s: %v %v, want %v %v", c.name, may, grant, c.may, c.grant)
		}
	}
	// Who is on its way out needs no turn, whoever has one; nor does one of a
	// service that is gone, or none of ours.
	busy := task(2, run, time.Hour, granted(time.Second)...)
	for name, x := range map[string]*api.Task{"to stop": stop(asks, epoch), "ended": task(1, dead, time.Hour)} {
		v := View{Service: serviceOf(4), Nodes: upNodes("n1"), Tasks: []*api.Task{x, busy}}
		v.Service.Spec.Annotations.Labels = map[string]string{LabelParallelism: "1"}
		if may, grant := MayReplace(v, x.ID, epoch); !may || grant {
			t.Errorf("%s: %v %v", name, may, grant)
		}
	}
	job := serviceOf(4)
	job.Spec.Annotations.Labels = map[string]string{LabelParallelism: "1"}
	job.Spec.Mode = &api.ServiceSpec_ReplicatedJob{ReplicatedJob: &api.ReplicatedJob{}}
	for name, service := range map[string]*api.Service{"gone": nil, "a job": job} {
		if may, grant := MayReplace(View{Service: service, Nodes: upNodes("n1"), Tasks: []*api.Task{asks, busy}}, asks.ID, epoch); !may || grant {
			t.Errorf("service is %s: %v %v", name, may, grant)
		}
	}
	// Who was granted hears yes again, without another write.
	v := View{Service: serviceOf(4), Nodes: upNodes("n1"), Tasks: []*api.Task{task(1, run, time.Hour, granted(time.Second)...)}}
	v.Service.Spec.Annotations.Labels = map[string]string{LabelParallelism: "1"}
	if may, grant := MayReplace(v, v.Tasks[0].ID, epoch); !may || grant {
		t.Error(may, grant)
	}
}
