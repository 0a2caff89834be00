// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/storage"
	"github.com/docker/go-connections/nat"
	"github.com/docker/go-units"

	"satld/executor"
	"satld/healthcheck"
	"satld/jail"
)

// shortID is an ID as people see it: 12 digits.
func shortID(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	if len(id) > 12 {
		return id[:12]
	}
	return id
}

// containerSummary renders one entry of a list; image is what to call its
// image, names gives a network's name by its ID.
func containerSummary(c executor.Snapshot, image string, names func(string) string, now time.Time) *container.Summary {
	sum := &container.Summary{
		ID:              c.ID,
		Names:           []string{"/" + c.Name},
		Image:           image,
		ImageID:         c.ImageID,
		Command:         commandLine(c.Args),
		Created:         c.Created.Unix(),
		Ports:           listedPorts(c),
		Labels:          shownLabels(c),
		State:           c.State.String(),
		Status:          containerStatus(c, now),
		NetworkSettings: &container.NetworkSettingsSummary{Networks: endpoints(c, names)},
		Mounts:          mountPoints(c.Mounts),
	}
	sum.HostConfig.NetworkMode = string(networkMode(c))
	if c.HostConfig != nil {
		sum.HostConfig.Annotations = c.HostConfig.Annotations
	}
	return sum
}

// containerStatus is the STATUS column of `docker ps`, in Docker's words.
func containerStatus(c executor.Snapshot, now time.Time) string {
	ago := func(t time.Time) string { return units.HumanDuration(max(0, now.Sub(t))) }
	switch c.State {
	case executor.Running:
		if c.Health != nil {
			return fmt.Sprintf("Up %s (%s)", ago(c.Started), c.Health)
		}
		return "Up " + ago(c.Started)
	case executor.Paused:
		return fmt.Sprintf("Up %s (Paused)", ago(c.Started))
	case executor.Removing:
		return "Removal In Progress"
	case executor.Dead:
		return "Dead"
	case executor.Exited:
		return fmt.Sprintf("Exited (%d) %s ago", c.ExitCode, ago(c.Finished))
	}
	return "Created"
}

// commandLine is the COMMAND column: arguments with a blank are quoted.
func commandLine(args []string) string {
	out := slices.Clone(args)
	for i, arg := range out {
		if i > 0 && strings.Contains(arg, " ") {
			out[i] = "'" + arg + "'"
		}
	}
	return strings.Join(out, " ")
}

// shownLabels are the labels of a container, those of its task among them.
func shownLabels(c executor.Snapshot) map[string]string {
	labels := map[string]string{}
	if c.Config != nil {
		maps.Copy(labels, c.Config.Labels)
	}
	if c.TaskID != "" {
		maps.Copy(labels, map[string]string{
			"com.docker.swarm.node.id":      c.NodeID,
			"com.docker.swarm.service.id":   c.ServiceID,
			"com.docker.swarm.service.name": c.ServiceName,
			"com.docker.swarm.task":         "",
			"com.docker.swarm.task.id":      c.TaskID,
			"com.docker.swarm.task.name":    c.Name,
		})
	}
	return labels
}

// portMap is what a container publishes and, without a binding, exposes;
// nothing once it has ended.
func portMap(c executor.Snapshot) nat.PortMap {
	ports := nat.PortMap{}
	if !c.State.Live() {
		return ports
	}
	if c.Config != nil {
		for p := range c.Config.ExposedPorts {
			ports[p] = nil
		}
	}
	for _, b := range c.Ports {
		p := nat.Port(fmt.Sprintf("%d/%s", b.Target, b.Proto))
		ports[p] = append(ports[p], nat.PortBinding{HostIP: cmp.Or(b.HostIP, "0.0.0.0"), HostPort: strconv.Itoa(int(b.Published))})
	}
	return ports
}

