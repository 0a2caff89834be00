// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"log/slog"

	"satld/nft"
	"satld/traffic"
)

// newRedirector makes the writer of the packet filter. Its table is named by
// the state directory's mark, so that several daemons of a host never meet.
func newRedirector(_ context.Context, cfg Config, mark string, log *slog.Logger) (traffic.Redirector, error) {
	if cfg.Redirect == "off" {
		return redirectOff{}, nil
	}
	return nft.New(nft.Config{Table: "satl_" + mark, Logger: log})
}
