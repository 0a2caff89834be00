// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/cluster"
)

// taskReady takes an operator's word on a task: out of traffic, or back.
func (s *Server) taskReady(ready bool) handler {
	return func(_ http.ResponseWriter, r *http.Request) error {
		id, err := s.findLiveTask(r.Context(), pathVar(r, "id"))
		if err != nil {
			return err
		}
		return s.cfg.Cluster.SetTaskReady(r.Context(), id, ready)
	}
}

// findLiveTask finds a task by its ID, its name, a unique prefix of its ID, or
// as the one that lives in a slot (web.1): one that is to run goes before one
// that waits for its restart delay or its turn.
func (s *Server) findLiveTask(ctx context.Context, input string) (string, error) {
	t, err := s.findTask(ctx, input)
	if err == nil {
		return t.ID, nil
	}
	service, slot, isSlot := cutSlot(input)
	if !errdefs.IsNotFound(err) || !isSlot {
		return "", err
	}
	var tasks []*api.Task
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		var found []*api.Service
		if found, err = store.FindServices(tx, store.ByName(service)); err == nil && len(found) == 1 {
			tasks, err = store.FindTasks(tx, store.BySlot(found[0].ID, slot))
		}
	})
	if err != nil {
		return "", err
	}
	var live, waiting []string
	for _, t := range tasks {
		switch {
		case t.DesiredState > api.TaskStateRunning || t.Status.State > api.TaskStateRunning:
		case t.DesiredState == api.TaskStateRunning:
			live = append(live, t.ID)
		default:
			waiting = append(waiting, t.ID)
		}
	}
	if len(live) == 0 {
		live = waiting
	}
	switch len(live) {
	case 0:
		return "", errNotFound("task %s not found", input)
	case 1:
		return live[0], nil
	}
	return "", errInvalid("task %s is ambiguous (%d tasks are in that slot): give the ID of one", input, len(live))
}

// cutSlot parts the name of a slot (web.1) into service and number.
func cutSlot(name string) (service string, slot uint64, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i <= 0 {
		return "", 0, false
	}
	slot, err := strconv.ParseUint(name[i+1:], 10, 64)
	return name[:i], slot, err == nil && slot > 0
}

// nodeReady takes an operator's word on a node: all its tasks are out of
// traffic, or back. It is a label of the node's spec, as `node update
// --label-add satl.ready=false` would write it.
func (s *Server) nodeReady(ready bool) handler {
	return func(_ http.ResponseWriter, r *http.Request) error {
		found, err := s.findNode(r.Context(), pathVar(r, "id"))
		if err != nil {
			return err
		}
		return updateLoop(r.Context(), func() error {
			got, err := s.cfg.Cluster.Control().GetNode(r.Context(), &api.GetNodeRequest{NodeID: found.ID})
			if err != nil {
				return err
			}
			next := got.Node.Spec.Copy()
			if !cluster.SetReady(&next.Annotations, ready) {
				return nil
			}
			_, err = s.cfg.Cluster.Control().UpdateNode(r.Context(), &api.UpdateNodeRequest{
				NodeID: found.ID, Spec: next, NodeVersion: &got.Node.Meta.Version,
			})
			return err
		})
	}
}
