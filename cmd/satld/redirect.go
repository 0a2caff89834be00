// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"log/slog"

	"satld/network"
	"satld/nft"
	"satld/redirect"
	"satld/traffic"
)

// newRedirector makes the writer of the packet filter. What it writes is named
// by the state directory's mark, so that several daemons of a host never meet.
func newRedirector(ctx context.Context, cfg Config, networks *network.Manager, log *slog.Logger) (traffic.Redirector, error) {
	switch cfg.Redirect {
	case "off":
		return redirectOff{}, nil
	case "pf", pfCheck:
		return newPF(ctx, cfg, networks, log)
	}
	return nft.New(nft.Config{Table: "satl_" + networks.Mark(), Logger: log})
}

// redirectOff writes nothing: ports are published and tasks routed by
// somebody else (--redirect off).
type redirectOff struct{}

func (redirectOff) Apply(context.Context, redirect.Rules) error { return nil }
func (redirectOff) Audit(context.Context) (bool, error)         { return true, nil }
func (redirectOff) Cut(context.Context, []redirect.Flow) error  { return nil }
func (redirectOff) Clear(context.Context) error                 { return nil }
