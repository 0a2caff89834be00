// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"cmp"
	"math"
	"strings"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	swarm "github.com/moby/swarmkit/v2/manager/orchestrator"

	"satld/healthcheck"
)

// clockSkew is how far a node's clock may be from the leader's until its
// timestamps are not believed.
const clockSkew = time.Minute

// since is when a task came to its present status. A node's own timestamp
// stays the same when a new leader hears the status again, so it is preferred
// to the time at which a leader applied it, unless the node's clock is wrong.
func since(t *api.Task) time.Time {
	own, applied := timeOf(t.Status.Timestamp), timeOf(t.Status.AppliedAt)
	if own.IsZero() || !applied.IsZero() && (own.After(applied) || applied.Sub(own) > clockSkew) {
		return applied
	}
	return own
}

func createdAt(t *api.Task) time.Time { return timeOf(t.Meta.CreatedAt) }

func newestFirst(a, b *api.Task) int {
	return cmp.Or(createdAt(b).Compare(createdAt(a)), strings.Compare(b.ID, a.ID))
}

// timeOf is the zero time for an absent or invalid timestamp.
func timeOf(ts *gogotypes.Timestamp) time.Time {
	if ts == nil {
		return time.Time{}
	}
	t, err := gogotypes.TimestampFromProto(ts)
	if err != nil {
		return time.Time{}
	}
	return t
}

func timestamp(t time.Time) *gogotypes.Timestamp {
	return &gogotypes.Timestamp{Seconds: t.Unix(), Nanos: int32(t.Nanosecond())}
}

// duration is unset for an absent or invalid one.
func duration(d *gogotypes.Duration, unset time.Duration) time.Duration {
	if d == nil {
		return unset
	}
	out, err := gogotypes.DurationFromProto(d)
	if err != nil || out < 0 {
		return unset
	}
	return out
}

// ended tells whether a task runs no more and never will again.
func ended(t *api.Task) bool { return t.Status.State > api.TaskStateRunning }

// running tells whether a task is observed RUNNING, so has proved itself, and
// is not withdrawn.
func running(t *api.Task) bool {
	return t.Status.State == api.TaskStateRunning && !withdrawn(t)
}

// withdrawn tells whether a task runs outside the pools: unhealthy, or on an
// operator's word. Its node says so.
func withdrawn(t *api.Task) bool {
	return t.Status.State == api.TaskStateRunning && strings.HasPrefix(t.Status.Err, healthcheck.Withdrawn)
}

// outForHealth tells whether it does so for its health.
func outForHealth(t *api.Task) bool {
	return withdrawn(t) && strings.HasPrefix(t.Status.Err, healthcheck.Withdrawn+healthcheck.Unhealthy.String())
}

// failed tells whether a task came to an end by itself. A task that its node
// was lost under, or that the constraint enforcer took off its node, did not.
func failed(t *api.Task) bool {
	switch t.Status.State {
	case api.TaskStateCompleted, api.TaskStateShutdown:
		return true
	case api.TaskStateFailed:
		return !strings.HasSuffix(t.Status.Err, healthcheck.Restarted)
	case api.TaskStateRejected:
		return t.Status.Message != enforcerMessage
	}
	return false
}

// enforcerMessage is what SwarmKit's constraint enforcer writes.
const enforcerMessage = "task rejected by constraint enforcer"

// stopping tells whether a task was told to stop and may still run. A node
// that is down stops nothing that anybody could wait for.
func (s *situation) stopping(t *api.Task) bool {
	if t.DesiredState <= api.TaskStateRunning || t.Status.State < api.TaskStateAssigned || ended(t) {
		return false
	}
	n := s.Nodes[t.NodeID]
	return n != nil && n.Status.State != api.NodeStatus_DOWN
}

// stopSlack is what a stop may take beyond the grace period: withdrawal, the
// kill, and the reports of it.
const stopSlack = time.Minute

// stopBound is the longest that anybody waits for a task to stop after it was
// told to.
func stopBound(t *api.Task) time.Duration {
	grace := 10 * time.Second
	if c := t.Spec.GetContainer(); c != nil {
		grace = duration(c.StopGracePeriod, grace)
	}
	return min(grace, math.MaxInt64-stopSlack) + stopSlack
}

// Fitness of a task, from dead to serving.
const (
	fitEnded = iota
	fitPending
	fitStarting
	fitRunning // but withdrawn
	fitServing
)

func fitness(t *api.Task) int {
	switch {
	case ended(t):
		return fitEnded
	case t.Status.State < api.TaskStateStarting:
		return fitPending
	case t.Status.State == api.TaskStateStarting:
		return fitStarting
	case withdrawn(t):
		return fitRunning
	}
	return fitServing
}

// stop is a task as it is once it was told to stop.
func stop(t *api.Task, now time.Time) *api.Task {
	t = t.Copy()
	t.DesiredState = api.TaskStateShutdown
	setLabel(t, LabelStopped, formatTime(now))
	return t
}

// remove is a task as it is once it is to be deleted after its end.
func remove(t *api.Task, now time.Time) *api.Task {
	running := t.DesiredState <= api.TaskStateRunning
	t = t.Copy()
	t.DesiredState = api.TaskStateRemove
	if running {
		setLabel(t, LabelStopped, formatTime(now))
	}
	return t
}

// newTask makes a task of the service's spec in a slot. It starts when a
// later plan says so if wait is set, else at once.
func (s *situation) newTask(key slotKey, wait bool) *api.Task {
	return s.taskOf(s.Service, key, wait)
}

func (s *situation) taskOf(service *api.Service, key slotKey, wait bool) *api.Task {
	t := swarm.NewTask(s.Cluster, service, key.number, key.node)
	t.Status.Timestamp = timestamp(s.now)
	if wait {
		t.DesiredState = api.TaskStateReady
	}
	return t
}

// again makes a task of the same spec as an old one. While a rollout is under
// way that is not the service's: a restart is no update.
func (s *situation) again(old *api.Task, key slotKey) *api.Task {
	if !s.dirty(old) {
		return s.taskOf(s.Service, key, true)
	}
	service := s.Service.Copy()
	service.Spec.Annotations = *old.ServiceAnnotations.Copy()
	service.Spec.Task = *old.Spec.Copy()
	service.SpecVersion = old.SpecVersion.Copy()
	if old.Endpoint != nil {
		service.Spec.Endpoint = old.Endpoint.Spec.Copy()
	}
	return s.taskOf(service, key, true)
}

func sameVersion(a, b *api.Version) bool {
	return a != nil && b != nil && *a == *b
}
