// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/daemon/cluster/convert"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"

	"satld/api/wire"
	"satld/cluster"
	"satld/executor"
	"satld/healthcheck"
	"satld/mesh"
	"satld/orchestrator"
)

// peerTimeout bounds the question to another node about its tasks: a table
// that is incomplete now is worth more than a whole one later.
const peerTimeout = 2 * time.Second

// What is said of a task whose health nobody here knows.
const (
	verdictNone    = "none"
	verdictUnknown = "unknown"
)

// serviceHealth is the live table of a service: what the store knows of its
// tasks, and what the nodes that run them know of their health.
func (s *Server) serviceHealth(w http.ResponseWriter, r *http.Request) error {
	view, err := s.viewNamed(r)
	if err != nil {
		return err
	}
	now := time.Now()
	h := tableOf(view, now)
	overlay(&h, s.askNodes(r.Context(), view), s.observed)
	for i := range h.Tasks {
		t := &h.Tasks[i]
		t.Flapping = flapOf(view, t.Slot, t.NodeID, t.Dips, now).Warning(now)
	}
	return writeJSON(w, http.StatusOK, &h)
}

// LocalHealth is what this node knows of its tasks of a service, for the node
// that was asked. Of each, ID, traffic and health are filled in alone.
func (s *Server) LocalHealth(serviceID string) []wire.TaskHealth {
	var out []wire.TaskHealth
	for _, c := range s.cfg.Containers.List() {
		if c.TaskID != "" && c.ServiceID == serviceID {
			out = append(out, localHealth(c))
		}
	}
	return out
}

func localHealth(c executor.Snapshot) wire.TaskHealth {
	t := wire.TaskHealth{
		ID: c.TaskID, Serving: c.Serving || c.FailOpen, FailOpen: c.FailOpen, Why: c.NotServing, Since: c.Started,
		Verdict: verdictNone, Log: []wire.Result{},
	}
	if c.Settings != nil {
		setThresholds(&t, *c.Settings)
	}
	h := c.Health
	if h == nil {
		return t
	}
	t.Verdict, t.FailingStreak, t.Dips = h.Status.String(), h.FailingStreak, h.Dips
	if !h.NextProbe.IsZero() {
		t.NextProbe = &h.NextProbe
	}
	for _, r := range h.Log {
		t.Log = append(t.Log, wire.Result{Start: r.Start, End: r.End, ExitCode: r.ExitCode, Output: r.Output})
	}
	return t
}

func setThresholds(t *wire.TaskHealth, s healthcheck.Settings) {
	if s.Action != healthcheck.None {
		t.UnrouteAfter = s.Retries
	}
	if s.Action == healthcheck.Replace {
		t.ReplaceAfter = max(s.Retries, s.ReplaceAfter)
	}
}

// observed is what this node makes of a task of another node.
func (s *Server) observed(taskID string) mesh.Verdict {
	if s.cfg.Observed == nil {
		return ""
	}
	return s.cfg.Observed(taskID)
}

// askNodes asks every node that runs tasks of the service, at the same time.
// One that does not answer is left out.
func (s *Server) askNodes(ctx context.Context, view serviceView) []wire.TaskHealth {
	nodes := make(map[string]bool)
	for _, t := range view.tasks {
		if t.NodeID != "" && t.Status.State >= api.TaskStateAssigned && t.Status.State <= api.TaskStateRunning {
			nodes[t.NodeID] = true
		}
	}
	out := s.LocalHealth(view.service.ID)
	delete(nodes, s.cfg.Cluster.NodeID())
	if s.cfg.PeerHealth == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for node := range nodes {
		wg.Go(func() {
			told, err := s.cfg.PeerHealth(ctx, node, view.service.ID)
			if err != nil {
				s.log.Debug("a node did not tell of its tasks' health", "node", node, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, told...)
		})
	}
	wg.Wait()
	return out
}

// tableOf is the table as far as the store knows.
func tableOf(view serviceView, now time.Time) wire.Health {
	spec := &view.service.Spec
	h := wire.Health{
		ID: view.service.ID, Name: spec.Annotations.Name, Budget: budgetOf(view, now),
		FailOpen: spec.Annotations.Labels["satl.traffic.fail-open"] == "true", Tasks: []wire.TaskHealth{},
	}
	for _, t := range shownTasks(view.tasks) {
		h.Tasks = append(h.Tasks, rowOf(view, t, now))
		if wanted(t) {
			h.Desired++
		}
	}
	if r := spec.GetReplicated(); r != nil {
		h.Desired = r.Replicas
	}
	_, h.Probed = probeOf(spec.Task)
	return h
}

// overlay lays over the store's rows what the tasks' nodes know better.
// A task that this node sends traffic to, or does not, for a reason of its own
// says that reason instead.
func overlay(h *wire.Health, known []wire.TaskHealth, observed func(taskID string) mesh.Verdict) {
	byID := make(map[string]wire.TaskHealth, len(known))
	for _, k := range known {
		byID[k.ID] = k
	}
	h.Serving = 0
	for i := range h.Tasks {
		t := &h.Tasks[i]
		k, ok := byID[t.ID]
		switch verdict := observed(t.ID); {
		case verdict == mesh.Ungated:
			t.Verdict = string(verdict)
			if strings.HasPrefix(t.Why, healthcheck.Withdrawn) { // on its own node only
				t.Serving, t.Why = true, ""
			}
		case verdict == mesh.Silent && t.Why == "":
			t.Serving, t.Why = false, "its "+string(verdict)
		case ok && live(t.State):
			if t.DesiredState != lower(api.TaskStateReady) { // else the store knows what it waits for
				t.Serving, t.FailOpen, t.Why = k.Serving, k.FailOpen, k.Why
			}
			h.FailingOpen = h.FailingOpen || k.FailOpen
			if k.Verdict == verdictNone && t.Verdict == healthcheck.Starting.String() {
				break // its probe begins with its process
			}
			t.Verdict, t.FailingStreak, t.Dips, t.NextProbe, t.Log = k.Verdict, k.FailingStreak, k.Dips, k.NextProbe, k.Log
			t.UnrouteAfter, t.ReplaceAfter = k.UnrouteAfter, k.ReplaceAfter
			if !k.Since.IsZero() {
				t.Since = k.Since
			}
		}
		if t.Serving {
			h.Serving++
		}
	}
}

// live tells whether a task in that state has a process, or is about to.
func live(state string) bool {
	s, ok := api.TaskState_value[strings.ToUpper(state)]
	return ok && api.TaskState(s) <= api.TaskStateRunning
}

// wanted tells whether a task is to run.
func wanted(t *api.Task) bool {
	return t.DesiredState <= api.TaskStateRunning && t.Status.State <= api.TaskStateRunning ||
		t.DesiredState == api.TaskStateCompleted && t.Status.State <= api.TaskStateRunning // a job's
}

// shownTasks are the tasks that have something to say: those that run or are
// to run, and of a place where there is none the one that ended last.
func shownTasks(tasks []*api.Task) []*api.Task {
	ordered := slices.Clone(tasks)
	slices.SortFunc(ordered, func(a, b *api.Task) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), strings.Compare(placeOf(a), placeOf(b)),
			created(b).Compare(created(a)), strings.Compare(a.ID, b.ID))
	})
	taken := make(map[string]bool)
	for _, t := range tasks {
		if t.Status.State <= api.TaskStateRunning {
			taken[placeOf(t)] = true
		}
	}
	var out []*api.Task
	for _, t := range ordered {
		if t.Status.State > api.TaskStateRunning {
			if taken[placeOf(t)] || t.DesiredState == api.TaskStateRemove {
				continue
			}
			taken[placeOf(t)] = true
		}
		out = append(out, t)
	}
	return out
}

