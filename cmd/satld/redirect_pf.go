// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"satld/forward"
	"satld/network"
	"satld/pf"
	"satld/redirect"
	"satld/traffic"
)

// pfCheck is --redirect pf-check: rules are checked and never loaded.
const pfCheck = "pf-check"

// newPF makes the writer of the anchors satl/nat and satl/rdr, with a suffix
// for a daemon with a state directory of its own, and what serves published
// ports to the host itself, which pf does not.
func newPF(ctx context.Context, cfg Config, networks *network.Manager, log *slog.Logger) (traffic.Redirector, error) {
	suffix := networks.Mark()
	if cfg.StateDir == defaults("freebsd").StateDir {
		suffix = ""
	}
	filter, err := pf.New(ctx, pf.Config{
		Suffix: suffix, Group: networks.Group(), Uplinks: networks.Uplinks,
		CheckOnly: cfg.Redirect == pfCheck, Logger: log,
	})
	if err != nil || cfg.Redirect == pfCheck {
		return filter, err
	}
	local := forward.New(forward.Config{Logger: log, Addrs: func(ctx context.Context) ([]netip.Addr, error) {
		if seen, err := filter.FiltersLocal(ctx); seen || err != nil {
			return nil, err
		}
		return pf.HostAddrs()
	}})
	return &pfAndLocal{Redirector: filter, local: local}, nil
}

// pfAndLocal is pf for what comes in and a Forwarder for the host itself.
type pfAndLocal struct {
	*pf.Redirector
	local *forward.Forwarder
}

// Apply has both hold exactly rules. The forwarder comes first: it cannot fail,
// and a member that is withdrawn is then out of it whatever pf says.
func (r *pfAndLocal) Apply(ctx context.Context, rules redirect.Rules) error {
	return errors.Join(r.local.Apply(ctx, rules), r.Redirector.Apply(ctx, rules))
}

// Cut ends flows of both.
func (r *pfAndLocal) Cut(ctx context.Context, flows []redirect.Flow) error {
	return errors.Join(r.local.Cut(ctx, flows), r.Redirector.Cut(ctx, flows))
}

// Warnings are those of both.
func (r *pfAndLocal) Warnings(ctx context.Context, bridges []string) []string {
	return append(r.Redirector.Warnings(ctx, bridges), r.local.Warnings()...)
}

// Run serves the host until ctx is done.
func (r *pfAndLocal) Run(ctx context.Context) error { return r.local.Run(ctx) }
