// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"satld/api"
	"satld/api/wire"
	"satld/cluster"
	"satld/dns"
	"satld/events"
	"satld/executor"
	"satld/healthcheck"
	"satld/platform"
	"satld/redirect"
	"satld/traffic"
)

// settleRemote is how long the packet filter, as an earlier daemon left it, is
// let be after a start until the cluster says who serves on other nodes.
const settleRemote = 5 * time.Second

// daemon runs satld until ctx ends. Tasks, pools and NAT are left in place,
// so that a stop or an upgrade is not noticed by clients. reloads acts on
// SIGHUP until its context ends.
func daemon(ctx context.Context, cfg Config, log *slog.Logger, reloads func(context.Context) error) (err error) {
	slog.SetDefault(log)
	begun := time.Now()
	if err := free(cfg); err != nil {
		return err
	}
	n, err := openNode(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	monitor := healthcheck.NewMonitor(healthcheck.Options{Logger: log, Registerer: registry})
	var joined atomic.Pointer[cluster.Node] // set once the cluster is open; DNS may ask before
	table := traffic.New(traffic.Config{
		Redirector: n.redirect, Logger: log, Registerer: registry, SettleRemote: settleRemote,
		Subnets: func() []redirect.Subnet { return subnets(n.networks) },
		Known: func(service string) (networks []string, exists bool) {
			if member := joined.Load(); member != nil {
				return member.ServiceNetworks(service)
			}
			return nil, false
		},
	})
	names := dns.New(table, dns.Config{Logger: log, Registerer: registry})
	networks := newAnnounced(n.networks, names, table, log)
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	happened := new(events.Log)
	// Containers of an earlier daemon are taken over before traffic's first
	// pass, which would else find nobody and empty the pools.
	exec, err := executor.Open(ctx, executor.Config{
		StateDir: cfg.StateDir, Hostname: hostname, Version: version, Labels: map[string]string{cluster.PoolLabel: cfg.NetworkPool},
		JailFirst: platform.OS == "freebsd", Boot: platform.Boot(),
		Runtime: n.runtime, Images: n.images, Networks: networks, Traffic: table, Prober: monitor,
		Leader: leader{&joined}, Events: happened, Logger: log,
	})
	if err != nil {
		return err
	}
	defer exec.Close()
	table.Settled()
	var serving atomic.Pointer[api.Server] // set once it is made; other nodes may ask before
	member, err := cluster.Open(ctx, cluster.Config{
		Health: func(serviceID string) any {
			if server := serving.Load(); server != nil {
				return server.LocalHealth(serviceID)
			}
			return nil
		},
		StateDir: cfg.StateDir, ListenAddr: cfg.ListenAddr, AdvertiseAddr: cfg.AdvertiseAddr,
		Hostname: hostname, Executor: exec, Logger: log, ForceNewCluster: cfg.ForceNewCluster,
		Traffic: table, Reach: networks.reach, NodeHealth: cfg.NodeHealth.settings(),
		OverlayPool: netip.MustParsePrefix(cfg.OverlayPool),
	})
	if err != nil {
		return err
	}
	joined.Store(member)
	// Not before the tasks of an earlier daemon are known: no answer is asked
	// for again, and "no such name" is believed.
	networks.announce()
	warnings := func() []string {
		out := n.runtime.Warnings()
		if w := cfg.NodeHealth.warning(); w != "" {
			out = append(slices.Clone(out), w)
		}
		return out
	}
	verdicts := newApps(exec, &joined, log)
	server := api.New(api.Config{
		Apps: verdicts, Cluster: member, Containers: exec, Images: n.images, Networks: networks, Events: happened,
		TrafficStatus: func() string { return n.trafficStatus(table) }, Warnings: warnings, Observed: member.Verdict,
		Version: version, Commit: commit, Root: cfg.StateDir, NodeName: hostname,
		NetworkName: cfg.NetworkName, Runtime: cfg.Runtime, Redirect: cfg.Redirect,
		Debug: cfg.LogLevel == "debug", Logger: log,
		PeerHealth: func(ctx context.Context, nodeID, serviceID string) (told []wire.TaskHealth, err error) {
			err = member.AskHealth(ctx, nodeID, serviceID, &told)
			return told, err
		},
	})
	serving.Store(server)

	// Two groups: what clients and the cluster use stops first, then what
	// serves the tasks of this node.
	below, stopBelow := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBelow()
	lower, lowerCtx := errgroup.WithContext(below)
	defer func() { err = errors.Join(err, member.Close()) }()
	lower.Go(func() error { return monitor.Run(lowerCtx) })
	lower.Go(func() error { return table.Run(lowerCtx) })
	lower.Go(func() error { return names.Run(lowerCtx) })
	lower.Go(func() error { return networks.Run(lowerCtx) })
	lower.Go(func() error { return verdicts.Run(lowerCtx) })
	if r, ok := n.redirect.(interface{ Run(context.Context) error }); ok {
		lower.Go(func() error { return r.Run(lowerCtx) })
	}

	upper, upperCtx := errgroup.WithContext(ctx)
	upper.Go(func() error { // a failure below stops the daemon
		select {
		case <-lowerCtx.Done():
			return context.Cause(lowerCtx)
		case <-upperCtx.Done():
			return nil
		}
	})
	upper.Go(func() error { return reloads(upperCtx) })
	upper.Go(func() error { return member.Run(upperCtx) })
	upper.Go(func() error { return server.Run(upperCtx) })
	upper.Go(func() error { return server.Serve(upperCtx, cfg.Socket, 0o660, "") })
	if cfg.MetricsAddr != "" {
		upper.Go(func() error { return serveHTTP(upperCtx, "metrics-addr", cfg.MetricsAddr, metricsHandler(registry)) })
	}
	if cfg.AppsAddr != "" {
		upper.Go(func() error { return serveApps(upperCtx, cfg.AppsAddr, verdicts) })
	}
	if cfg.DashboardAddr != "" {
		page := dashboard{store: member.Store, containers: exec, observed: member.Verdict}
		upper.Go(func() error { return serveHTTP(upperCtx, "dashboard-addr", cfg.DashboardAddr, http.Handler(page)) })
	}
	for _, w := range append(n.hostWarnings(), warnings()...) {
		log.Warn(w)
	}
	log.Info("satld is up", "version", version, "socket", cfg.Socket, "state_dir", cfg.StateDir, "node", member.NodeID(), "took", time.Since(begun).String())

	err = upper.Wait()
	exec.Close()
	stopBelow()
	lowerErr := lower.Wait()
	err = cmp.Or(withoutCancel(err), withoutCancel(lowerErr))
	if err != nil {
		log.Error("satld fails; tasks are left running", "err", err)
		return err
	}
	log.Info("satld stops; tasks are left running")
	return nil
}

func withoutCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// free tells whether the addresses to listen on are to be had, before
// anything is made that a failed start would leave behind. Each is taken for
// good where it is served, and refused there if somebody was faster.
func free(cfg Config) error {
	if c, err := net.Dial("unix", cfg.Socket); err == nil {
		c.Close()
		return fmt.Errorf("another daemon answers on %s: stop it, or choose another socket with --socket", cfg.Socket)
	}
	for flag, addr := range map[string]string{"listen-addr": cfg.ListenAddr, "metrics-addr": cfg.MetricsAddr, "dashboard-addr": cfg.DashboardAddr, "apps-addr": cfg.AppsAddr} {
		if addr == "" {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("--%s %s is not to be had: %w", flag, addr, err)
		}
		l.Close()
	}
	return nil
}