// listedPorts is portMap in the form of a list, in a fixed order.
func listedPorts(c executor.Snapshot) []container.Port {
	ports := []container.Port{}
	for p, bindings := range portMap(c) {
		private := uint16(p.Int())
		if len(bindings) == 0 {
			ports = append(ports, container.Port{PrivatePort: private, Type: p.Proto()})
		}
		for _, b := range bindings {
			public, _ := strconv.ParseUint(b.HostPort, 10, 16) // rendered above
			ports = append(ports, container.Port{IP: b.HostIP, PrivatePort: private, PublicPort: uint16(public), Type: p.Proto()})
		}
	}
	slices.SortFunc(ports, func(a, b container.Port) int {
		return cmp.Or(cmp.Compare(a.PrivatePort, b.PrivatePort), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.IP, b.IP), cmp.Compare(a.PublicPort, b.PublicPort))
	})
	return ports
}

// endpoints are a container's places in its networks, by network name.
func endpoints(c executor.Snapshot, names func(string) string) map[string]*network.EndpointSettings {
	out := map[string]*network.EndpointSettings{}
	for _, at := range c.Networks {
		ep := &network.EndpointSettings{NetworkID: at.NetworkID}
		if c.State.Live() && at.Addr.IsValid() {
			ep.EndpointID = endpointID(c.ID, at.NetworkID)
			ep.MacAddress = at.MAC
			gateway := ""
			if at.Gateway.IsValid() {
				gateway = at.Gateway.String()
			}
			if at.Addr.Addr().Is4() {
				ep.IPAddress, ep.IPPrefixLen, ep.Gateway = at.Addr.Addr().String(), at.Addr.Bits(), gateway
				ep.IPAMConfig = &network.EndpointIPAMConfig{IPv4Address: ep.IPAddress}
			} else {
				ep.GlobalIPv6Address, ep.GlobalIPv6PrefixLen, ep.IPv6Gateway = at.Addr.Addr().String(), at.Addr.Bits(), gateway
				ep.IPAMConfig = &network.EndpointIPAMConfig{IPv6Address: ep.GlobalIPv6Address}
			}
		}
		out[names(at.NetworkID)] = ep
	}
	if len(out) == 0 && networkMode(c).IsHost() {
		out[network.NetworkHost] = &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{}}
	}
	return out
}

// networkMode is the mode as it came about: a task joins the host's network
// as it joins any other, by name.
func networkMode(c executor.Snapshot) container.NetworkMode {
	switch {
	case c.HostNetwork:
		return network.NetworkHost
	case c.HostConfig == nil:
		return network.NetworkDefault
	}
	return c.HostConfig.NetworkMode
}

// endpointID names the attachment of one container to one network.
func endpointID(containerID, networkID string) string {
	sum := sha256.Sum256([]byte(containerID + " " + networkID))
	return hex.EncodeToString(sum[:])
}

func mountPoints(mounts []jail.Mount) []container.MountPoint {
	out := []container.MountPoint{}
	for _, m := range mounts {
		p := container.MountPoint{Type: mount.Type(m.Type), Source: m.Source, Destination: m.Target, RW: !m.ReadOnly}
		switch p.Type {
		case mount.TypeTmpfs:
			p.Source = ""
		case mount.TypeBind:
			p.Propagation = mount.PropagationRPrivate
			for _, o := range m.Options {
				if slices.Contains(mount.Propagations, mount.Propagation(o)) {
					p.Propagation = mount.Propagation(o)
				}
			}
		}
		out = append(out, p)
	}
	return out
}

