// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/api/types/system"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
)

// info waits for the store after a start, and then tells what there is to tell
// without one.
func (s *Server) info(w http.ResponseWriter, r *http.Request) error {
	_ = within(r.Context(), s.cfg.ReadyTimeout-time.Since(s.begun), s.cfg.Cluster.Loaded) // else swarmInfo says so
	runtimeName := filepath.Base(s.cfg.Runtime)
	info := system.Info{
		ID: s.cfg.Cluster.NodeID(), Name: s.nodeName(), ServerVersion: s.cfg.Version,
		Images: len(s.cfg.Images.List()),
		Driver: storageDriver, DriverStatus: [][2]string{{"Root Dir", s.cfg.Root}}, DockerRootDir: s.cfg.Root,
		Plugins: system.PluginsInfo{
			Volume: []string{}, Network: []string{"bridge", "host", "null", "overlay"}, Log: []string{"json-file", "local", "none"},
		},
		MemoryLimit: s.host.limits, CPUCfsPeriod: s.host.limits, CPUCfsQuota: s.host.limits, PidsLimit: s.host.limits,
		IPv4Forwarding: true,
		Debug:          s.cfg.Debug, NFd: openFiles(), NGoroutines: runtime.NumGoroutine(),
		SystemTime: time.Now().UTC().Format(time.RFC3339Nano), LoggingDriver: "json-file",
		CgroupDriver: s.host.cgroupDriver, CgroupVersion: s.host.cgroupVersion,
		KernelVersion: s.host.kernel, OperatingSystem: s.host.os, OSVersion: s.host.osVersion,
		OSType: runtime.GOOS, Architecture: executor.Machine(), NCPU: runtime.NumCPU(), MemTotal: s.host.memory,
		IndexServerAddress: "https://index.docker.io/v1/",
		RegistryConfig: &registry.ServiceConfig{
			InsecureRegistryCIDRs: loopbackCIDRs(),
			IndexConfigs:          map[string]*registry.IndexInfo{"docker.io": {Name: "docker.io", Mirrors: []string{}, Secure: true, Official: true}},
			Mirrors:               []string{},
		},
		HTTPProxy: proxyEnv("HTTP_PROXY"), HTTPSProxy: proxyEnv("HTTPS_PROXY"), NoProxy: os.Getenv("NO_PROXY"),
		Labels: []string{}, SecurityOptions: []string{}, CDISpecDirs: []string{},
		Runtimes:       map[string]system.RuntimeWithStatus{runtimeName: {Runtime: system.Runtime{Path: s.cfg.Runtime}}},
		DefaultRuntime: runtimeName,
		// Tasks stay as they are while the daemon is down.
		LiveRestoreEnabled: true,
	}
	if since(r, "1.49") && s.cfg.Redirect != "" {
		info.FirewallBackend = &system.FirewallInfo{Driver: s.cfg.Redirect}
	}
	for _, c := range s.cfg.Containers.List() {
		info.Containers++
		switch c.State {
		case executor.Running:
			info.ContainersRunning++
		case executor.Paused:
			info.ContainersPaused++
		default:
			info.ContainersStopped++
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), controlTimeout)
	defer cancel()
	info.Swarm = s.swarmInfo(ctx)
	info.Warnings = info.Swarm.Warnings
	if s.cfg.Warnings != nil {
		for _, w := range s.cfg.Warnings() {
			info.Warnings = append(info.Warnings, "WARNING: "+w)
		}
	}
	if s.cfg.TrafficStatus != nil {
		if trouble := s.cfg.TrafficStatus(); trouble != "" {
			info.Warnings = append(info.Warnings, "WARNING: published ports: "+trouble)
		}
	}
	return writeJSON(w, http.StatusOK, &info)
}

// swarmInfo is the cluster as this node sees it.
func (s *Server) swarmInfo(ctx context.Context) swarm.Info {
	c := s.cfg.Cluster
	info := swarm.Info{NodeID: c.NodeID(), LocalNodeState: swarm.LocalNodeStateActive, ControlAvailable: c.Manager()}
	info.NodeAddr = c.AdvertiseAddr()
	if host, _, err := net.SplitHostPort(info.NodeAddr); err == nil {
		info.NodeAddr = host
	}
	for _, p := range c.Managers() {
		info.RemoteManagers = append(info.RemoteManagers, swarm.Peer{NodeID: p.NodeID, Addr: p.Addr})
	}
	if !info.ControlAvailable {
		return info
	}
	var nodes []*api.Node
	c.Store().View(func(tx store.ReadTx) { nodes, _ = store.FindNodes(tx, store.All) })
	info.Nodes = len(nodes)
	for _, n := range nodes {
		if n.Role == api.NodeRoleManager {
			info.Managers++
		}
	}
	cluster, err := s.clusterObject(ctx)
	if err == nil {
		err = within(ctx, 0, c.Ready)
	}
	if err != nil {
		info.Error = err.Error()
	}
	if cluster == nil {
		return info
	}
	shown := renderSwarm(cluster).ClusterInfo
	info.Cluster = &shown
	if info.Managers == 2 {
		info.Warnings = append(info.Warnings, "WARNING: Running Swarm in a two-manager configuration. This configuration provides no fault tolerance, and poses a high risk to lose control over the cluster.")
	}
	return info
}

// loopbackCIDRs are the registries that plain HTTP is used for.
func loopbackCIDRs() []*registry.NetIPNet {
	var out []*registry.NetIPNet
	for _, cidr := range []string{"::1/128", "127.0.0.0/8"} {
		if _, n, err := net.ParseCIDR(cidr); err == nil {
			out = append(out, (*registry.NetIPNet)(n))
		}
	}
	return out
}

// proxyEnv is a proxy of the daemon's environment, shown without a password.
func proxyEnv(name string) string {
	v := os.Getenv(name)
	if u, err := url.Parse(v); err == nil && u.User != nil {
		return u.Redacted()
	}
	return v
}
