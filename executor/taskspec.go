// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/strslice"
	"github.com/docker/go-connections/nat"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/api/naming"
)

// taskContainerID is the ID of a task's container: derived, so that a task
// has one container however often its creation is tried.
func taskContainerID(taskID string) string {
	sum := sha256.Sum256([]byte("satl task " + taskID))
	return hex.EncodeToString(sum[:])
}

// slotName is a task's name without its ID: web.1, or web.<node id> for a
// global service.
func (r Record) slotName() string {
	if r.Slot != 0 {
		return r.ServiceName + "." + strconv.FormatUint(r.Slot, 10)
	}
	return r.ServiceName + "." + r.NodeID
}

// taskRecord describes a task's container, or says what of its spec cannot
// be honoured here. spec is the task's container spec with its templates
// expanded.
func taskRecord(t *api.Task, spec *api.ContainerSpec) (Record, error) {
	if err := supported(t, spec); err != nil {
		return Record{}, err
	}
	r := Record{
		ID: taskContainerID(t.ID), Name: naming.Task(t), Image: spec.Image, Created: time.Now(),
		TaskID: t.ID, ServiceID: t.ServiceID, ServiceName: t.ServiceAnnotations.Name, NodeID: t.NodeID, Slot: t.Slot,
		Ports: taskPorts(t), ProbePort: firstTarget(t),
	}
	if err := r.takeServiceLabels(t.ServiceAnnotations.Labels); err != nil {
		return Record{}, err
	}
	r.takeNetworks(t)
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	maps.Copy(labels, map[string]string{
		"com.docker.swarm.node.id":      t.NodeID,
		"com.docker.swarm.service.id":   t.ServiceID,
		"com.docker.swarm.service.name": t.ServiceAnnotations.Name,
		"com.docker.swarm.task":         "",
		"com.docker.swarm.task.id":      t.ID,
		"com.docker.swarm.task.name":    r.Name,
	})
	r.Config = &container.Config{
		Hostname: spec.Hostname, User: spec.User, Env: spec.Env, Image: spec.Image, WorkingDir: spec.Dir,
		Entrypoint: strslice.StrSlice(spec.Command), Cmd: strslice.StrSlice(spec.Args),
		Tty: spec.TTY, OpenStdin: spec.OpenStdin, StopSignal: spec.StopSignal, Labels: labels,
		Healthcheck: healthConfig(spec.Healthcheck), ExposedPorts: exposedPorts(r.Ports),
	}
	if spec.StopGracePeriod != nil {
		seconds := int(duration(spec.StopGracePeriod).Round(time.Second) / time.Second)
		r.Config.StopTimeout = &seconds
	}
	r.HostConfig = taskHostConfig(t, spec)
	r.takeTaskLabels(t.Annotations.Labels)
	return r, r.checkProbe()
}

// supported refuses what would otherwise be accepted and then ignored.
func supported(t *api.Task, spec *api.ContainerSpec) error {
	switch {
	case spec.Privileges != nil && (spec.Privileges.CredentialSpec != nil || spec.Privileges.SELinuxContext != nil || spec.Privileges.Seccomp != nil || spec.Privileges.Apparmor != nil):
		return errors.New("credential specs and SELinux, seccomp and AppArmor profiles are not supported")
	case spec.Isolation == api.ContainerIsolationHyperV:
		return errors.New("hyper-v isolation is not supported")
	}
	for _, r := range spec.Secrets {
		if _, err := taskFile(SecretPath, r.GetFile(), nil); err != nil {
			return fmt.Errorf("secret %s: %w", r.SecretName, err)
		}
	}
	for _, r := range spec.Configs {
		if _, err := taskFile(ConfigPath, r.GetFile(), nil); err != nil {
			return fmt.Errorf("config %s: %w", r.ConfigName, err)
		}
	}
	for _, m := range spec.Mounts {
		if m.Type != api.MountTypeBind && m.Type != api.MountTypeTmpfs {
			return fmt.Errorf("mounts of type %s are not supported", strings.ToLower(m.Type.String()))
		}
	}
	return nil
}

