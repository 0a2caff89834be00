// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/orchestrator"

	"satld/api/wire"
	"satld/cluster"
)

// serviceVersions lists the versions of a service that are still known, with
// the reports of those whose rollout failed (spec/deploy-check.txt, "The
// evidence a failed check keeps").
func (s *Server) serviceVersions(w http.ResponseWriter, r *http.Request) error {
	view, err := s.viewNamed(r)
	if err != nil {
		return err
	}
	reports, err := s.cfg.Cluster.Reports(view.service.ID)
	if err != nil {
		return err
	}
	shown, err := renderService(view.service)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, &wire.Versions{
		ID: view.service.ID, Name: view.service.Spec.Annotations.Name,
		Versions: versionsOf(view, reports, shown.UpdateStatus),
	})
}

// versionsOf are the versions of a service, newest first: those of its current
// and previous spec, of its tasks, and of its reports.
func versionsOf(view serviceView, reports []cluster.Report, update *swarm.UpdateStatus) []wire.Version {
	known := make(map[uint64]*wire.Version)
	note := func(version uint64, state, image string) *wire.Version {
		v := known[version]
		if v == nil {
			v = &wire.Version{Version: version, State: state, Image: image, Reports: []wire.Report{}}
			known[version] = v
		}
		return v
	}
	svc := view.service
	note(shownVersion(svc), "current", imageOf(svc.Spec.Task)).Update = update
	if svc.PreviousSpec != nil {
		note(showVersion(svc.PreviousSpecVersion), "previous", imageOf(svc.PreviousSpec.Task))
	}
	for _, t := range view.tasks {
		version := showVersion(t.SpecVersion)
		if !orchestrator.IsTaskDirty(svc, t, view.nodes[t.NodeID]) {
			version = shownVersion(svc) // the change since, a scaling for one, left it as it should be
		}
		v := note(version, "earlier", imageOf(t.Spec))
		if t.Status.State == api.TaskStateRunning {
			v.Running++
		}
	}
	for _, r := range reports {
		v := note(r.Version+1, "earlier", r.Image)
		v.Failed = true
		v.Reports = append(v.Reports, wire.Report{
			TaskID: r.TaskID, Slot: r.Slot, NodeID: r.NodeID, Node: view.host(r.NodeID), At: r.At, Record: r.Payload,
		})
	}
	out := make([]wire.Version, 0, len(known))
	for _, v := range known {
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b wire.Version) int { return cmp.Compare(b.Version, a.Version) })
	return out
}

func imageOf(t api.TaskSpec) string {
	if c := t.GetContainer(); c != nil {
		return c.Image
	}
	return ""
}