// placeOf is what a task has one successor in: its slot, or its node for a
// global service.
func placeOf(t *api.Task) string {
	if t.Slot != 0 {
		return strconv.FormatUint(t.Slot, 10)
	}
	return t.NodeID
}

func created(t *api.Task) time.Time { return protoTime(t.Meta.CreatedAt) }

// protoTime is a time of the store, zero where it has none.
func protoTime(ts *gogotypes.Timestamp) time.Time {
	at, err := gogotypes.TimestampFromProto(ts)
	if err != nil {
		return time.Time{}
	}
	return at
}

// rowOf is one task as the store knows it.
func rowOf(view serviceView, t *api.Task, now time.Time) wire.TaskHealth {
	node := view.nodes[t.NodeID]
	row := wire.TaskHealth{
		ID: t.ID, Name: view.service.Spec.Annotations.Name + "." + placeOf(t), Slot: t.Slot, NodeID: t.NodeID, Node: view.host(t.NodeID),
		State: lower(t.Status.State), DesiredState: lower(t.DesiredState), Since: protoTime(t.Status.Timestamp), Error: t.Status.Err,
		Ready:   cluster.Ready(t.Annotations) && (node == nil || cluster.Ready(node.Spec.Annotations)),
		Verdict: verdictNone, Log: []wire.Result{},
	}
	if settings, probed := probeOf(t.Spec); probed {
		setThresholds(&row, settings)
		if row.Verdict = verdictUnknown; t.Status.State < api.TaskStateRunning {
			row.Verdict = healthcheck.Starting.String() // RUNNING begins with a pass
		}
	}
	row.Why = whyNot(t, node, row.Ready, now)
	row.Serving = row.Why == ""
	return row
}

// whyNot is why a task is sent no traffic, as far as the store knows; "" where
// it knows of nothing. The one predicate of DESIGN.md section 5, from afar.
func whyNot(t *api.Task, node *api.Node, ready bool, now time.Time) string {
	state := lower(t.Status.State)
	switch {
	case t.Status.State != api.TaskStateRunning:
		why := state
		if t.Status.Err != "" {
			why += ": " + t.Status.Err
		}
		waits := orchestrator.Waits(t, now)
		switch {
		case waits != "" && t.Status.Err != "":
			return waits + "; " + why
		case waits != "":
			return waits
		case t.Status.State == api.TaskStateReady && t.DesiredState == api.TaskStateReady:
			return "prepared, starts when its turn comes"
		}
		return why
	case t.DesiredState > api.TaskStateRunning && t.DesiredState != api.TaskStateCompleted:
		return "stopping"
	case !ready:
		return "not ready, by an operator's word"
	case strings.HasPrefix(t.Status.Err, healthcheck.Withdrawn):
		return t.Status.Err
	case node != nil && node.Status.State == api.NodeStatus_DOWN:
		return "its node is down"
	}
	return ""
}

// probeOf is the probe of a task's spec.
func probeOf(spec api.TaskSpec) (healthcheck.Settings, bool) {
	shown, err := convert.TaskFromGRPC(api.Task{Spec: spec})
	if err != nil || shown.Spec.ContainerSpec == nil {
		return healthcheck.Settings{}, false
	}
	c := shown.Spec.ContainerSpec
	settings, probed, _, err := healthcheck.FromSpec(c.Healthcheck, c.Labels)
	return settings, probed && err == nil
}
