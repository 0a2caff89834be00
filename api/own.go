// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"net/http"
)

// ownRoutes are satld's own API, for what Docker's has no place for. Its
// answers are the types of package wire; docs/api.md is its reference.
func (s *Server) ownRoutes(r *routes) {
	r.post("/satl/v1/health/explain", s.healthExplain)
	r.get("/satl/v1/services/{id}", s.manager(s.serviceMore))
	r.get("/satl/v1/services/{id}/health", s.manager(s.serviceHealth))
	r.get("/satl/v1/services/{id}/versions", s.manager(s.serviceVersions))
	r.get("/satl/v1/swarm/backup", s.manager(s.backup))
	early := r.whileLoading() // verdicts are this node's own
	early.get("/satl/v1/apps", s.appList)
	early.get("/satl/v1/apps/{name}", s.appInspect)
	early.get("/satl/v1/apps/{name}/health", s.appHealth)
	early.head("/satl/v1/apps/{name}/health", s.appHealth)
	r.post("/satl/v1/tasks/{id}/ready", s.manager(s.taskReady(true)))
	r.post("/satl/v1/tasks/{id}/unready", s.manager(s.taskReady(false)))
	r.post("/satl/v1/nodes/{id}/ready", s.manager(s.nodeReady(true)))
	r.post("/satl/v1/nodes/{id}/unready", s.manager(s.nodeReady(false)))
}

// hostName is a node as an operator knows it.
func hostName(n *api.Node) string {
	if n.Spec.Annotations.Name == "" && n.Description != nil {
		return n.Description.Hostname
	}
	return n.Spec.Annotations.Name
}

// serviceView is what the store knows of a service, at one moment.
type serviceView struct {
	service *api.Service
	tasks   []*api.Task
	nodes   map[string]*api.Node // by ID
}

// host is a node's name, "" for one that is no more.
func (v serviceView) host(nodeID string) string {
	if n := v.nodes[nodeID]; n != nil {
		return hostName(n)
	}
	return ""
}

// viewNamed is the view of the service that a request's path names.
func (s *Server) viewNamed(r *http.Request) (serviceView, error) {
	found, err := s.findService(r.Context(), pathVar(r, "id"))
	if err != nil {
		return serviceView{}, err
	}
	return s.viewService(found.ID)
}

// viewService reads a service anew with all that concerns it.
func (s *Server) viewService(id string) (v serviceView, err error) {
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		if v.service = store.GetService(tx, id); v.service == nil {
			err = errNotFound("service %s not found", id)
			return
		}
		if v.tasks, err = store.FindTasks(tx, store.ByServiceID(id)); err != nil {
			return
		}
		var nodes []*api.Node
		if nodes, err = store.FindNodes(tx, store.All); err != nil {
			return
		}
		v.nodes = make(map[string]*api.Node, len(nodes))
		for _, n := range nodes {
			v.nodes[n.ID] = n
		}
	})
	return v, err
}
