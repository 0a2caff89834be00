// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"regexp"

	"github.com/docker/docker/api/types/swarm"
	"github.com/moby/swarmkit/v2/manager/constraint"

	"satld/healthcheck"
)

// admission is what the check of a service spec found besides errors.
type admission struct {
	warnings  []string
	applied   string // the published service's probe defaults that were written into the spec
	published string // "8080->80/tcp", for the log line
}

// admit checks a service spec as it came, writes the probe defaults of a
// published service into it, and puts secrets and configs in order. It is pure
// but for that.
//
// Whatever of Docker's specification would isolate, restrict or change a
// container and is not honoured here is refused, never ignored.
func admit(spec *swarm.ServiceSpec) (admission, error) {
	for _, check := range []func(*swarm.ServiceSpec) error{
		admitRuntime, admitName, admitMode, admitServiceLabels, admitContainer, admitMounts,
		admitResources, admitRestart, admitPlacement, admitLogDriver, admitPorts,
	} {
		if err := check(spec); err != nil {
			return admission{}, err
		}
	}
	return admitHealth(spec)
}

// admitHealth validates the probe, and for a service that publishes a port
// applies the tighter defaults or warns that it has none. Then it warns of what
// cannot work as written.
//
// Rules: spec/healthchecks.txt, "Publishing a port tightens the defaults" and
// "A published service with no probe at all is a warning".
func admitHealth(spec *swarm.ServiceSpec) (admission, error) {
	c := spec.TaskTemplate.ContainerSpec
	var a admission
	if ports := publishedPorts(spec); len(ports) > 0 {
		a.published = healthcheck.PublishedText(ports)
		c.Healthcheck, a.applied = healthcheck.TightenSpec(c.Healthcheck, c.Labels)
	}
	_, probed, warnings, err := healthcheck.FromSpec(c.Healthcheck, c.Labels)
	if err != nil {
		return admission{}, errInvalid("%v", err)
	}
	a.warnings = warnings
	if a.published != "" && !probed {
		a.warnings = append(a.warnings, healthcheck.NoProbeWarning(spec.Name, a.published))
	}
	probe, err := effectiveProbe(spec)
	if err != nil {
		return admission{}, err
	}
	a.warnings = append(a.warnings, specWarnings(spec, probe)...)
	return a, nil
}

// effectiveProbe is the probe of a spec with every default in its place; nil
// without one.
func effectiveProbe(spec *swarm.ServiceSpec) (*healthcheck.Settings, error) {
	c := spec.TaskTemplate.ContainerSpec
	settings, probed, _, err := healthcheck.FromSpec(c.Healthcheck, c.Labels)
	if err == nil && probed {
		settings, err = settings.WithPort(firstPort(spec))
	}
	if err != nil {
		return nil, errInvalid("%v", err)
	}
	if !probed {
		return nil, nil
	}
	return &settings, nil
}

// firstPort is the first target port of a service, 0 where it has none.
func firstPort(spec *swarm.ServiceSpec) uint16 {
	if spec.EndpointSpec == nil || len(spec.EndpointSpec.Ports) == 0 {
		return 0
	}
	return uint16(spec.EndpointSpec.Ports[0].TargetPort) // checked by admitPorts
}

// admitRuntime refuses what is no container.
func admitRuntime(spec *swarm.ServiceSpec) error {
	switch t := &spec.TaskTemplate; {
	case t.Runtime == swarm.RuntimePlugin || t.PluginSpec != nil:
		return errNotSupported("services that run plugins are not supported")
	case t.Runtime == swarm.RuntimeNetworkAttachment || t.NetworkAttachmentSpec != nil:
		return errInvalid("invalid task spec: spec type %q not supported", swarm.RuntimeNetworkAttachment)
	case t.Runtime != "" && t.Runtime != swarm.RuntimeContainer:
		return errInvalid("unsupported runtime type: %q", t.Runtime)
	case t.ContainerSpec == nil:
		return errInvalid("invalid task spec: ContainerSpec is missing")
	}
	return nil
}

// serviceName is what a service may be called: one label of a DNS name, as in Docker.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9](?:[-_]*[A-Za-z0-9]+)*$`)

func admitName(spec *swarm.ServiceSpec) error {
	switch {
	case spec.Name == "": // one is made up
		return nil
	case len(spec.Name) > 63:
		return errInvalid("invalid service name %q: name must be 63 characters or fewer", spec.Name)
	case !serviceName.MatchString(spec.Name):
		return errInvalid("invalid service name %q: name must be valid as a DNS name component", spec.Name)
	}
	return nil
}

// mostTasks is how many tasks a service may have at a time. Each is a record in
// every manager's memory (some 5 KiB), so that a slip of the keyboard would
// take the cluster down, and again after each restart.
const mostTasks = 100_000

func admitMode(spec *swarm.ServiceSpec) error {
	asked := uint64(0)
	switch m := spec.Mode; {
	case m.Replicated != nil && m.Replicated.Replicas != nil:
		asked = *m.Replicated.Replicas
	case m.ReplicatedJob != nil && m.ReplicatedJob.MaxConcurrent != nil:
		asked = *m.ReplicatedJob.MaxConcurrent
	}
	if asked > mostTasks {
		return errInvalid("invalid number of replicas: %d: a service may have %d tasks at most", asked, mostTasks)
	}
	return nil
}

func admitPlacement(spec *swarm.ServiceSpec) error {
	if spec.TaskTemplate.Placement == nil {
		return nil
	}
	if _, err := constraint.Parse(spec.TaskTemplate.Placement.Constraints); err != nil {
		return errInvalid("invalid placement constraint: %v", err)
	}
	return nil
}

func admitRestart(spec *swarm.ServiceSpec) error {
	p := spec.TaskTemplate.RestartPolicy
	if p == nil {
		return nil
	}
	if p.Delay != nil && *p.Delay < 0 {
		return errInvalid("invalid RestartPolicy: Delay cannot be negative")
	}
	if p.Window != nil && *p.Window < 0 {
		return errInvalid("invalid RestartPolicy: Window cannot be negative")
	}
	return nil
}
