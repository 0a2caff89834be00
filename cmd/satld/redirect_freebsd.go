// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"log/slog"

	"satld/pf"
	"satld/traffic"
)

// newRedirector makes the writer of the packet filter: the anchors satl/nat
// and satl/rdr, with a suffix for a daemon with a state directory of its own.
func newRedirector(ctx context.Context, cfg Config, mark string, _ *slog.Logger) (traffic.Redirector, error) {
	if cfg.Redirect == "off" {
		return redirectOff{}, nil
	}
	suffix := mark
	if cfg.StateDir == defaults("freebsd").StateDir {
		suffix = ""
	}
	return pf.New(ctx, pf.Config{Suffix: suffix})
}
