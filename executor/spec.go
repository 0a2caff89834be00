// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/moby/sys/signal"

	"satld/jail"
)

// runtimeSpec is the container's record as its runtime needs it, with the
// files every container is given written beside it.
func (n *Node) runtimeSpec(r Record, root, netns string) (jail.Spec, error) {
	c, h := r.Config, r.HostConfig
	s := jail.Spec{
		ID: r.runtimeID(), TaskID: r.TaskID, Rootfs: root, ReadOnly: h.ReadonlyRootfs,
		Args: r.Args, Env: slices.Clone(c.Env), Cwd: c.WorkingDir, User: c.User, Groups: h.GroupAdd,
		TTY: c.Tty, Size: jail.TermSize{Rows: uint16(h.ConsoleSize[0]), Columns: uint16(h.ConsoleSize[1])}, OpenStdin: c.OpenStdin, StdinOnce: c.StdinOnce, Hostname: r.hostname(), Domainname: c.Domainname,
		NetNS: netns, HostNetwork: r.Host,
		CapAdd: h.CapAdd, CapDrop: h.CapDrop, Privileged: h.Privileged,
		NoNewPrivileges: noNewPrivileges(h.SecurityOpt), Sysctls: h.Sysctls,
		Init: h.Init != nil && *h.Init, MemoryBytes: h.Memory, NanoCPUs: h.NanoCPUs,
		ShmSize: h.ShmSize, OOMScoreAdj: h.OomScoreAdj, Annotations: h.Annotations,
		OS: r.OS, JailParams: jailParams(c.Labels),
	}
	if h.PidsLimit != nil && *h.PidsLimit > 0 {
		s.Pids = *h.PidsLimit
	}
	for _, u := range h.Ulimits {
		s.Ulimits = append(s.Ulimits, jail.Ulimit{Name: u.Name, Soft: uint64(u.Soft), Hard: uint64(u.Hard)})
	}
	if !hasEnv(s.Env, "HOSTNAME") {
		s.Env = append(s.Env, "HOSTNAME="+s.Hostname)
	}
	if c.Tty && !hasEnv(s.Env, "TERM") {
		s.Env = append(s.Env, "TERM=xterm")
	}
	for _, a := range n.cfg.Networks.Attachments(r.runtimeID()) {
		s.Address = a.Addr.Addr()
		break
	}
	var err error
	if s.LogMaxSize, s.LogMaxFiles, err = logLimits(h.LogConfig); err != nil {
		return s, err
	}
	if s.Mounts, err = mounts(h); err != nil {
		return s, err
	}
	files, err := n.writeFiles(r)
	if err != nil {
		return s, err
	}
	s.Mounts = append(files, s.Mounts...)
	return s, nil
}

// jailParams are the parameters that a container's labels ask for its jail:
// satl.jail.allow.mlock=true. None is inherited from an image (see fillFrom).
func jailParams(labels map[string]string) map[string]string {
	params := make(map[string]string)
	for label, value := range labels {
		if name, ok := strings.CutPrefix(label, labelJail); ok {
			params[name] = value
		}
	}
	return params
}

func hasEnv(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}

// hostname is the container's own, Docker's default being its short ID.
func (r Record) hostname() string {
	if r.Config.Hostname != "" {
		return r.Config.Hostname
	}
	return short(r.ID)
}

// grace is the time between stop signal and SIGKILL.
func (r Record) grace() time.Duration {
	if r.Config.StopTimeout != nil {
		return time.Duration(*r.Config.StopTimeout) * time.Second
	}
	return DefaultGrace
}

// stopSignal is the signal that asks the container to stop.
func (r Record) stopSignal() syscall.Signal {
	if r.Config.StopSignal != "" {
		if s, err := signal.ParseSignal(r.Config.StopSignal); err == nil {
			return s
		}
	}
	return syscall.SIGTERM
}

func noNewPrivileges(opts []string) bool {
	return slices.ContainsFunc(opts, func(o string) bool {
		return o == "no-new-privileges" || o == "no-new-privileges:true" || o == "no-new-privileges=true"
	})
}

// mounts are the bind and tmpfs mounts of all the ways to ask for them.
func mounts(h *container.HostConfig) ([]jail.Mount, error) {
	var out []jail.Mount
	for _, b := range h.Binds {
		m, err := bindMount(b)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	for target, options := range h.Tmpfs {
		m := jail.Mount{Type: "tmpfs", Source: "tmpfs", Target: target}
		if options != "" {
			m.Options = strings.Split(options, ",")
		}
		out = append(out, m)
	}
	for _, m := range h.Mounts {
		jm := jail.Mount{Type: string(m.Type), Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
		switch m.Type {
		case mount.TypeBind:
			if b := m.BindOptions; b != nil {
				if b.Propagation != "" {
					jm.Options = append(jm.Options, string(b.Propagation))
				}
				if b.NonRecursive {
					jm.Options = append(jm.Options, "bind")
				}
			}
		case mount.TypeTmpfs:
			jm.Source = "tmpfs"
			if t := m.TmpfsOptions; t != nil {
				if t.SizeBytes > 0 {
					jm.Options = append(jm.Options, "size="+strconv.FormatInt(t.SizeBytes, 10))
				}
				if t.Mode != 0 {
					jm.Options = append(jm.Options, fmt.Sprintf("mode=%o", t.Mode.Perm()))
				}
			}
		default:
			return nil, unsupported("mounts of type %s are not supported", m.Type)
		}
		out = append(out, jm)
	}
	slices.SortStableFunc(out, func(a, b jail.Mount) int { return strings.Count(a.Target, "/") - strings.Count(b.Target, "/") })
	return out, nil
}

// bindMount parses "source:target[:options]".
func bindMount(bind string) (jail.Mount, error) {
	parts := strings.Split(bind, ":")
	if len(parts) < 2 || len(parts) > 3 || !filepath.IsAbs(parts[1]) {
		return jail.Mount{}, invalid("invalid volume specification %q", bind)
	}
	if !filepath.IsAbs(parts[0]) {
		return jail.Mount{}, unsupported("named volumes are not supported, use an absolute path: %q", bind)
	}
	m := jail.Mount{Type: "bind", Source: parts[0], Target: parts[1]}
	if len(parts) == 3 {
		for _, o := range strings.Split(parts[2], ",") {
			switch o {
			case "ro":
				m.ReadOnly = true
			case "rw", "":
			case "private", "rprivate", "shared", "rshared", "slave", "rslave":
				m.Options = append(m.Options, o)
			default:
				return jail.Mount{}, invalid("invalid option %q of volume %q", o, bind)
			}
		}
	}
	return m, nil
}

// logLimits reads the rotation limits of Docker's json-file and local drivers.
func logLimits(l container.LogConfig) (size int64, files int, err error) {
	switch l.Type {
	case "", "json-file", "local", "none":
	default:
		return 0, 0, unsupported("log driver %q is not supported", l.Type)
	}
	for k, v := range l.Config {
		switch k {
		case "max-size":
			if size, err = parseBytes(v); err != nil {
				return 0, 0, invalid("log option max-size %q: %v", v, err)
			}
		case "max-file":
			if files, err = strconv.Atoi(v); err != nil || files < 1 {
				return 0, 0, invalid("log option max-file %q is not a number of files", v)
			}
		default:
			return 0, 0, unsupported("log option %q is not supported", k)
		}
	}
	return size, files, nil
}
