// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"satld/network"
	"satld/network/nettest"
	"satld/traffic"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// A broken bridge is repaired and logged; a failure that stays is logged once.
func TestRepairIsLogged(t *testing.T) {
	nettest.Require(t)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	m, err := network.Open(t.Context(), network.Config{StateDir: t.TempDir(), Name: "sr0", Pool: netip.MustParsePrefix("10.88.0.0/16"), Logger: log})
	nettest.Must(t, err)
	t.Cleanup(func() { nettest.Must(t, m.Destroy(context.Background())); _ = m.Close() })
	a := newAnnounced(m, nil, traffic.New(traffic.Config{Logger: log}), log)
	replace := func(add bool) {
		t.Helper()
		link, err := netlink.LinkByName("sr0")
		nettest.Must(t, err)
		nettest.Must(t, netlink.LinkDel(link))
		if attrs := netlink.NewLinkAttrs(); add {
			attrs.Name = "sr0"
			nettest.Must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
		}
	}
	replace(false)
	failed := a.repair(t.Context(), "")
	if text := out.String(); failed != "" || strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "bridge sr0 of network sr0 was gone") {
		t.Errorf("failed %q, log %s", failed, text)
	}
	out.Reset()
	replace(true) // by another's
	for range 3 {
		failed = a.repair(t.Context(), failed)
	}
	if text := out.String(); failed == "" || strings.Count(text, "level=ERROR") != 1 {
		t.Errorf("failed %q, log %s", failed, text)
	}
	replace(false)
	out.Reset()
	if failed = a.repair(t.Context(), failed); failed != "" || strings.Count(out.String(), "level=WARN") != 1 {
		t.Errorf("failed %q, log %s", failed, out.String())
	}
}
