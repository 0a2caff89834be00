// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// config: only ociVersion, process, root, mounts, hostname and annotations are
// read; the VNET and what a jail may do are annotations. What a jail has no
// counterpart of is refused and never ignored.
func (o ocijail) config(spec Spec, who identity) (*specs.Spec, error) {
	if err := jailLacks(spec); err != nil {
		return nil, err
	}
	params, err := paramAnnotations(spec.JailParams)
	if err != nil {
		return nil, err
	}
	cwd := spec.Cwd
	if cwd == "" {
		cwd = "/"
	}
	mounts := jailMounts(spec)
	mounts = slices.DeleteFunc(mounts, func(m specs.Mount) bool { // one of the spec's at the same place is instead
		return slices.ContainsFunc(spec.Mounts, func(n Mount) bool { return filepath.Clean(n.Target) == m.Destination })
	})
	for _, m := range spec.Mounts {
		mount, err := jailMount(m)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	switch {
	case !spec.HostNetwork:
		params["org.freebsd.jail.vnet"] = "new"
	case spec.Address.IsValid():
		params["org.freebsd.jail.ip4.addr"] = spec.Address.String()
	}
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			Terminal: spec.TTY,
			User:     specs.User{UID: who.uid, GID: who.gid, AdditionalGids: who.groups},
			Args:     spec.Args,
			Env:      environment(spec.Env, spec.Hostname, who.home, spec.TTY),
			Cwd:      cwd,
		},
		Root:        &specs.Root{Path: spec.Rootfs, Readonly: spec.ReadOnly},
		Hostname:    spec.Hostname,
		Mounts:      mounts,
		Annotations: annotations(spec, params),
	}, nil
}

// jailLacks refuses what is asked for and cannot be had in a jail.
func jailLacks(spec Spec) error {
	asked := map[string]bool{
		"adding capabilities": len(spec.CapAdd) > 0, "dropping capabilities": len(spec.CapDrop) > 0,
		"privileged containers": spec.Privileged, "no-new-privileges": spec.NoNewPrivileges,
		"ulimits": len(spec.Ulimits) > 0, "sysctls": len(spec.Sysctls) > 0, "an init process": spec.Init,
	}
	for _, what := range slices.Sorted(maps.Keys(asked)) {
		if asked[what] {
			return unsupported("%s: not supported for jails", what)
		}
	}
	for key := range spec.Annotations {
		if strings.HasPrefix(key, "org.freebsd.") {
			return invalid("annotation %s: a jail's parameters are set by labels %s*", key, paramLabel)
		}
	}
	switch spec.OS {
	case "", "freebsd", "linux":
		return nil
	default:
		return unsupported("images for %s: FreeBSD runs its own and Linux'", spec.OS)
	}
}

// jailMounts are the standard ones. Ruleset 4 of devfs is the jail-safe set.
func jailMounts(spec Spec) []specs.Mount {
	if spec.OS != "linux" {
		return []specs.Mount{
			{Destination: "/dev", Type: "devfs", Source: "devfs", Options: []string{"ruleset=4"}},
			{Destination: "/dev/fd", Type: "fdescfs", Source: "fdescfs"},
		}
	}
	// What the Linuxulator needs (linux(4)); /dev/shm is a directory that it
	// makes in devfs, and ruleset 4 hides. Links in /proc/self/fd have to look
	// like Linux' own (fdescfs(5), linrdlnk).
	shm := spec.ShmSize
	if shm <= 0 {
		shm = defaultShmSize
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "linprocfs", Source: "linprocfs", Options: []string{"nosuid", "noexec"}},
		{Destination: "/sys", Type: "linsysfs", Source: "linsysfs", Options: []string{"nosuid", "noexec"}},
		{Destination: "/dev", Type: "devfs", Source: "devfs", Options: []string{"ruleset=4", "rule=path shm unhide"}},
		{Destination: "/dev/fd", Type: "fdescfs", Source: "fdescfs", Options: []string{"linrdlnk"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{
			"nosuid", "noexec", "mode=1777", "size=" + strconv.FormatInt(shm, 10),
		}},
	}
}

// jailMount translates a mount of the spec: its options are Linux'.
func jailMount(m Mount) (specs.Mount, error) {
	out := specs.Mount{Destination: m.Target, Type: "nullfs", Source: m.Source}
	tmpfs := m.Type == "tmpfs"
	if tmpfs {
		out.Type, out.Source = "tmpfs", "tmpfs"
	}
	has := make(map[string]bool)
	for _, opt := range m.Options {
		name, value, _ := strings.Cut(opt, "=")
		switch name {
		case "private", "rprivate", "shared", "rshared", "slave", "rslave", "bind", "rbind", "dev", "nodev", "rw", "":
			// Mounts do not spread here, devices are devfs', and writing is the default.
			continue
		case "ro":
			m.ReadOnly = true
			continue
		case "exec", "noexec", "suid", "nosuid", "noatime", "atime":
		case "size":
			if !tmpfs || strings.HasSuffix(value, "%") {
				return out, unsupported("mount option %s of %s: not supported on FreeBSD", opt, m.Target)
			}
		case "mode", "uid", "gid":
			if !tmpfs {
				return out, unsupported("mount option %s of %s: not supported on FreeBSD", opt, m.Target)
			}
		case "nr_inodes":
			name, opt = "inodes", "inodes="+value
		default:
			return out, unsupported("mount option %s of %s: not supported on FreeBSD", opt, m.Target)
		}
		has[name] = true
		// exec and suid are there unless taken away; the words only keep
		// Docker's defaults off.
		if name != "exec" && name != "suid" {
			out.Options = append(out.Options, opt)
		}
	}
	if tmpfs { // Docker's defaults
		for _, def := range []string{"suid", "exec"} {
			if !has[def] && !has["no"+def] {
				out.Options = append(out.Options, "no"+def)
			}
		}
		if !has["mode"] {
			out.Options = append(out.Options, "mode=1777")
		}
	}
	if m.ReadOnly {
		out.Options = append(out.Options, "ro")
	}
	return out, nil
}