// containerJSON renders `docker inspect`. State.Health is there if and only
// if there is a probe, and its Log is never null.
func containerJSON(c executor.Snapshot, names func(string) string) *container.InspectResponse {
	base := &container.ContainerJSONBase{
		ID:      c.ID,
		Created: c.Created.UTC().Format(time.RFC3339Nano),
		Args:    []string{},
		State: &container.State{
			Status:     c.State.String(),
			Running:    c.State.Live(),
			Paused:     c.State == executor.Paused,
			OOMKilled:  c.OOMKilled,
			Dead:       c.State == executor.Dead,
			ExitCode:   c.ExitCode,
			Error:      c.Error,
			StartedAt:  c.Started.UTC().Format(time.RFC3339Nano),
			FinishedAt: c.Finished.UTC().Format(time.RFC3339Nano),
			Health:     inspectedHealth(c.Health),
		},
		Image:        c.ImageID,
		Name:         "/" + c.Name,
		RestartCount: c.RestartCount,
		Driver:       storageDriver,
		Platform:     runtime.GOOS,
		HostConfig:   &container.HostConfig{},
		GraphDriver:  storage.DriverData{Name: storageDriver},
	}
	if c.State.Live() {
		base.State.Pid = c.Pid
	}
	if len(c.Args) > 0 {
		base.Path, base.Args = c.Args[0], append(base.Args, c.Args[1:]...)
	}
	if c.HostConfig != nil {
		*base.HostConfig = *c.HostConfig
	}
	base.HostConfig.NetworkMode = networkMode(c)
	showHostDefaults(base.HostConfig)
	config := container.Config{}
	if c.Config != nil {
		config = *c.Config
	}
	config.Labels = shownLabels(c)
	return &container.InspectResponse{
		ContainerJSONBase: base,
		Mounts:            mountPoints(c.Mounts),
		Config:            &config,
		NetworkSettings:   networkSettings(c, names),
	}
}

// defaultShmSize is the size of /dev/shm where none is asked for (jail.Spec).
const defaultShmSize = 64 << 20

// showHostDefaults fills in what holds where nothing was asked for.
func showHostDefaults(h *container.HostConfig) {
	if h.PortBindings == nil {
		h.PortBindings = nat.PortMap{}
	}
	h.LogConfig.Type = cmp.Or(h.LogConfig.Type, "json-file")
	if h.LogConfig.Config == nil {
		h.LogConfig.Config = map[string]string{}
	}
	h.IpcMode = cmp.Or(h.IpcMode, container.IPCModePrivate)
	h.ShmSize = cmp.Or(h.ShmSize, defaultShmSize)
	h.Isolation = cmp.Or(h.Isolation, container.IsolationDefault)
}

func networkSettings(c executor.Snapshot, names func(string) string) *container.NetworkSettings {
	out := &container.NetworkSettings{Networks: endpoints(c, names)}
	out.Ports = portMap(c)
	if c.State.Live() {
		out.SandboxID = c.ID
	}
	// Deprecated and still what scripts read: the address in the default
	// network, which here is the first one of a container.
	if len(c.Networks) > 0 {
		if ep := out.Networks[names(c.Networks[0].NetworkID)]; ep != nil {
			out.DefaultNetworkSettings = container.DefaultNetworkSettings{
				EndpointID: ep.EndpointID, Gateway: ep.Gateway, IPAddress: ep.IPAddress, IPPrefixLen: ep.IPPrefixLen,
				GlobalIPv6Address: ep.GlobalIPv6Address, GlobalIPv6PrefixLen: ep.GlobalIPv6PrefixLen,
				IPv6Gateway: ep.IPv6Gateway, MacAddress: ep.MacAddress,
			}
		}
	}
	return out
}

// inspectedHealth is State.Health of an inspect; nil without a probe.
func inspectedHealth(h *healthcheck.Health) *container.Health {
	if h == nil {
		return nil
	}
	out := &container.Health{
		Status:        h.Status.String(),
		FailingStreak: h.FailingStreak,
		Log:           []*container.HealthcheckResult{},
	}
	for _, r := range h.Log {
		out.Log = append(out.Log, &container.HealthcheckResult{Start: r.Start, End: r.End, ExitCode: r.ExitCode, Output: r.Output})
	}
	return out
}

// withOldAliases adds to user-defined networks the aliases that API versions
// before 1.45 listed there: the short ID and the host name.
func withOldAliases(c *container.InspectResponse) {
	for name, ep := range c.NetworkSettings.Networks {
		if container.NetworkMode(name).IsUserDefined() {
			for _, alias := range []string{shortID(c.ID), c.Config.Hostname} {
				if alias != "" && !slices.Contains(ep.Aliases, alias) {
					ep.Aliases = append(ep.Aliases, alias)
				}
			}
		}
	}
}
