// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"net/netip"

	"satld/healthcheck"
)

// settings returns the probe's effective settings, or ok false without a
// probe. They come from the spec's healthcheck and its labels.
func (r Record) settings() (s healthcheck.Settings, ok bool) {
	if r.TaskID == "" || r.Config == nil {
		// The container API reads no healthcheck (spec/healthchecks.txt,
		// "satl run -p is always in that state").
		return healthcheck.Settings{}, false
	}
	s, ok, _, err := healthcheck.FromSpec(r.Config.Healthcheck, r.Config.Labels)
	if err == nil && ok {
		s, err = s.WithPort(r.ProbePort)
	}
	return s, ok && err == nil
}

// checkProbe refuses a task whose probe cannot be made: it would run unprobed.
func (r Record) checkProbe() error {
	s, ok, _, err := healthcheck.FromSpec(r.Config.Healthcheck, r.Config.Labels)
	if err == nil && ok {
		_, err = s.WithPort(r.ProbePort)
	}
	return err
}

// watch has the monitor probe a container's run.
func (n *Node) watch(c *Container, s healthcheck.Settings, pid int, adopted bool) {
	rec := c.record()
	n.cfg.Prober.Watch(healthcheck.Watch{
		ID: c.id, TaskID: rec.TaskID, Started: rec.Started,
		Adopted: adopted, Proved: adopted && rec.Proved && s.GatesRunning(), Unrouted: adopted && rec.outForHealth() != "",
		Settings: s, Probe: healthcheck.NewProbe(s, n.reach(rec, pid)), Changed: c.putVerdict,
	})
}

// reach is how this node reaches a container to probe it: at its own address,
// never by a published port, and in its own root.
func (n *Node) reach(r Record, pid int) healthcheck.Reach {
	reach := healthcheck.Reach{Runner: n.cfg.Runtime, ContainerID: r.runtimeID(), Root: n.rootOf(r, pid)}
	if r.Host {
		reach.Addr, reach.Shared = netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
		return reach
	}
	if at := n.cfg.Networks.Attachments(r.runtimeID()); len(at) > 0 {
		reach.Addr = at[0].Addr.Addr()
	}
	return reach
}

// rootOf is the directory that a running container sees as "/".
func (n *Node) rootOf(r Record, pid int) string {
	if n.cfg.JailFirst {
		return r.Root // the mounts of a jail are the host's
	}
	return fmt.Sprintf("/proc/%d/root", pid) // with what is mounted in its namespace
}
