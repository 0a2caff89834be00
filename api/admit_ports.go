// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/api"

	"satld/executor"
	"satld/healthcheck"
)

// admitPorts checks what a service publishes. A port that another service
// has is refused by SwarmKit's own check, cluster-wide.
func admitPorts(spec *swarm.ServiceSpec) error {
	e := spec.EndpointSpec
	if e == nil {
		return nil
	}
	switch e.Mode {
	case "", swarm.ResolutionModeVIP, swarm.ResolutionModeDNSRR:
	default:
		return errInvalid("invalid resolution mode: %q", e.Mode)
	}
	for _, p := range e.Ports {
		switch p.Protocol {
		case "", swarm.PortConfigProtocolTCP, swarm.PortConfigProtocolUDP, swarm.PortConfigProtocolSCTP:
		default:
			return errInvalid("invalid published port: unknown protocol %q", p.Protocol)
		}
		switch p.PublishMode {
		case "", swarm.PortConfigPublishModeIngress, swarm.PortConfigPublishModeHost:
		default:
			return errInvalid("invalid published port: unknown publish mode %q", p.PublishMode)
		}
		if p.TargetPort == 0 || p.TargetPort > 65535 {
			return errInvalid("invalid target port %d: must be between 1 and 65535", p.TargetPort)
		}
		if p.PublishedPort > 65535 {
			return errInvalid("invalid published port %d: must be at most 65535", p.PublishedPort)
		}
	}
	return nil
}

// publishedPorts are the ports of a spec, for the texts of healthcheck.
func publishedPorts(spec *swarm.ServiceSpec) []healthcheck.PublishedPort {
	if spec.EndpointSpec == nil {
		return nil
	}
	var ports []healthcheck.PublishedPort
	for _, p := range spec.EndpointSpec.Ports {
		ports = append(ports, healthcheck.PublishedPort{Published: p.PublishedPort, Target: p.TargetPort, Proto: string(p.Protocol)})
	}
	return ports
}

// portKey names one port of a host.
type portKey struct {
	proto string
	port  uint32
}

func keyOf(p swarm.PortConfig) portKey {
	if p.Protocol == "" {
		p.Protocol = swarm.PortConfigProtocolTCP
	}
	return portKey{string(p.Protocol), p.PublishedPort}
}

// containerPortClash refuses a port that a container of `run -p` publishes on
// this node: both would claim the same traffic.
func (s *Server) containerPortClash(spec *swarm.ServiceSpec) error {
	if spec.EndpointSpec == nil {
		return nil
	}
	wanted := make(map[portKey]bool)
	for _, p := range spec.EndpointSpec.Ports {
		if p.PublishedPort != 0 {
			wanted[keyOf(p)] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	for _, c := range s.cfg.Containers.List() {
		for _, p := range c.Ports {
			if c.TaskID == "" && wanted[portKey{p.Proto, uint32(p.Published)}] {
				return errInvalid("port '%d' is already in use by container '%s' on this node", p.Published, c.Name)
			}
		}
	}
	return nil
}

// portWarnings warns of published ports that a process of this node listens
// on. It is no refusal: another node may be meant, and the redirect works.
// Ports that the service has already are not looked at again.
func (s *Server) portWarnings(spec *swarm.ServiceSpec, current *api.Service) []string {
	if spec.EndpointSpec == nil {
		return nil
	}
	had := make(map[portKey]bool)
	if current != nil && current.Spec.Endpoint != nil {
		for _, p := range current.Spec.Endpoint.Ports {
			had[portKey{strings.ToLower(p.Protocol.String()), p.PublishedPort}] = true
		}
	}
	var warnings []string
	for _, p := range spec.EndpointSpec.Ports {
		key := keyOf(p)
		if p.PublishedPort == 0 || had[key] || !s.portBusy(key.proto, p.PublishedPort) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("port %d/%s is in use by a process on node %s: while service %s publishes it, new connections reach the service and not that process",
			p.PublishedPort, key.proto, s.nodeName(), spec.Name))
	}
	return warnings
}

// hostPortBusy tells whether a process of this host holds a port.
func hostPortBusy(proto string, port uint32) bool { return executor.PortHeld(proto, "", port) != nil }
