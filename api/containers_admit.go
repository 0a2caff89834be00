// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-connections/nat"
	"github.com/moby/sys/signal"

	"satld/platform"
)

// admitRun checks what `run` asks for. What isolates or promises
// something and cannot be honoured is refused, never ignored; what is merely
// without effect is dropped with a warning.
func admitRun(c *container.Config, h *container.HostConfig, runtime string) (warnings []string, err error) {
	if err := checkRun(c, h); err != nil {
		return nil, err
	}
	if name := h.Runtime; name != "" && name != runtime {
		return nil, errInvalid("unknown or invalid runtime name: %s: this node's is %s", name, cmp.Or(runtime, "not named"))
	}
	if !h.Isolation.IsDefault() {
		return nil, errInvalid("invalid isolation: %s: the default is the only one", h.Isolation)
	}
	if reasons := unsupportedOptions(c, h); len(reasons) > 0 {
		return nil, errNotSupported("not supported: %s", strings.Join(reasons, "; "))
	}
	if h.NetworkMode.IsHost() && len(h.PortBindings) > 0 {
		h.PortBindings = nil
		warnings = append(warnings, "Published ports are discarded when using host network mode")
	}
	return warnings, nil
}

// checkRun refuses what is wrong whoever runs it: 400.
func checkRun(c *container.Config, h *container.HostConfig) error {
	if err := checkEnv(c.Env); err != nil {
		return err
	}
	for _, name := range ownLabels(c.Labels) {
		if err := admitAppLabel(name, c.Labels[name]); err != nil {
			return err
		}
	}
	if err := admitJail(c.Labels, platform.OS); err != nil {
		return err
	}
	if c.StopSignal != "" {
		if _, err := signal.ParseSignal(c.StopSignal); err != nil {
			return errInvalid("%v", err)
		}
	}
	if c.WorkingDir != "" && !strings.HasPrefix(c.WorkingDir, "/") {
		return errInvalid("the working directory '%s' is invalid, it needs to be an absolute path", c.WorkingDir)
	}
	if err := container.ValidateRestartPolicy(h.RestartPolicy); err != nil {
		return err
	}
	if h.AutoRemove && !h.RestartPolicy.IsNone() {
		return errInvalid("can't create 'AutoRemove' container with restart policy")
	}
	limits := []struct {
		name  string
		value int64
	}{{"memory limit", h.Memory}, {"CPU limit", h.NanoCPUs}, {"size of /dev/shm", h.ShmSize}}
	for _, l := range limits {
		if l.value < 0 {
			return errInvalid("invalid %s %d: it cannot be negative", l.name, l.value)
		}
	}
	if h.Memory != 0 && h.Memory < leastMemory {
		return errInvalid("Minimum memory limit allowed is 6MB") // the runtime's own set-up takes as much
	}
	if cpus := runtime.NumCPU(); h.NanoCPUs > int64(cpus)*1e9 {
		return errInvalid("range of CPUs is from 0.01 to %[1]d.00, as there are only %[1]d CPUs available", cpus)
	}
	if err := checkConsoleSize(&h.ConsoleSize); err != nil {
		return err
	}
	if h.OomScoreAdj < -1000 || h.OomScoreAdj > 1000 {
		return errInvalid("Invalid value %d, range for oom score adj is [-1000, 1000]", h.OomScoreAdj)
	}
	for _, u := range h.Ulimits {
		if u == nil || u.Name == "" || u.Soft > u.Hard && u.Hard != -1 {
			return errInvalid("invalid ulimit: %v: the soft limit cannot be above the hard one", u)
		}
	}
	if err := checkMounts(h.Mounts); err != nil {
		return err
	}
	for port := range c.ExposedPorts {
		if err := checkPort(port); err != nil {
			return err
		}
	}
	return checkPortBindings(h.PortBindings)
}

// leastMemory is the smallest limit of memory, in bytes; Docker's own.
const leastMemory = 6 << 20

func checkMounts(mounts []mount.Mount) error {
	for _, m := range mounts {
		switch {
		case m.Target == "" || !strings.HasPrefix(m.Target, "/"):
			return errInvalid("invalid mount config for type %q: invalid mount path: '%s' mount path must be absolute", m.Type, m.Target)
		case m.VolumeOptions != nil && m.Type != mount.TypeVolume:
			return errInvalid("VolumeOptions must not be specified on mount type %q", m.Type)
		case m.BindOptions != nil && m.Type != mount.TypeBind:
			return errInvalid("BindOptions must not be specified on mount type %q", m.Type)
		case m.TmpfsOptions != nil && m.Type != mount.TypeTmpfs:
			return errInvalid("TmpfsOptions must not be specified on mount type %q", m.Type)
		case m.Type == mount.TypeBind && !strings.HasPrefix(m.Source, "/"):
			return errInvalid("invalid mount config for type \"bind\": invalid mount path: '%s' mount path must be absolute", m.Source)
		}
	}
	return nil
}

func checkPort(port nat.Port) error {
	n, err := strconv.ParseUint(port.Port(), 10, 16)
	if err != nil || n == 0 {
		return errInvalid("invalid port specification: %q", port)
	}
	switch port.Proto() {
	case "tcp", "udp", "sctp":
		return nil
	}
	return errInvalid("invalid port specification: %q: unknown protocol", port)
}

