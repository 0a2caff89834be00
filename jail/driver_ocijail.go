// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"satld/jail/shim"
)

// ocijail drives ocijail 0.6. What a jail has no counterpart of is refused
// and never ignored.
type ocijail struct {
	path string // of the binary
	root string // ocijail's own state
}

func (o ocijail) base(string) []string {
	return []string{o.path, "--root", o.root, "--log-format", "json"}
}

func (o ocijail) stateDir() string { return o.root }

func (o ocijail) create(id, bundle, pidFile, log string, console bool) []string {
	argv := append(o.base(log), "create", "-b", bundle, "--pid-file", pidFile)
	if console {
		argv = append(argv, "--console-socket", shim.ConsoleArg)
	}
	return append(argv, id)
}

func (o ocijail) start(id string) shim.StartRequest {
	return shim.StartRequest{Argv: append(o.base(""), "start", id)}
}

func (o ocijail) remove(id string) []string { return append(o.base(""), "delete", "--force", id) }

func (o ocijail) exec(id, processFile, pidFile, log, console string, detach bool) []string {
	argv := append(o.base(log), "exec", id, "--process", processFile, "--pid-file", pidFile)
	if detach {
		argv = append(argv, "-d")
	}
	if console != "" {
		argv = append(argv, "-t", "--console-socket", console)
	}
	return argv
}

func (o ocijail) pause(string) []string  { return nil }
func (o ocijail) resume(string) []string { return nil }

// config: only ociVersion, process, root, mounts, hostname and annotations are
// read; the VNET and what a jail may do are annotations.
func (o ocijail) config(spec Spec, who identity) (*specs.Spec, error) {
	for what, asked := range map[string]bool{
		"adding capabilities": len(spec.CapAdd) > 0, "dropping capabilities": len(spec.CapDrop) > 0,
		"privileged containers": spec.Privileged, "no-new-privileges": spec.NoNewPrivileges,
		"limits of memory, CPU and processes": spec.MemoryBytes > 0 || spec.NanoCPUs > 0 || spec.Pids > 0,
		"ulimits":                             len(spec.Ulimits) > 0, "sysctls": len(spec.Sysctls) > 0, "an init process": spec.Init,
	} {
		if asked {
			return nil, unsupported("%s: not supported for jails", what)
		}
	}
	cwd := spec.Cwd
	if cwd == "" {
		cwd = "/"
	}
	c := &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			Terminal: spec.TTY,
			User:     specs.User{UID: who.uid, GID: who.gid, AdditionalGids: who.groups},
			Args:     spec.Args,
			Env:      environment(spec.Env, spec.Hostname, who.home, spec.TTY),
			Cwd:      cwd,
		},
		Root:     &specs.Root{Path: spec.Rootfs, Readonly: spec.ReadOnly},
		Hostname: spec.Hostname,
		Mounts: []specs.Mount{
			// Ruleset 4 is the jail-safe set.
			{Destination: "/dev", Type: "devfs", Source: "devfs", Options: []string{"ruleset=4"}},
			{Destination: "/dev/fd", Type: "fdescfs", Source: "fdescfs"},
		},
	}
	switch {
	case !spec.HostNetwork:
		c.Annotations = annotations(spec, map[string]string{"org.freebsd.jail.vnet": "new"})
	case spec.Address.IsValid():
		c.Annotations = annotations(spec, map[string]string{"org.freebsd.jail.ip4.addr": spec.Address.String()})
	default:
		c.Annotations = annotations(spec, nil)
	}
	for _, m := range spec.Mounts {
		sm := specs.Mount{Destination: m.Target, Type: m.Type, Source: m.Source}
		if m.Type == "bind" {
			sm.Type = "nullfs"
		}
		for _, opt := range m.Options {
			if !strings.HasSuffix(opt, "private") && opt != "rbind" && opt != "bind" {
				sm.Options = append(sm.Options, opt)
			}
		}
		if m.ReadOnly {
			sm.Options = append(sm.Options, "ro")
		}
		c.Mounts = append(c.Mounts, sm)
	}
	return c, nil
}

func (o ocijail) processFor(container *specs.Process, spec ExecSpec, who *identity) (*specs.Process, error) {
	if spec.Privileged {
		return nil, unsupported("privileged exec: not supported for jails")
	}
	p := *container
	p.Terminal = spec.TTY
	p.Args = spec.Args
	p.Env = mergeEnv(container.Env, spec.Env)
	if spec.Cwd != "" {
		p.Cwd = spec.Cwd
	}
	if who != nil {
		p.User = specs.User{UID: who.uid, GID: who.gid, AdditionalGids: who.groups}
	}
	return &p, nil
}
