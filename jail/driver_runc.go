// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"satld/jail/shim"
)

// runc drives runc 1.1 or later.
type runc struct {
	path     string // of the binary
	root     string // runc's own state
	initPath string // of satl-init
	host     hostFacts
}

// hostFacts are what a bundle takes from the machine.
type hostFacts struct {
	capBounding uint64              // the daemon's capability bounding set
	masked      []string            // paths to mask that only this machine has
	devices     []specs.LinuxDevice // for privileged containers
}

func (r runc) base(log string) []string {
	argv := []string{r.path, "--root", r.root}
	if log != "" {
		argv = append(argv, "--log", log)
	}
	return append(argv, "--log-format", "json")
}

func (r runc) stateDir() string { return r.root }

func (r runc) create(id, bundle, pidFile, log string, console bool) []string {
	argv := append(r.base(log), "create", "--bundle", bundle, "--pid-file", pidFile)
	if console {
		argv = append(argv, "--console-socket", shim.ConsoleArg)
	}
	return append(argv, id)
}

func (r runc) start(id string) shim.StartRequest {
	return shim.StartRequest{Fifo: filepath.Join(r.root, id, "exec.fifo")}
}

func (r runc) remove(id string) []string {
	return append(r.base(""), "delete", "--force", id)
}

func (r runc) exec(id, processFile, pidFile, log, console string, detach bool) []string {
	argv := append(r.base(log), "exec", "--process", processFile, "--pid-file", pidFile)
	if detach {
		argv = append(argv, "--detach")
	}
	if console != "" {
		argv = append(argv, "--console-socket", console)
	}
	return append(argv, id)
}

func (r runc) failure(words []byte) error { return startError(runtimeText(words)) }

func (r runc) wordsOnStderr() bool { return false }

func (r runc) pause(id string) []string  { return append(r.base(""), "pause", id) }
func (r runc) resume(id string) []string { return append(r.base(""), "resume", id) }

// cgroupParent holds the groups of all containers, whatever daemon made them:
// their names are unique.
const cgroupParent = "/satl"

// initInside is where satl-init is in a container that asked for an init.
const initInside = "/dev/satl-init"

const defaultShmSize = 64 << 20

// config follows Docker's defaults (docker/docker, oci/defaults.go), but for
// seccomp: there is no filter.
func (r runc) config(spec Spec, who identity) (*specs.Spec, error) {
	if spec.OS != "" && spec.OS != "linux" {
		return nil, unsupported("images for %s: Linux runs its own only", spec.OS)
	}
	if len(spec.JailParams) > 0 {
		return nil, unsupported("labels %s*: containers are no jails here", paramLabel)
	}
	caps, err := capabilities(spec.CapAdd, spec.CapDrop, spec.Privileged, r.host.capBounding)
	if err != nil {
		return nil, err
	}
	rlimits, err := rlimits(spec.Ulimits)
	if err != nil {
		return nil, err
	}
	for name := range spec.Sysctls {
		if strings.HasPrefix(name, "net.") && spec.HostNetwork {
			return nil, invalid("sysctl %q is not allowed in the host's network", name)
		}
	}
	cwd := spec.Cwd
	if cwd == "" {
		cwd = "/"
	}
	args := spec.Args
	mounts := r.mounts(spec)
	if spec.Init {
		if r.initPath == "" {
			return nil, unsupported("an init process is asked for and satl-init is not installed beside satld")
		}
		args = append([]string{initInside, "--"}, args...)
		mounts = append(mounts, specs.Mount{
			Destination: initInside, Type: "bind", Source: r.initPath, Options: []string{"bind", "ro", "nosuid", "nodev"},
		})
	}
	c := &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			Terminal: spec.TTY, ConsoleSize: spec.Size.box(spec.TTY),
			User: specs.User{UID: who.uid, GID: who.gid, AdditionalGids: who.groups},
			Args: args,
			Env:  environment(spec.Env, spec.Hostname, who.home, spec.TTY),
			Cwd:  cwd,
			// No inheritable and ambient ones: CVE-2022-24769.
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:         rlimits,
			NoNewPrivileges: spec.NoNewPrivileges,
		},
		Root:        &specs.Root{Path: spec.Rootfs, Readonly: spec.ReadOnly},
		Hostname:    spec.Hostname,
		Mounts:      mounts,
		Annotations: annotations(spec, nil),
		Linux: &specs.Linux{
			CgroupsPath: cgroupParent + "/" + spec.ID,
			Namespaces:  namespaces(spec),
			Sysctl:      sysctls(spec),
			Resources:   resources(spec),
		},
	}
	if spec.OOMScoreAdj != 0 {
		c.Process.OOMScoreAdj = &spec.OOMScoreAdj
	}
	if spec.Privileged {
		c.Linux.Devices = r.host.devices
		c.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	} else {
		c.Linux.MaskedPaths = append(slices.Clone(maskedPaths), r.host.masked...)
		c.Linux.ReadonlyPaths = readonlyPaths
	}
	return c, nil
}

func namespaces(spec Spec) []specs.LinuxNamespace {
	ns := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
		{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
	}
	if !spec.HostNetwork {
		ns = append(ns, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: spec.NetNS})
	}
	return ns
}

// sysctls adds the domain name, as Docker does: runc 1.1 has no field for it.
func sysctls(spec Spec) map[string]string {
	if spec.Domainname == "" {
		return spec.Sysctls
	}
	m := map[string]string{"kernel.domainname": spec.Domainname}
	maps.Copy(m, spec.Sysctls)
	return m
}

