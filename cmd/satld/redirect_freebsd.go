// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"log/slog"

	"satld/pf"
	"satld/traffic"
)

// newRedirector makes the writer of the packet filter: pf's anchors are named
// in the operator's pf.conf and so the same for every daemon of a host.
func newRedirector(cfg Config, _ string, log *slog.Logger) (traffic.Redirector, error) {
	if cfg.Redirect == "off" {
		return redirectOff{}, nil
	}
	return pf.New(pf.Config{Logger: log})
}
