// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/moby/swarmkit/v2/api"

	"satld/cluster"
	"satld/orchestrator"
)

func (s *Server) taskRoutes(r *routes) {
	r.get("/tasks", s.manager(s.taskList))
	r.get("/tasks/{id}", s.manager(s.taskInspect))
	r.get("/tasks/{id}/logs", s.taskLogs)
}

func (s *Server) taskList(w http.ResponseWriter, r *http.Request) error {
	args, err := parseFilters(r, "id", "name", "label", "service", "node", "desired-state", "runtime", "_up-to-date")
	if err != nil {
		return err
	}
	f, err := s.taskFilters(r.Context(), args)
	if err != nil {
		return err
	}
	if f.UpToDate {
		if err := s.mustNotBeRolledBack(r.Context(), f.ServiceIDs); err != nil {
			return err
		}
	}
	resp, err := s.cfg.Cluster.Control().ListTasks(r.Context(), &api.ListTasksRequest{Filters: f}, maxList)
	if err != nil {
		return err
	}
	tasks := make([]swarm.Task, 0, len(resp.Tasks))
	for _, t := range resp.Tasks {
		shown, err := renderTask(t, time.Now())
		if err != nil {
			return err
		}
		tasks = append(tasks, shown)
	}
	return writeJSON(w, http.StatusOK, tasks)
}

// taskFilters turns names of services and nodes into IDs.
func (s *Server) taskFilters(ctx context.Context, args filters.Args) (*api.ListTasksRequest_Filters, error) {
	f := &api.ListTasksRequest_Filters{
		NamePrefixes: args.Get("name"),
		IDPrefixes:   args.Get("id"),
		Labels:       convertLabelFilters(args.Get("label")),
		UpToDate:     args.Contains("_up-to-date"),
		Runtimes:     args.Get("runtime"),
	}
	if len(f.Runtimes) == 0 {
		f.Runtimes = []string{string(swarm.RuntimeContainer), ""}
	}
	for _, name := range args.Get("service") {
		svc, err := s.findService(ctx, name)
		if err != nil {
			return nil, err
		}
		f.ServiceIDs = append(f.ServiceIDs, svc.ID)
	}
	for _, name := range args.Get("node") {
		node, err := s.findNode(ctx, name)
		if err != nil {
			return nil, err
		}
		f.NodeIDs = append(f.NodeIDs, node.ID)
	}
	for _, name := range args.Get("desired-state") {
		state, ok := api.TaskState_value[strings.ToUpper(name)]
		if !ok {
			return nil, errInvalid("invalid desired-state filter: '%s'", name)
		}
		f.DesiredStates = append(f.DesiredStates, api.TaskState(state))
	}
	slices.Sort(f.DesiredStates)
	return f, nil
}

func (s *Server) taskInspect(w http.ResponseWriter, r *http.Request) error {
	t, err := s.findTask(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	shown, err := renderTask(t, time.Now())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown)
}

// renderTask is a task as clients see it: without the labels that the engine
// keeps on it for itself. An operator's word stays, for it is one. Of one that
// waits to be restarted the message says for how long.
func renderTask(t *api.Task, now time.Time) (swarm.Task, error) {
	out, err := convert.TaskFromGRPC(*t)
	if err != nil {
		return out, err
	}
	shown := make(map[string]string, len(out.Labels))
	for name, value := range out.Labels {
		if !strings.HasPrefix(name, "satl.") || name == cluster.ReadyLabel {
			shown[name] = value
		}
	}
	out.Labels = shown
	out.Status.Message = cmp.Or(orchestrator.Waits(t, now), out.Status.Message)
	return out, nil
}

// rolledBack begins the message of a rollback that nobody asked for, from its
// start to its end, as SwarmKit words it.
const rolledBack = "update rolled back"

// mustNotBeRolledBack is an error when one of the services was rolled back and
// nobody had asked for it. Docker's CLI asks for the tasks that are up to date
// only while it waits for a service to converge, and takes a rollback for
// that; the error is its one way to exit with 1. The next update of the
// service takes its status away, and with it the error.
func (s *Server) mustNotBeRolledBack(ctx context.Context, serviceIDs []string) error {
	for _, id := range serviceIDs {
		resp, err := s.cfg.Cluster.Control().GetService(ctx, &api.GetServiceRequest{ServiceID: id})
		if err != nil {
			return err
		}
		u := resp.Service.UpdateStatus
		if u != nil && u.State == api.UpdateStatus_ROLLBACK_COMPLETED && strings.HasPrefix(u.Message, rolledBack) {
			return errConflict("service %s: %s", resp.Service.Spec.Annotations.Name, u.Message)
		}
	}
	return nil
}
