// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"slices"

	dockernet "github.com/docker/docker/api/types/network"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/api/naming"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
)

// networkUse is who uses which network, by network ID.
type networkUse struct {
	services   map[string][]*api.Service
	containers map[string][]executor.Snapshot // of `run`, on this node
	tasks      map[string][]executor.Snapshot // containers of tasks, on this node
}

func (u networkUse) unused(id string) bool {
	return len(u.services[id]) == 0 && len(u.containers[id]) == 0 && len(u.tasks[id]) == 0
}

func (s *Server) networkUsage() networkUse {
	use := networkUse{services: map[string][]*api.Service{}, containers: map[string][]executor.Snapshot{}, tasks: map[string][]executor.Snapshot{}}
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		services, _ := store.FindServices(tx, store.All) // fails for no selector that is valid
		for _, svc := range services {
			for _, id := range attachedNetworks(svc) {
				use.services[id] = append(use.services[id], svc)
			}
		}
	})
	for _, c := range s.cfg.Containers.List() {
		to := use.containers
		if c.TaskID != "" {
			to = use.tasks
		}
		for _, a := range c.Networks {
			to[a.NetworkID] = append(to[a.NetworkID], c)
		}
	}
	return use
}

// attachedNetworks are the IDs of the networks that a service's tasks join.
func attachedNetworks(svc *api.Service) []string {
	configs := svc.Spec.Task.Networks
	if len(configs) == 0 {
		configs = svc.Spec.Networks
	}
	ids := make([]string, 0, len(configs))
	for _, c := range configs {
		ids = append(ids, c.Target)
	}
	return ids
}

// fillEndpoints shows the containers of this node that are in the network.
func (s *Server) fillEndpoints(n *netInfo) {
	for _, c := range s.cfg.Containers.List() {
		if c.State != executor.Running && c.State != executor.Paused {
			continue
		}
		for _, a := range c.Networks {
			if a.NetworkID == n.ID {
				n.Containers[c.ID] = dockernet.EndpointResource{
					Name: c.Name, EndpointID: endpointID(c.ID, n.ID), MacAddress: a.MAC, IPv4Address: a.Addr.String(),
				}
			}
		}
	}
}

// fillServices shows, for a verbose inspect, the services in the network with
// the addresses of their tasks.
func (s *Server) fillServices(n *netInfo) {
	n.Services = map[string]dockernet.ServiceInfo{}
	s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
		services, _ := store.FindServices(tx, store.All)
		for _, svc := range services {
			if !slices.Contains(attachedNetworks(svc), n.ID) {
				continue
			}
			info := dockernet.ServiceInfo{VIP: "<nil>", Ports: []string{}, Tasks: []dockernet.Task{}}
			if svc.Spec.Endpoint != nil {
				for _, p := range svc.Spec.Endpoint.Ports {
					info.Ports = append(info.Ports, fmt.Sprintf("Target: %d, Publish: %d", p.TargetPort, p.PublishedPort))
				}
			}
			tasks, _ := store.FindTasks(tx, store.ByServiceID(svc.ID))
			for _, t := range tasks {
				if t.Status.State != api.TaskStateRunning {
					continue
				}
				info.Tasks = append(info.Tasks, dockernet.Task{
					Name: naming.Task(t), EndpointID: endpointID(t.ID, n.ID), EndpointIP: taskAddress(t, n.ID),
					Info: map[string]string{"Node": t.NodeID},
				})
			}
			n.Services[svc.Spec.Annotations.Name] = info
		}
	})
}

func taskAddress(t *api.Task, networkID string) string {
	for _, a := range t.Networks {
		if a.Network != nil && a.Network.ID == networkID && len(a.Addresses) > 0 {
			return a.Addresses[0]
		}
	}
	return ""
}