func checkPortBindings(bindings nat.PortMap) error {
	for port, list := range bindings {
		if err := checkPort(port); err != nil {
			return err
		}
		for _, b := range list {
			if b.HostPort != "" && strings.Contains(b.HostPort, "-") {
				return errNotSupported("not supported: a range of host ports (%s) for one port of the container", b.HostPort)
			}
			if b.HostPort != "" {
				if _, err := strconv.ParseUint(b.HostPort, 10, 16); err != nil {
					return errInvalid("invalid port specification: %q", b.HostPort)
				}
			}
			if b.HostIP == "" {
				continue
			}
			ip, err := netip.ParseAddr(b.HostIP)
			if err != nil {
				return errInvalid("invalid IP address in port binding: %s", b.HostIP)
			}
			if ip.Is6() {
				return errNotSupported("not supported: publishing on an IPv6 address (%s)", b.HostIP)
			}
		}
	}
	return nil
}

// unsupportedOptions names everything that is asked for and cannot be had.
func unsupportedOptions(c *container.Config, h *container.HostConfig) (reasons []string) {
	refuse := func(when bool, why string) {
		if when {
			reasons = append(reasons, why)
		}
	}
	refuse(len(c.Volumes) > 0, "anonymous volumes (mount a host path with -v /path:/path)")
	refuse(c.NetworkDisabled || h.NetworkMode.IsNone(), "a container without a network (network mode none)")
	refuse(c.MacAddress != "", "a MAC address of one's own")
	refuse(h.NetworkMode.IsContainer(), "the network of another container")
	refuse(!h.RestartPolicy.IsNone(), "restart policies of containers (run a service to have it restarted)")
	refuse(len(h.VolumesFrom) > 0, "volumes of other containers (volumes-from)")
	refuse(h.VolumeDriver != "" && h.VolumeDriver != "local", "volume drivers")
	refuse(len(h.Links) > 0, "links between containers (use a network)")
	refuse(len(h.Devices) > 0 || len(h.DeviceRequests) > 0 || len(h.DeviceCgroupRules) > 0, "devices")
	refuse(len(h.StorageOpt) > 0, "storage options")
	refuse(h.MaskedPaths != nil || h.ReadonlyPaths != nil, "masked and read-only paths of one's own")

	refuse(!h.IpcMode.IsEmpty() && !h.IpcMode.IsPrivate(), "IPC mode "+string(h.IpcMode))
	refuse(h.PidMode != "", "PID mode "+string(h.PidMode))
	refuse(h.UTSMode != "", "UTS mode "+string(h.UTSMode))
	refuse(h.UsernsMode != "" && h.UsernsMode != "host", "user namespace mode "+string(h.UsernsMode))
	refuse(!h.CgroupnsMode.IsEmpty() && !h.CgroupnsMode.IsPrivate(), "cgroup namespace mode "+string(h.CgroupnsMode))
	refuse(h.Cgroup != "" || h.CgroupParent != "", "cgroups of one's own (cgroup-parent)")
	for _, o := range h.SecurityOpt {
		name, value, _ := strings.Cut(strings.Replace(o, "=", ":", 1), ":")
		ok := name == "no-new-privileges" && (value == "" || value == "true" || value == "false")
		refuse(!ok, "security option "+o)
	}

	refuse(h.CPUShares != 0, "CPU shares")
	refuse(h.CPUPeriod != 0 || h.CPUQuota != 0, "CPU period and quota (use --cpus)")
	refuse(h.CPURealtimePeriod != 0 || h.CPURealtimeRuntime != 0, "CPU real-time limits")
	refuse(h.CpusetCpus != "" || h.CpusetMems != "", "sets of CPUs and memory nodes")
	refuse(h.CPUCount != 0 || h.CPUPercent != 0 || h.IOMaximumIOps != 0 || h.IOMaximumBandwidth != 0, "limits of Windows containers")
	refuse(h.BlkioWeight != 0 || len(h.BlkioWeightDevice) > 0 || len(h.BlkioDeviceReadBps) > 0 || len(h.BlkioDeviceWriteBps) > 0 ||
		len(h.BlkioDeviceReadIOps) > 0 || len(h.BlkioDeviceWriteIOps) > 0, "block I/O limits")
	refuse(h.MemoryReservation != 0, "memory reservations")
	refuse(h.MemorySwap != 0 && h.MemorySwap != -1, "swap limits")
	refuse(h.MemorySwappiness != nil && *h.MemorySwappiness != -1, "memory swappiness")
	refuse(h.OomKillDisable != nil && *h.OomKillDisable, "running without the out-of-memory killer")
	refuse(h.KernelMemory != 0 || h.KernelMemoryTCP != 0, "kernel memory limits")

	for _, m := range h.Mounts {
		switch m.Type {
		case mount.TypeBind, mount.TypeTmpfs:
		case mount.TypeVolume, "":
			refuse(true, fmt.Sprintf("the mount of %q: %s", m.Target, noVolumes))
		default:
			refuse(true, "mounts of type "+string(m.Type))
		}
		refuse(m.Consistency != "" && !slices.Contains([]mount.Consistency{mount.ConsistencyDefault, mount.ConsistencyFull,
			mount.ConsistencyCached, mount.ConsistencyDelegated}, m.Consistency), "mount consistency "+string(m.Consistency))
		if b := m.BindOptions; b != nil {
			refuse(b.ReadOnlyForceRecursive, "recursively read-only mounts")
			refuse(b.ReadOnlyNonRecursive, "mount option bind-recursive=writable")
		}
		refuse(m.TmpfsOptions != nil && len(m.TmpfsOptions.Options) > 0, "tmpfs options other than size and mode")
	}
	return reasons
}
