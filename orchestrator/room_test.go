// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"slices"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// TestRoom: in how many slots old tasks that serve make way at a time, and which
// slots count as taken down already.
func TestRoom(t *testing.T) {
	const before = "an earlier rollout"
	run, starting, ready, ended := api.TaskStateRunning, api.TaskStateStarting, api.TaskStateReady, api.TaskStateFailed
	id := func() string {
		s := serviceOf(3)
		s.UpdateStatus = &api.UpdateStatus{State: api.UpdateStatus_UPDATING, StartedAt: timestamp(epoch)}
		return rolloutOf(s).id
	}()
	// Labels come as key and value.
	labelled := func(x *api.Task, labels []string) *api.Task {
		if x.Status.State > run {
			x.DesiredState = api.TaskStateShutdown
		}
		for i := 0; i < len(labels); i += 2 {
			setLabel(x, labels[i], labels[i+1])
		}
		return x
	}
	old := func(slot uint64, state api.TaskState, labels ...string) *api.Task {
		x := taskAt(slot, "n1", state, time.Hour)
		x.ID += "-old"
		older(x)
		return labelled(x, labels)
	}
	next := func(slot uint64, state api.TaskState, labels ...string) *api.Task {
		return labelled(taskAt(slot, "n1", state, time.Minute), append([]string{LabelRollout, id}, labels...))
	}
	prepared := func(slots ...uint64) (out []*api.Task) {
		for _, n := range slots {
			out = append(out, next(n, ready), old(n, run))
		}
		return out
	}
	for _, c := range []struct {
		name        string
		parallelism uint64
		first       []*api.Task // before the prepared ones of the other slots
		want        []uint64    // the slots whose old task makes way
	}{
		{"as many as may", 2, prepared(1), []uint64{1, 2}},
		{"no limit", 0, prepared(1), []uint64{1, 2, 3}},
		{"one is down", 2, []*api.Task{next(1, starting)}, []uint64{2}},
		{"one is down, its old task too", 2, []*api.Task{next(1, starting), old(1, starting)}, []uint64{1, 2}},
		{"its old task serves", 2, []*api.Task{next(1, starting), old(1, run, LabelRollout, before)}, []uint64{1, 2}},
		{"it failed", 2, []*api.Task{next(1, starting, LabelFailed, id)}, []uint64{2, 3}},
		{"it had proved itself", 2, []*api.Task{next(1, starting, LabelProven, formatTime(epoch))}, []uint64{2, 3}},
		{"an earlier rollout took it down", 2, []*api.Task{old(1, starting, LabelRollout, before)}, []uint64{2}},
		{"and nothing is left there", 2, []*api.Task{old(1, ended, LabelRollout, before)}, []uint64{2}},
		{"it had proved itself in that one", 2, []*api.Task{old(1, starting, LabelRollout, before, LabelProven, "x")}, []uint64{2, 3}},
		{"and nothing is left of it", 2, []*api.Task{old(1, ended, LabelRollout, before, LabelProven, "x")}, []uint64{2, 3}},
		{"it is down by itself", 2, []*api.Task{old(1, starting)}, []uint64{2, 3}},
		// It would take up room for ever: nothing is rolled there.
		{"it is of this spec and was given up", 1, []*api.Task{labelled(next(1, ended), []string{LabelRollout, before, LabelEnd, "none"})}, []uint64{2}},
		{"proof costs nothing", 2, []*api.Task{next(1, run), old(1, run)}, []uint64{1, 2, 3}},
		{"an earlier proof does not either", 2, []*api.Task{next(1, ready, LabelProven, "x"), old(1, run)}, []uint64{1, 2, 3}},
	} {
		service := serviceOf(3)
		service.Spec.Update.Parallelism = c.parallelism
		service.UpdateStatus = &api.UpdateStatus{State: api.UpdateStatus_UPDATING, StartedAt: timestamp(epoch)}
		s := newSituation(View{Service: service, Tasks: append(prepared(2, 3), c.first...), Nodes: upNodes("n1")}, epoch)
		var got []uint64
		for _, change := range s.advance(s.progress()) {
			for _, x := range change.Update {
				if x.DesiredState == api.TaskStateShutdown {
					got = append(got, x.Slot)
				}
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the old tasks of slots %v make way, want %v", c.name, got, c.want)
		}
	}
}
