// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/api/wire"
	"satld/apps"
)

// Apps are the verdicts on applications, from a cache: asking costs nothing.
// *apps.Cache implements it.
type Apps interface {
	Get(name string) apps.Verdict
	All() []apps.Verdict
}

// verdicts are the applications' health; 501 where nobody judges it.
func (s *Server) verdicts() (Apps, error) {
	if s.cfg.Apps == nil {
		return nil, errNotSupported("this daemon does not judge applications")
	}
	return s.cfg.Apps, nil
}

func (s *Server) appList(w http.ResponseWriter, _ *http.Request) error {
	from, err := s.verdicts()
	if err != nil {
		return err
	}
	out := []wire.App{}
	for _, v := range from.All() {
		out = append(out, wire.App(v))
	}
	return writeJSON(w, http.StatusOK, out)
}

// appInspect is one verdict, whatever it is.
func (s *Server) appInspect(w http.ResponseWriter, r *http.Request) error {
	from, err := s.verdicts()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.App(from.Get(pathVar(r, "name"))))
}

// appHealth is one verdict, with the status that a load balancer reads.
func (s *Server) appHealth(w http.ResponseWriter, r *http.Request) error {
	from, err := s.verdicts()
	if err != nil {
		return err
	}
	from.Get(pathVar(r, "name")).Answer(w)
	return nil
}

// DeclaredApps are the stacks that the services of a store make up, and
// whether they opt in to be gated by their health; nil where it has no
// services to ask, as on a worker.
func DeclaredApps(from *store.MemoryStore) map[string]apps.Declared {
	if from == nil {
		return nil
	}
	var services []*api.Service
	var err error
	from.View(func(tx store.ReadTx) { services, err = store.FindServices(tx, store.All) })
	if err != nil { // of unknown selectors only, and All is known
		return nil
	}
	out := make(map[string]apps.Declared)
	for _, svc := range services {
		name := svc.Spec.Annotations.Labels[stackLabel]
		if name == "" {
			continue
		}
		container := svc.Spec.Task.GetContainer()
		switch {
		case optsIn(svc.Spec.Annotations.Labels), container != nil && optsIn(container.Labels):
			out[name] = apps.OptedIn
		case out[name] == apps.Unheard:
			out[name] = apps.OptedOut
		}
	}
	return out
}

// stackLabel says which stack a service belongs to.
const stackLabel = "com.docker.stack.namespace"

func optsIn(labels map[string]string) bool {
	return labels[apps.LabelHealth] == "true" || labels[apps.LabelFile] != ""
}
