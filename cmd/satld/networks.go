// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"satld/dns"
	"satld/mesh"
	"satld/network"
	"satld/platform/command"
	"satld/redirect"
	"satld/traffic"
)

// announced are the node's networks; whoever depends on which there are, DNS
// and the packet filter, is told when one comes or goes.
type announced struct {
	*network.Manager
	names *dns.Server
	table *traffic.Table
	log   *slog.Logger
	moved chan struct{} // holds one: reach was told something

	set      func(ctx context.Context, local netip.Addr, peers map[string][]network.Peer) error // Manager.SetPeers
	patience command.Patience                                                                   // with set

	mu    sync.Mutex
	host  netip.Addr                // this node's own address
	peers map[string][]network.Peer // of overlay networks, on other nodes
}

func newAnnounced(m *network.Manager, names *dns.Server, table *traffic.Table, log *slog.Logger) *announced {
	return &announced{
		Manager: m, names: names, table: table, log: log, moved: make(chan struct{}, 1), set: m.SetPeers,
		patience: command.Patience{Least: repairEvery, Most: mostForPeers},
	}
}

// reach takes which addresses of overlay networks are on which other node. It
// leaves to Run what is to be done: the next news, which may be of a task that
// is to have no traffic any more, waits for no tool of this host.
func (a *announced) reach(host string, entries []mesh.Entry) {
	own, err := netip.ParseAddr(host)
	if err != nil {
		return // a name: overlays need addresses, and the cluster says so
	}
	peers := make(map[string][]network.Peer)
	for _, e := range entries {
		at, err := netip.ParseAddr(e.Host)
		if err != nil {
			continue
		}
		for _, p := range e.Member.Endpoints {
			peers[p.NetworkID] = append(peers[p.NetworkID], network.Peer{Addr: p.Addr, Host: at})
		}
	}
	a.mu.Lock()
	a.host, a.peers = own, peers
	a.mu.Unlock()
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

// setPeers brings the overlay networks to what reach was told last.
func (a *announced) setPeers(ctx context.Context) error {
	a.mu.Lock()
	host, peers := a.host, a.peers
	a.mu.Unlock()
	if peers == nil {
		return nil
	}
	return a.patience.Do(ctx, func(ctx context.Context) error { return a.set(ctx, host, peers) })
}

// mostForPeers bounds setting the peers of all overlay networks where it ran out
// of time before: a call of a tool for each takes long on a slow host.
const mostForPeers = 2 * time.Minute

// Ensure makes a network and has its tasks' questions answered there.
func (a *announced) Ensure(ctx context.Context, n network.Network) (network.Network, error) {
	old, known := a.Get(n.ID)
	made, err := a.Manager.Ensure(ctx, n)
	if err == nil && (!known || made != old) {
		a.announce()
	}
	return made, err
}

// Remove deletes a network.
func (a *announced) Remove(ctx context.Context, id string) error {
	err := a.Manager.Remove(ctx, id)
	if err == nil {
		a.announce()
	}
	return err
}

func (a *announced) announce() {
	a.table.Nudge()
	var places []dns.Listen
	for _, n := range a.List() {
		places = append(places, dns.Listen{Addr: netip.AddrPortFrom(n.Gateway, 53), Subnet: n.Subnet})
	}
	if err := a.names.Set(places); err != nil {
		a.log.Warn("DNS does not answer on every network yet; it is retried", "err", err)
	}
}

// repairEvery is how long a bridge that somebody broke may stay so; the packet
// filter is audited as often.
const repairEvery = 5 * time.Second

// Run has overlay networks reach the other nodes, and sets the networks right
// when somebody else changed them, until ctx ends.
func (a *announced) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return a.followPeers(ctx) })
	work.Go(func() error { return a.keepRepaired(ctx) })
	return work.Wait()
}

// followPeers acts on what reach was told.
func (a *announced) followPeers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.moved:
		}
		if err := a.setPeers(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("tasks on other nodes cannot be reached yet; it is retried", "err", err)
		}
	}
}

func (a *announced) keepRepaired(ctx context.Context) error {
	tick := time.NewTicker(repairEvery)
	defer tick.Stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		failed = a.repair(ctx, failed)
	}
}

// repair is one pass of Run. An error is logged when it is another than that
// of the pass before; it is returned for the next.
func (a *announced) repair(ctx context.Context, before string) (failed string) {
	done, err := a.Repair(ctx)
	err = errors.Join(err, a.setPeers(ctx))
	for _, r := range done {
		if r.ContainerID != "" {
			a.log.Warn("network repaired", "what", r.What, "container", r.ContainerID)
		} else {
			a.log.Warn("network repaired", "what", r.What)
		}
	}
	if len(done) > 0 {
		a.table.Nudge()
	}
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if failed = err.Error(); failed != before {
		a.log.Error("network could not be repaired; it is retried", "err", err)
	}
	return failed
}

// subnets are the networks whose tasks are routed out.
func subnets(networks *network.Manager) []redirect.Subnet {
	var out []redirect.Subnet
	for _, n := range networks.List() {
		out = append(out, redirect.Subnet{Bridge: n.Bridge, Prefix: n.Subnet, Internal: n.Internal, Own: n.Gateway, Overlay: n.VNI != 0})
	}
	return out
}
