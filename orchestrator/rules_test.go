// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"math"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
)

// told is a task that was told to stop some time ago and has not.
func told(slot uint64, node string, ago time.Duration) *api.Task {
	t := stop(taskAt(slot, node, api.TaskStateRunning, time.Hour), epoch.Add(-ago))
	t.ID += "-told"
	return t
}

// TestStopsAreWaitedFor: the successor waits for the one before it, which may
// hold its ports and files, for its grace period and a minute, and for none
// that nobody can wait for.
func TestStopsAreWaitedFor(t *testing.T) {
	withGrace := func(o *api.Task, d time.Duration) *api.Task {
		o.Spec.GetContainer().StopGracePeriod = gogotypes.DurationProto(d)
		return o
	}
	unlabelled := told(1, "n1", 0)
	delete(unlabelled.Annotations.Labels, LabelStopped)
	removed := remove(taskAt(1, "n1", api.TaskStateRunning, time.Hour), epoch.Add(-20*time.Second))
	removed.ID += "-removed"
	dead := told(1, "n1", 5*time.Second)
	dead.Status.State = api.TaskStateShutdown
	pending := told(1, "n1", 5*time.Second)
	pending.Status.State = api.TaskStatePending
	for name, c := range map[string]struct {
		before *api.Task
		want   time.Duration // from now; 0 is no wait
	}{
		"Docker's grace":           {told(1, "n1", 20*time.Second), 50 * time.Second},
		"a grace of its own":       {withGrace(told(1, "n1", 20*time.Second), 30*time.Second), 70 * time.Second},
		"the longest there is":     {withGrace(told(1, "n1", 0), math.MaxInt64), math.MaxInt64},
		"one that is to be gone":   {removed, 50 * time.Second},
		"nobody wrote down when":   {unlabelled, 65 * time.Second}, // from the successor's making
		"it has ended":             {dead, 0},
		"it never came to a node":  {pending, 0},
		"its node is down":         {told(1, "down", 5*time.Second), 0},
		"its node is gone":         {told(1, "gone", 5*time.Second), 0},
		"it was told too long ago": {told(1, "n1", 71*time.Second), 0},
	} {
		next := taskAt(1, "", api.TaskStateNew, 5*time.Second)
		next.DesiredState = api.TaskStateReady
		nodes := upNodes("n1", "down")
		nodes["down"].Status.State = api.NodeStatus_DOWN
		s := newSituation(View{Service: serviceOf(1), Tasks: []*api.Task{next, c.before}, Nodes: nodes}, epoch)
		until := s.stopsUntil(s.slots[0], next)
		if got := max(until.Sub(epoch), 0); got != c.want {
			t.Errorf("%s: waits %v, want %v", name, got, c.want)
		}
		if s.due(s.slots[0], next) != (c.want == 0) {
			t.Errorf("%s: due %t", name, c.want != 0)
		}
		if at, _ := s.startDeadline(s.slots[0], next); at.IsZero() != (c.want != 0) {
			t.Errorf("%s: its start is bounded while it waits: %v", name, at)
		}
	}
	// One that is told twice was told the first time.
	if got := remove(told(1, "n1", time.Minute), epoch); label(got, LabelStopped) != formatTime(epoch.Add(-time.Minute)) {
		t.Errorf("told at %s", label(got, LabelStopped))
	}
}

// TestDeadlineRunsFromTheStop: a start that had to wait for the task before it
// has its time from that one's end.
func TestDeadlineRunsFromTheStop(t *testing.T) {
	before := told(1, "n1", time.Minute)
	before.Status = api.TaskStatus{State: api.TaskStateShutdown, Timestamp: timestamp(epoch.Add(-10 * time.Second))}
	next := taskAt(1, "n1", api.TaskStatePreparing, 2*time.Minute)
	s := newSituation(View{Service: serviceOf(1), Tasks: []*api.Task{next, before}, Nodes: upNodes("n1")}, epoch)
	if at, limit := s.startDeadline(s.slots[0], next); limit != PrepareLimit || at.Sub(epoch) != PrepareLimit-10*time.Second {
		t.Errorf("%v from now, limit %v", at.Sub(epoch), limit)
	}
	// Restarts of the old one that end by themselves draw it out for nobody.
	setLabel(before, LabelStopped, formatTime(epoch.Add(-10*time.Second)))
	if at, _ := s.startDeadline(s.slots[0], next); at.Sub(epoch) != PrepareLimit-2*time.Minute {
		t.Errorf("%v from now, after one that was not waited for", at.Sub(epoch))
	}
}

