// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"satld/network/nettest"
	"satld/platform"
)

// A start without a runtime leaves no interface behind.
func TestNoRuntime(t *testing.T) {
	nettest.Require(t)
	cfg := defaults(platform.OS)
	cfg.StateDir, cfg.NetworkName, cfg.Runtime = t.TempDir(), "noruntime0", "/nonexistent/runc"
	if _, err := openNode(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--runtime") {
		t.Fatalf("%v", err)
	}
	if link, err := netlink.LinkByName("noruntime0"); err == nil {
		t.Errorf("left behind: %v", link.Attrs().Name)
	}
}
