// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/go-units"
	"github.com/moby/sys/signal"
)

// admitContainer checks the container part of a spec and refuses what the
// executor does not honour.
func admitContainer(spec *swarm.ServiceSpec) error {
	c := spec.TaskTemplate.ContainerSpec
	switch {
	case c.Image == "":
		return errInvalid("ContainerSpec: image reference must be provided")
	case c.Isolation != "" && !c.Isolation.IsDefault() && !c.Isolation.IsProcess():
		return errNotSupported("isolation %q is not supported", c.Isolation)
	case c.StopGracePeriod != nil && *c.StopGracePeriod < 0:
		return errInvalid("invalid ContainerSpec: StopGracePeriod cannot be negative")
	case c.OomScoreAdj < -1000 || c.OomScoreAdj > 1000:
		return errInvalid("invalid ContainerSpec: OomScoreAdj must be between -1000 and 1000, not %d", c.OomScoreAdj)
	}
	if _, err := reference.ParseNormalizedNamed(c.Image); err != nil {
		return errInvalid("ContainerSpec: %q is not a valid repository/tag", c.Image)
	}
	if c.StopSignal != "" {
		if _, err := signal.ParseSignal(c.StopSignal); err != nil {
			return errInvalid("invalid ContainerSpec: StopSignal: %v", err)
		}
	}
	for _, kv := range c.Env {
		if name, _, _ := strings.Cut(kv, "="); name == "" || strings.ContainsRune(kv, 0) {
			return errInvalid("invalid environment variable: %q", kv)
		}
	}
	for _, u := range c.Ulimits {
		if err := admitUlimit(u); err != nil {
			return err
		}
	}
	if err := admitPrivileges(c.Privileges); err != nil {
		return err
	}
	if err := admitFiles(c); err != nil {
		return err
	}
	return admitNames(c)
}

func admitUlimit(u *container.Ulimit) error {
	if u == nil {
		return errInvalid("invalid ContainerSpec: Ulimits has an empty entry")
	}
	if _, err := u.GetRlimit(); err != nil {
		return errInvalid("invalid ulimit %q: %v", u.Name, err)
	}
	return nil
}

// admitPrivileges accepts what means no more than the default.
func admitPrivileges(p *swarm.Privileges) error {
	switch {
	case p == nil:
	case p.CredentialSpec != nil:
		return errNotSupported("credential specs are not supported")
	case p.SELinuxContext != nil:
		return errNotSupported("SELinux contexts are not supported")
	case p.Seccomp != nil && (p.Seccomp.Mode != "" && p.Seccomp.Mode != swarm.SeccompModeDefault || len(p.Seccomp.Profile) > 0):
		return errNotSupported("seccomp profiles are not supported")
	case p.AppArmor != nil && p.AppArmor.Mode != "" && p.AppArmor.Mode != swarm.AppArmorModeDefault:
		return errNotSupported("AppArmor profiles are not supported")
	default:
		// The executor refuses any, and these mean the default.
		p.Seccomp, p.AppArmor = nil, nil
	}
	return nil
}

// admitNames checks extra hosts ("IP name...") and resolver settings.
func admitNames(c *swarm.ContainerSpec) error {
	for _, h := range c.Hosts {
		fields := strings.Fields(h)
		if len(fields) < 2 {
			return errInvalid("invalid extra host %q: an address and a name are needed", h)
		}
		if _, err := netip.ParseAddr(fields[0]); err != nil {
			return errInvalid("invalid extra host %q: %v", h, err)
		}
	}
	if c.DNSConfig == nil {
		return nil
	}
	for _, n := range c.DNSConfig.Nameservers {
		if _, err := netip.ParseAddr(n); err != nil {
			return errInvalid("invalid name server %q: %v", n, err)
		}
	}
	return nil
}