// mounts are the standard ones, and then the spec's, which may lie over them.
func (r runc) mounts(spec Spec) []specs.Mount {
	access, shm := "ro", spec.ShmSize
	if spec.Privileged {
		access = "rw"
	}
	if shm <= 0 {
		shm = defaultShmSize
	}
	std := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", access}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{access, "nosuid", "noexec", "nodev"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=" + strconv.FormatInt(shm, 10)}},
	}
	// One of the spec's at the same place is instead of the standard one.
	out := slices.DeleteFunc(std, func(m specs.Mount) bool {
		return slices.ContainsFunc(spec.Mounts, func(n Mount) bool { return filepath.Clean(n.Target) == m.Destination })
	})
	for _, m := range spec.Mounts {
		out = append(out, ociMount(m))
	}
	return out
}

// ociMount adds to a mount what its type needs.
func ociMount(m Mount) specs.Mount {
	o := specs.Mount{Destination: m.Target, Type: m.Type, Source: m.Source, Options: slices.Clone(m.Options)}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(o.Options, n) })
	}
	switch m.Type {
	case "bind":
		if !has("bind", "rbind") {
			o.Options = append(o.Options, "rbind")
		}
		if !has("private", "rprivate", "shared", "rshared", "slave", "rslave") {
			o.Options = append(o.Options, "rprivate")
		}
	case "tmpfs":
		if o.Source == "" {
			o.Source = "tmpfs"
		}
		for _, def := range []string{"nosuid", "noexec", "nodev"} { // Docker's
			if !has(def, strings.TrimPrefix(def, "no")) {
				o.Options = append(o.Options, def)
			}
		}
	}
	if m.ReadOnly {
		o.Options = append(o.Options, "ro")
	}
	return o
}

func resources(spec Spec) *specs.LinuxResources {
	res := &specs.LinuxResources{Devices: deviceRules}
	if spec.MemoryBytes > 0 {
		limit := spec.MemoryBytes
		res.Memory = &specs.LinuxMemory{Limit: &limit}
	}
	if spec.NanoCPUs > 0 {
		// The default period of the kernel's scheduler; at least 1 ms of it.
		period := uint64(100_000)
		quota := max(spec.NanoCPUs*int64(period)/1e9, 1000)
		res.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
	}
	if spec.Pids > 0 {
		res.Pids = &specs.LinuxPids{Limit: &spec.Pids}
	}
	return res
}

func rlimits(ulimits []Ulimit) ([]specs.POSIXRlimit, error) {
	var out []specs.POSIXRlimit
	for _, u := range ulimits {
		name := strings.ToLower(u.Name)
		if _, ok := rlimitNumbers[name]; !ok {
			return nil, invalid("unknown ulimit: %q", u.Name)
		}
		if u.Soft > u.Hard {
			return nil, invalid("ulimit %s: the soft limit %d is above the hard limit %d", name, u.Soft, u.Hard)
		}
		out = append(out, specs.POSIXRlimit{Type: "RLIMIT_" + strings.ToUpper(name), Soft: u.Soft, Hard: u.Hard})
	}
	return out, nil
}

// rlimitNumbers are Linux's (asm-generic/resource.h).
var rlimitNumbers = map[string]int{
	"cpu": 0, "fsize": 1, "data": 2, "stack": 3, "core": 4, "rss": 5, "nproc": 6, "nofile": 7, "memlock": 8,
	"as": 9, "locks": 10, "sigpending": 11, "msgqueue": 12, "nice": 13, "rtprio": 14, "rttime": 15,
}

// rlimitNumber is the number of a limit named as in config.json.
func rlimitNumber(name string) (int, bool) {
	n, ok := rlimitNumbers[strings.ToLower(strings.TrimPrefix(name, "RLIMIT_"))]
	return n, ok
}

// processFor: what the container's own process has, but for what the exec says.
func (r runc) processFor(container *specs.Process, spec ExecSpec, who *identity) (*specs.Process, error) {
	p := *container
	p.Terminal, p.ConsoleSize = spec.TTY, spec.Size.box(spec.TTY)
	p.Args = spec.Args
	p.OOMScoreAdj = container.OOMScoreAdj
	p.Env = mergeEnv(container.Env, spec.Env)
	if spec.TTY {
		p.Env = environment(p.Env, "", "", true)
	}
	if spec.Cwd != "" {
		p.Cwd = spec.Cwd
	}
	if who != nil {
		p.User = specs.User{UID: who.uid, GID: who.gid, AdditionalGids: who.groups}
	}
	if spec.Privileged {
		caps, err := capabilities(nil, nil, true, r.host.capBounding)
		if err != nil {
			return nil, err
		}
		p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	}
	return &p, nil
}

// mergeEnv puts more over base.
func mergeEnv(base, more []string) []string {
	out := slices.Clone(base)
	for _, e := range more {
		name, _, _ := strings.Cut(e, "=")
		if i := slices.IndexFunc(out, func(o string) bool { return strings.HasPrefix(o, name+"=") }); i >= 0 {
			out[i] = e
		} else {
			out = append(out, e)
		}
	}
	return out
}

// maskedPaths and readonlyPaths are Docker's.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// deviceRules are Docker's: nothing but null, zero, full, random, urandom, tty
// and console (mem and tty devices by their numbers), pseudo-terminals, and
// making nodes, which is harmless while they cannot be opened.
var deviceRules = func() []specs.LinuxDeviceCgroup {
	num := func(n int64) *int64 { return &n }
	rules := []specs.LinuxDeviceCgroup{
		{Allow: false, Access: "rwm"},
		{Allow: true, Type: "c", Access: "m"},
		{Allow: true, Type: "b", Access: "m"},
		{Allow: true, Type: "c", Major: num(136), Access: "rwm"}, // pts/*
	}
	for _, d := range [][2]int64{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 1}, {5, 2}} {
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: num(d[0]), Minor: num(d[1]), Access: "rwm"})
	}
	return rules
}()