// TestEarly: a restart that fails before it is due is tried again no sooner, on
// another node or while its service goes to another spec either.
func TestEarly(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*api.Task)
		want   bool
	}{
		"rejected":               {nil, true},
		"failed":                 {func(x *api.Task) { x.Status.State = api.TaskStateFailed }, true},
		"of an older spec":       {older, true},
		"its node is down":       {func(x *api.Task) { x.NodeID = "down" }, true},
		"due":                    {func(x *api.Task) { setLabel(x, LabelDue, formatTime(epoch)) }, false},
		"it was due before":      {func(x *api.Task) { x.DesiredState = api.TaskStateRunning }, false},
		"still preparing":        {func(x *api.Task) { x.Status.State = api.TaskStatePreparing }, false},
		"taken off by its node":  {func(x *api.Task) { x.Status.Message = enforcerMessage }, false},
		"told to stop meanwhile": {func(x *api.Task) { x.DesiredState = api.TaskStateShutdown }, false},
	} {
		x := taskAt(1, "n1", api.TaskStateRejected, 0)
		x.DesiredState = api.TaskStateReady
		setLabel(x, LabelDue, formatTime(epoch.Add(10*time.Second)))
		if c.change != nil {
			c.change(x)
		}
		nodes := upNodes("n1", "down")
		nodes["down"].Status.State = api.NodeStatus_DOWN
		s := newSituation(View{Service: serviceOf(1), Tasks: []*api.Task{x}, Nodes: nodes}, epoch)
		if got := s.early(x); got != c.want || s.next.Equal(epoch.Add(10*time.Second)) != c.want {
			t.Errorf("%s: early %t, next look at %v", name, got, s.next)
		}
	}
}

// TestDueBesideAnother: of two in a slot that wait, the one of the new spec lets
// the other run until the rollout stops it: what it needs may not be here yet.
func TestDueBesideAnother(t *testing.T) {
	for name, c := range map[string]struct {
		next, other func(*api.Task)
		order       api.UpdateConfig_UpdateOrder
		want        bool
	}{
		"new beside old":                {nil, older, api.UpdateConfig_STOP_FIRST, false},
		"old beside new":                {older, nil, api.UpdateConfig_STOP_FIRST, true},
		"both new":                      {nil, nil, api.UpdateConfig_STOP_FIRST, true},
		"both old":                      {older, older, api.UpdateConfig_STOP_FIRST, true},
		"the other runs":                {nil, func(x *api.Task) { x.DesiredState = api.TaskStateRunning }, api.UpdateConfig_STOP_FIRST, false},
		"new beside old, started first": {nil, older, api.UpdateConfig_START_FIRST, true},
	} {
		service := serviceOf(1)
		service.Spec.Update.Order = c.order
		next, other := taskAt(1, "n1", api.TaskStatePreparing, 0), taskAt(1, "n1", api.TaskStateReady, time.Minute)
		other.ID += "-other"
		for x, change := range map[*api.Task]func(*api.Task){next: c.next, other: c.other} {
			if x.DesiredState = api.TaskStateReady; change != nil {
				change(x)
			}
		}
		s := newSituation(View{Service: service, Tasks: []*api.Task{next, other}, Nodes: upNodes("n1")}, epoch)
		if got := s.due(s.slots[0], next); got != c.want {
			t.Errorf("%s: due %t", name, got)
		}
	}
}

// TestYields: which tasks make way before the new one has proved itself
// (cases/update.md, update-7): none for what their node could never hold.
func TestYields(t *testing.T) {
	node := simNode("n1")
	node.Description = &api.NodeDescription{Resources: &api.Resources{MemoryBytes: 1000, NanoCPUs: 2e9}}
	pending := func(err string, memory, cpus int64) *api.Task {
		x := taskAt(1, "", api.TaskStatePending, 0)
		x.Status.Err = err
		if memory+cpus > 0 {
			x.Spec.Resources = &api.ResourceRequirements{Reservations: &api.Resources{MemoryBytes: memory, NanoCPUs: cpus}}
		}
		return x
	}
	ready := taskAt(1, "n1", api.TaskStateReady, 0)
	later := taskAt(1, "n1", api.TaskStateReady, 0)
	setLabel(later, LabelDue, formatTime(epoch.Add(time.Second)))
	failed := taskAt(1, "n1", api.TaskStateFailed, 0)
	const port, room, most = "no suitable node (host-mode port already in use on 1 node)", "no suitable node (insufficient resources on 1 node)", "no suitable node (max replicas per node limit exceed)"
	for name, c := range map[string]struct {
		next                  *api.Task
		stopFirst, startFirst bool
	}{
		"a host-mode port":                 {pending(port, 0, 0), true, true},
		"one that failed for a port":       {failed, false, false},
		"prepared":                         {ready, true, false},
		"prepared, and not yet due":        {later, false, false},
		"as many as the node may have":     {pending(most, 0, 0), true, false},
		"no room, and it asks for nothing": {pending(room, 0, 0), true, false},
		"no room until the old one goes":   {pending(room, 1000, 2e9), true, false},
		"more memory than the node has":    {pending(room, 1001, 1), false, false},
		"more processors than it has":      {pending(room, 1, 2e9+1), false, false},
		"no node for another reason":       {pending("no suitable node (scheduling constraints not satisfied)", 0, 0), false, false},
	} {
		for _, order := range []api.UpdateConfig_UpdateOrder{api.UpdateConfig_STOP_FIRST, api.UpdateConfig_START_FIRST} {
			service := serviceOf(1)
			service.Spec.Update.Order = order
			want := c.stopFirst
			if order == api.UpdateConfig_START_FIRST {
				want = c.startFirst
			}
			s := newSituation(View{Service: service, Nodes: map[string]*api.Node{"n1": node}}, epoch)
			if got := s.yields(c.next, taskAt(1, "n1", api.TaskStateRunning, time.Hour)); got != want {
				t.Errorf("%s, %v: %t", name, order, got)
			}
		}
	}
	s := newSituation(View{Service: serviceOf(1)}, epoch)
	if s.yields(pending(room, 0, 0), taskAt(1, "gone", api.TaskStateRunning, time.Hour)) {
		t.Error("an old task makes way on a node of which nothing is known")
	}
}

