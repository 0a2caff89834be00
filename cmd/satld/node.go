// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"satld/cluster"
	"satld/image"
	"satld/jail"
	"satld/network"
	"satld/traffic"
)

// node is everything that works on this machine below the cluster: what a
// daemon opens at its start, and what `satld cleanup` takes down.
type node struct {
	cfg      Config
	log      *slog.Logger
	unlock   func()
	runtime  *jail.Manager
	images   *image.Store
	networks *network.Manager
	redirect traffic.Redirector

	takingDown  bool  // for cleanup, which does what it can
	unreachable error // why the packet filter could not be spoken to, then
}

// openNode locks the state directory and opens the node's parts, in the order
// they need each other. Nothing that runs is touched.
func openNode(ctx context.Context, cfg Config, log *slog.Logger) (*node, error) {
	n := &node{cfg: cfg, log: log}
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *node) open(ctx context.Context) (err error) {
	cfg, log := n.cfg, n.log
	if n.unlock, err = cluster.LockState(cfg.StateDir); err != nil {
		return err
	}
	pool, err := netip.ParsePrefix(cfg.NetworkPool)
	if err != nil {
		return err
	}
	// What fails on a machine that is not set up fails before the first interface.
	if err = jail.CheckRuntime(cfg.Runtime); err != nil {
		return err
	}
	if n.networks, err = network.Open(ctx, network.Config{StateDir: cfg.StateDir, Name: cfg.NetworkName, Pool: pool, Logger: log}); err != nil {
		return err
	}
	if n.images, err = image.Open(image.Config{StateDir: cfg.StateDir, ZFSRoot: cfg.ZFSRoot, Logger: log}); err != nil {
		return err
	}
	if n.redirect, err = newRedirector(ctx, cfg, n.networks, log); err != nil {
		if !n.takingDown {
			return err
		}
		// All else can go; what the packet filter may still hold is told at the end.
		n.redirect, n.unreachable = redirectOff{}, fmt.Errorf("rules may be left in the packet filter: %w", err)
	}
	if n.runtime, err = jail.Open(ctx, jail.Config{StateDir: cfg.StateDir, RuntimePath: cfg.Runtime, Logger: log}); err != nil {
		return err
	}
	return nil
}

// close lets go of the parts; what runs goes on.
func (n *node) close() error {
	var err error
	if n.runtime != nil {
		err = errors.Join(err, n.runtime.Close())
	}
	if n.images != nil {
		err = errors.Join(err, n.images.Close())
	}
	if n.networks != nil {
		err = errors.Join(err, n.networks.Close())
	}
	if n.unlock != nil {
		n.unlock()
	}
	return err
}

// trafficStatus says what keeps published ports or the way out from working,
// "" when all is well.
func (n *node) trafficStatus(table *traffic.Table) string {
	var problems []string
	if err := table.Health(); err != nil {
		problems = append(problems, err.Error())
	}
	return strings.Join(append(problems, n.hostWarnings()...), "; ")
}

// hostWarnings are what of the host's own configuration is in the way, as far
// as the networks and the redirector can tell.
func (n *node) hostWarnings() []string {
	ctx, cancel := context.WithTimeout(context.Background(), warningsBound)
	defer cancel()
	out := n.networks.Warnings(ctx)
	r, ok := n.redirect.(interface {
		Warnings(ctx context.Context, bridges []string) []string
	})
	if !ok {
		return out
	}
	var bridges []string
	for _, s := range subnets(n.networks) {
		bridges = append(bridges, s.Bridge)
	}
	return append(out, r.Warnings(ctx, bridges)...)
}

// warningsBound is how long `info` waits for the packet filter.
const warningsBound = 2 * time.Second