func taskHostConfig(t *api.Task, spec *api.ContainerSpec) *container.HostConfig {
	h := &container.HostConfig{
		NetworkMode: "default", CapAdd: spec.CapabilityAdd, CapDrop: spec.CapabilityDrop,
		GroupAdd: spec.Groups, ExtraHosts: hostsEntries(spec.Hosts), ReadonlyRootfs: spec.ReadOnly,
		Sysctls: spec.Sysctls, OomScoreAdj: int(spec.OomScoreAdj), PortBindings: nat.PortMap{},
	}
	if spec.Init != nil {
		h.Init = &spec.Init.Value
	}
	if spec.DNSConfig != nil {
		h.DNS, h.DNSSearch, h.DNSOptions = spec.DNSConfig.Nameservers, spec.DNSConfig.Search, spec.DNSConfig.Options
	}
	if spec.Privileges != nil && spec.Privileges.NoNewPrivileges {
		h.SecurityOpt = []string{"no-new-privileges"}
	}
	for _, u := range spec.Ulimits {
		h.Ulimits = append(h.Ulimits, &container.Ulimit{Name: u.Name, Soft: u.Soft, Hard: u.Hard})
	}
	if spec.PidsLimit != 0 {
		h.PidsLimit = &spec.PidsLimit
	}
	if l := t.LogDriver; l != nil {
		h.LogConfig = container.LogConfig{Type: l.Name, Config: l.Options}
	}
	if l := t.Spec.LogDriver; l != nil {
		h.LogConfig = container.LogConfig{Type: l.Name, Config: l.Options}
	}
	if t.Spec.Resources != nil && t.Spec.Resources.Limits != nil {
		h.Memory, h.NanoCPUs = t.Spec.Resources.Limits.MemoryBytes, t.Spec.Resources.Limits.NanoCPUs
	}
	for _, m := range spec.Mounts {
		h.Mounts = append(h.Mounts, taskMount(m))
	}
	return h
}

func taskMount(m api.Mount) mount.Mount {
	out := mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
	if b := m.BindOptions; b != nil {
		out.BindOptions = &mount.BindOptions{
			Propagation:      mount.Propagation(strings.ToLower(b.Propagation.String())),
			NonRecursive:     b.NonRecursive,
			CreateMountpoint: b.CreateMountpoint,
		}
	}
	if m.Type == api.MountTypeTmpfs {
		out.Type, out.Source, out.BindOptions = mount.TypeTmpfs, "", nil
		if o := m.TmpfsOptions; o != nil {
			out.TmpfsOptions = &mount.TmpfsOptions{SizeBytes: o.SizeBytes, Mode: o.Mode}
		}
	}
	return out
}

// healthConfig is SwarmKit's health configuration in Docker's type.
func healthConfig(h *api.HealthConfig) *container.HealthConfig {
	if h == nil {
		return nil
	}
	return &container.HealthConfig{
		Test: h.Test, Interval: duration(h.Interval), Timeout: duration(h.Timeout),
		StartPeriod: duration(h.StartPeriod), StartInterval: duration(h.StartInterval), Retries: int(h.Retries),
	}
}

func duration(d *gogotypes.Duration) time.Duration {
	if d == nil {
		return 0
	}
	v, err := gogotypes.DurationFromProto(d)
	if err != nil { // out of range: refused at admission
		return 0
	}
	return v
}

// hostsEntries turns the service form of extra hosts ("IP name...") into the
// container form ("name:IP").
func hostsEntries(hosts []string) []string {
	var out []string
	for _, h := range hosts {
		fields := strings.Fields(h)
		for i := 1; i < len(fields); i++ {
			out = append(out, fields[i]+":"+fields[0])
		}
	}
	return out
}

func exposedPorts(ports []PortBinding) nat.PortSet {
	if len(ports) == 0 {
		return nil
	}
	set := make(nat.PortSet, len(ports))
	for _, p := range ports {
		set[nat.Port(fmt.Sprintf("%d/%s", p.Target, p.Proto))] = struct{}{}
	}
	return set
}

// isHostNetwork tells whether a network stands for the host's own stack.
func isHostNetwork(n *api.Network) bool {
	return n.Spec.DriverConfig != nil && n.Spec.DriverConfig.Name == "host" ||
		n.DriverState != nil && n.DriverState.Name == "host"
}

var _ exec.Executor = (*Node)(nil)