// admitMounts allows bind and tmpfs mounts whose every option is honoured.
func admitMounts(spec *swarm.ServiceSpec) error {
	for _, m := range spec.TaskTemplate.ContainerSpec.Mounts {
		if err := admitMount(m); err != nil {
			return err
		}
	}
	return nil
}

func admitMount(m mount.Mount) error {
	switch m.Type {
	case mount.TypeBind, mount.TypeTmpfs:
	case "", mount.TypeVolume:
		return errNotSupported("invalid mount of %q: %s", m.Target, noVolumes)
	case mount.TypeNamedPipe, mount.TypeCluster, mount.TypeImage:
		return errNotSupported("mounts of type %s are not supported", m.Type)
	default:
		return errInvalid("invalid mount type %q", m.Type)
	}
	if !path.IsAbs(m.Target) || path.Clean(m.Target) == "/" {
		return errInvalid("invalid mount target %q: must be an absolute path other than /", m.Target)
	}
	if m.VolumeOptions != nil || m.ClusterOptions != nil || m.ImageOptions != nil {
		return errInvalid("invalid mount config for type %q: it has options of another type", m.Type)
	}
	if m.Type == mount.TypeBind {
		return admitBind(m)
	}
	switch {
	case m.Source != "" || m.BindOptions != nil:
		return errInvalid("invalid mount config for type %q: it has a source or options of another type", m.Type)
	case m.TmpfsOptions != nil && m.TmpfsOptions.SizeBytes < 0:
		return errInvalid("invalid mount config for type %q: size cannot be negative", m.Type)
	case m.TmpfsOptions != nil && len(m.TmpfsOptions.Options) > 0:
		return errNotSupported("options of tmpfs mounts besides size and mode are not supported")
	}
	return nil
}

func admitBind(m mount.Mount) error {
	if !path.IsAbs(m.Source) {
		return errInvalid("invalid mount source %q: must be an absolute path", m.Source)
	}
	if m.TmpfsOptions != nil {
		return errInvalid("invalid mount config for type %q: it has options of another type", m.Type)
	}
	b := m.BindOptions
	switch {
	case b == nil:
	case b.CreateMountpoint:
		return errNotSupported("bind mounts that create their source are not supported: make %s first", m.Source)
	case b.ReadOnlyNonRecursive || b.ReadOnlyForceRecursive:
		return errNotSupported("recursive read-only options of bind mounts are not supported")
	}
	return nil
}

// admitResources checks limits and reservations.
func admitResources(spec *swarm.ServiceSpec) error {
	r := spec.TaskTemplate.Resources
	if r == nil {
		return nil
	}
	if l := r.Limits; l != nil && (l.NanoCPUs < 0 || l.MemoryBytes < 0 || l.Pids < -1) {
		return errInvalid("invalid resource limits: they cannot be negative")
	}
	if res := r.Reservations; res != nil {
		if res.NanoCPUs < 0 || res.MemoryBytes < 0 {
			return errInvalid("invalid resource reservations: they cannot be negative")
		}
		if len(res.GenericResources) > 0 {
			return errNotSupported("generic resources are not supported")
		}
	}
	return nil
}

// admitLogDriver allows the drivers that mean our own log files, with the
// options that those have.
func admitLogDriver(spec *swarm.ServiceSpec) error {
	d := spec.TaskTemplate.LogDriver
	if d == nil {
		return nil
	}
	switch d.Name {
	case "", "json-file", "local", "none":
	default:
		return errNotSupported("log driver %q is not supported: use json-file, local or none", d.Name)
	}
	for name, value := range d.Options {
		switch name {
		case "max-size":
			if n, err := units.RAMInBytes(value); err != nil || n <= 0 {
				return errInvalid("invalid log option max-size: %q is no size", value)
			}
		case "max-file":
			if n, err := strconv.Atoi(value); err != nil || n < 1 {
				return errInvalid("invalid log option max-file: %q is no number of files", value)
			}
		default:
			return errNotSupported("log option %q is not supported", name)
		}
	}
	return nil
}