// TestExceeds: a rollout goes on while no more than its share of slots failed.
func TestExceeds(t *testing.T) {
	for _, c := range []struct {
		action          api.UpdateConfig_FailureAction
		ratio           float32
		failures, total int
		want            bool
	}{
		{api.UpdateConfig_PAUSE, 0, 0, 0, false},
		{api.UpdateConfig_PAUSE, 0, 0, 4, false},
		{api.UpdateConfig_PAUSE, 0, 1, 100, true},
		{api.UpdateConfig_PAUSE, 0.25, 1, 4, false},
		{api.UpdateConfig_ROLLBACK, 0.25, 2, 4, true},
		{api.UpdateConfig_ROLLBACK, 1, 4, 4, false},
		{api.UpdateConfig_CONTINUE, 0, 4, 4, false},
	} {
		if got := (rolloutConfig{action: c.action, ratio: c.ratio}).exceeds(c.failures, c.total); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestRestartIsNoUpdate: what fails while its service goes to another spec is
// restarted as it was, with its own ports and labels.
func TestRestartIsNoUpdate(t *testing.T) {
	service := serviceOf(1)
	service.Spec.Task.GetContainer().Image = "v2"
	service.Spec.Annotations.Labels = map[string]string{"of": "v2"}
	service.Spec.Endpoint = &api.EndpointSpec{Ports: []*api.PortConfig{{TargetPort: 2}}}
	service.SpecVersion = &api.Version{Index: 8}
	old := taskAt(1, "n1", api.TaskStateFailed, 0)
	old.ServiceAnnotations = api.Annotations{Name: "web", Labels: map[string]string{"of": "v1"}}
	old.Endpoint = &api.Endpoint{Spec: &api.EndpointSpec{Ports: []*api.PortConfig{{TargetPort: 1}}}}
	s := newSituation(View{Service: service, Tasks: []*api.Task{old}, Nodes: upNodes("n1")}, epoch)
	next := s.again(old, slotKey{number: 1})
	if next.Spec.GetContainer().Image != "v1" || next.ServiceAnnotations.Labels["of"] != "v1" || next.Endpoint.Spec.Ports[0].TargetPort != 1 ||
		!sameVersion(next.SpecVersion, old.SpecVersion) || next.DesiredState != api.TaskStateReady {
		t.Errorf("%+v", next)
	}
	if service.Spec.Task.GetContainer().Image != "v2" || service.SpecVersion.Index != 8 {
		t.Error("the service was changed")
	}
}

// TestSpent: how a budget was used up, in words.
func TestSpent(t *testing.T) {
	for want, p := range map[string]policy{
		"1 attempt": {max: 1}, "3 attempts in 1m": {max: 3, window: time.Minute},
		"2 attempts in 2h": {max: 2, window: 2 * time.Hour}, "2 attempts in 1h0m30s": {max: 2, window: time.Hour + 30*time.Second},
	} {
		if got := spent(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestTallyIsCarried: the times of a window's failures go from task to task.
func TestTallyIsCarried(t *testing.T) {
	p := policy{max: 3, window: time.Minute}
	used := tally{}
	for i, ago := range []time.Duration{90 * time.Second, 50 * time.Second, 10 * time.Second} {
		x := taskAt(1, "n1", api.TaskStateFailed, 0)
		used.plus(p, epoch.Add(-ago)).write(x)
		if used = tallyOf(x); used.count != uint64(i+1) {
			t.Errorf("%d in all after %d", used.count, i+1)
		}
	}
	if got := used.used(p, epoch); got != 2 || used.exhausted(p, epoch) {
		t.Errorf("%d count within the window", got)
	}
	if !used.plus(p, epoch).exhausted(p, epoch) {
		t.Error("three within the window leave something")
	}
}
