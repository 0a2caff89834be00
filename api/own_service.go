// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
	"time"

	"satld/api/wire"
)

// serviceMore is what Docker's answer about a service has no field for: what
// its probe amounts to, and what is left of its restarts.
func (s *Server) serviceMore(w http.ResponseWriter, r *http.Request) error {
	view, err := s.viewNamed(r)
	if err != nil {
		return err
	}
	shown, err := renderService(view.service)
	if err != nil {
		return err
	}
	out := wire.Service{
		ID: shown.ID, Name: shown.Spec.Name, Version: shown.Version.Index, Update: shown.UpdateStatus,
		FailOpen: shown.Spec.Labels["satl.traffic.fail-open"] == "true",
		Budget:   budgetOf(view, time.Now()),
	}
	if shown.Spec.TaskTemplate.ContainerSpec == nil { // no container, so no probe
		return writeJSON(w, http.StatusOK, &out)
	}
	if out.Explain, err = explain(&shown.Spec); err != nil {
		// A spec of an older satld that this one would refuse runs all the same.
		out.Explain = wire.Explanation{Warnings: []string{err.Error()}, Table: []wire.Row{}}
	}
	return writeJSON(w, http.StatusOK, &out)
}
