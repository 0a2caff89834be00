// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"sort"
	"strings"

	"github.com/moby/swarmkit/v2/api"
)

// Ports for those who ask for none in particular come from Docker's range.
const (
	autoPortFirst = 30000
	autoPortLast  = 32767
)

// portKey is a published port: there is one of each in the whole cluster,
// except that several services may publish the same one in host mode.
type portKey struct {
	proto api.PortConfig_Protocol
	port  uint32
}

// portUse is who publishes a port.
type portUse struct {
	service *api.Service
	ingress bool
}

// portPlan is what planPorts decides.
type portPlan struct {
	// endpoints are those to write, by service ID; nil means that the service
	// is to have none.
	endpoints map[string]*api.Endpoint
	// blocked are services whose ports cannot be had, with the reason.
	blocked map[string]string
}

// planPorts gives every service the ports its spec asks for. A service that has
// them keeps them, also over an update that leaves the port's name, protocol,
// target and mode alone. Where two ask for the same port the older one gets it.
// The plan is empty when every endpoint is as it should be.
func planPorts(services []*api.Service) portPlan {
	p := portPlan{endpoints: map[string]*api.Endpoint{}, blocked: map[string]string{}}
	used := map[portKey]portUse{}
	wanted := map[portKey]bool{} // by number: no automatic port takes one of these
	var todo []*api.Service
	for _, s := range services {
		for _, c := range specPorts(s) {
			if c.PublishedPort != 0 {
				wanted[portKey{c.Protocol, c.PublishedPort}] = true
			}
		}
		if portsSettled(s) {
			for _, c := range endpointPorts(s) {
				claim(used, s, c)
			}
			continue
		}
		todo = append(todo, s)
		for _, c := range keptPorts(s) {
			claim(used, s, c)
		}
	}
	sort.Slice(todo, func(i, j int) bool { return older(todo[i], todo[j]) })
	for _, s := range todo {
		ports, err := assign(s, used, wanted)
		switch {
		case err != nil:
			p.blocked[s.ID] = err.Error()
		case s.Spec.Endpoint == nil:
			p.endpoints[s.ID] = nil
		default:
			p.endpoints[s.ID] = &api.Endpoint{Spec: s.Spec.Endpoint.Copy(), Ports: ports}
		}
	}
	return p
}

// assign chooses the ports of one service and claims them.
func assign(s *api.Service, used map[portKey]portUse, wanted map[portKey]bool) ([]*api.PortConfig, error) {
	kept := keptPorts(s)
	var out []*api.PortConfig
	for i, c := range specPorts(s) {
		c = c.Copy()
		switch {
		case c.PublishedPort != 0:
			u, taken := used[portKey{c.Protocol, c.PublishedPort}]
			ingress := c.PublishMode == api.PublishModeIngress
			if taken && u.service.ID != s.ID && (ingress || u.ingress) {
				return nil, fmt.Errorf("port %d/%s is already published by service %s",
					c.PublishedPort, protoName(c.Protocol), u.service.Spec.Annotations.Name)
			}
		case kept[i] != nil:
			c.PublishedPort = kept[i].PublishedPort
		default:
			port := uint32(autoPortFirst)
			for ; port <= autoPortLast; port++ {
				k := portKey{c.Protocol, port}
				if _, taken := used[k]; !taken && !wanted[k] {
					break
				}
			}
			if port > autoPortLast {
				return nil, fmt.Errorf("no port from %d to %d/%s is free", autoPortFirst, autoPortLast, protoName(c.Protocol))
			}
			c.PublishedPort = port
		}
		claim(used, s, c)
		out = append(out, c)
	}
	return out, nil
}

func claim(used map[portKey]portUse, s *api.Service, c *api.PortConfig) {
	k := portKey{c.Protocol, c.PublishedPort}
	if u, taken := used[k]; !taken || !u.ingress {
		used[k] = portUse{s, c.PublishMode == api.PublishModeIngress}
	}
}

// keptPorts are, by their place in the spec, the automatic ports that a service
// has from before.
func keptPorts(s *api.Service) map[int]*api.PortConfig {
	out := map[int]*api.PortConfig{}
	have := endpointPorts(s)
	var automatic []bool
	for _, h := range have {
		automatic = append(automatic, h.PublishedPort >= autoPortFirst && h.PublishedPort <= autoPortLast && !explicit(s, h))
	}
	for i, c := range specPorts(s) {
		if c.PublishedPort != 0 {
			continue
		}
		for j, h := range have {
			if automatic[j] && samePort(c, h) {
				automatic[j] = false
				out[i] = h
				break
			}
		}
	}
	return out
}

// explicit tells whether the spec asks for the port by its number.
func explicit(s *api.Service, h *api.PortConfig) bool {
	for _, c := range specPorts(s) {
		if c.PublishedPort == h.PublishedPort && c.Protocol == h.Protocol {
			return true
		}
	}
	return false
}

func samePort(a, b *api.PortConfig) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.TargetPort == b.TargetPort && a.PublishMode == b.PublishMode
}

// portsSettled tells whether a service's endpoint is what its spec asks for.
func portsSettled(s *api.Service) bool {
	if s.Spec.Endpoint == nil || s.Endpoint == nil {
		return s.Spec.Endpoint == nil && s.Endpoint == nil
	}
	if s.Endpoint.Spec == nil || s.Endpoint.Spec.Mode != s.Spec.Endpoint.Mode {
		return false
	}
	spec, noted, have := s.Spec.Endpoint.Ports, s.Endpoint.Spec.Ports, s.Endpoint.Ports
	if len(noted) != len(spec) || len(have) != len(spec) {
		return false
	}
	for i, c := range spec {
		if *noted[i] != *c || !samePort(c, have[i]) || have[i].PublishedPort == 0 ||
			c.PublishedPort != 0 && c.PublishedPort != have[i].PublishedPort {
			return false
		}
	}
	return true
}

func specPorts(s *api.Service) []*api.PortConfig {
	if s.Spec.Endpoint == nil {
		return nil
	}
	return s.Spec.Endpoint.Ports
}

func endpointPorts(s *api.Service) []*api.PortConfig {
	if s.Endpoint == nil {
		return nil
	}
	return s.Endpoint.Ports
}

// older orders services by their creation.
func older(a, b *api.Service) bool {
	if x, y := a.Meta.CreatedAt, b.Meta.CreatedAt; x != nil && y != nil {
		if x.Seconds != y.Seconds {
			return x.Seconds < y.Seconds
		}
		if x.Nanos != y.Nanos {
			return x.Nanos < y.Nanos
		}
	}
	return a.ID < b.ID
}

func protoName(p api.PortConfig_Protocol) string { return strings.ToLower(p.String()) }
