// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// frame is one forwarding entry of a tunnel on FreeBSD: frames for the hardware
// address go to the node. Without a node the entry is to be removed.
type frame struct {
	mac string
	to  netip.Addr
}

// framer sets or removes one entry of a tunnel. Setting one that is there with
// another node replaces it; removing none is no error. ifconfig(8) has no
// command for it.
type framer func(tunnel string, f frame) error

// parseFrames reads net.link.vxlan.N.ftable.dump, a line an entry:
//
//	S 0x02 02:42:0A:59:01:08       192.0.2.2 00001213
func parseFrames(text string) map[string]netip.Addr {
	out := make(map[string]netip.Addr)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 4 {
			continue
		}
		mac, err := net.ParseMAC(f[2])
		to, addrErr := netip.ParseAddr(f[3])
		if err == nil && addrErr == nil {
			out[mac.String()] = to
		}
	}
	return out
}

// frameChanges bring the entries from those that there are to those of peers:
// removals first, each in order.
func frameChanges(has, want map[string]netip.Addr) (out []frame) {
	for _, mac := range sortedKeys(has) {
		if _, wanted := want[mac]; !wanted {
			out = append(out, frame{mac: mac})
		}
	}
	for _, mac := range sortedKeys(want) {
		if has[mac] != want[mac] {
			out = append(out, frame{mac, want[mac]})
		}
	}
	return out
}

// port is where a bridge sends frames for a hardware address.
type port struct {
	name   string
	static bool
}

// parseBridgeAddrs reads `ifconfig BRIDGE addr`, a line an address:
//
//	02:42:0a:59:01:08 Vlan1 sx0123456789 0 flags=1<STATIC>
func parseBridgeAddrs(text string) map[string]port {
	out := make(map[string]port)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 3 {
			continue
		}
		if mac, err := net.ParseMAC(f[0]); err == nil {
			out[mac.String()] = port{f[2], slices.Contains(flagsIn(lines.Text()), "STATIC")}
		}
	}
	return out
}

// bridgeAddrs are ifconfig's commands that make the bridge's fixed addresses at
// the tunnel exactly the wanted ones. What it learned elsewhere gives way; what
// is fixed elsewhere has to go first.
func bridgeAddrs(has map[string]port, want map[string]netip.Addr, tunnel string) (out [][]string) {
	for _, mac := range sortedKeys(has) {
		_, wanted := want[mac]
		if p := has[mac]; p.static && (p.name == tunnel) != wanted {
			out = append(out, []string{"deladdr", mac})
		}
	}
	for _, mac := range sortedKeys(want) {
		if has[mac] != (port{tunnel, true}) {
			out = append(out, []string{"static", tunnel, mac})
		}
	}
	return out
}

// parseARP reads `arp -an`: the addresses that the host answers for in the
// place of others.
//
//	? (10.89.1.8) at 02:42:0a:59:01:08 on sb0123456789 permanent published [bridge]
func parseARP(text string) map[netip.Addr]string {
	out := make(map[netip.Addr]string)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || f[2] != "at" || !slices.Contains(f, "published") {
			continue
		}
		if addr, err := netip.ParseAddr(strings.Trim(f[1], "()")); err == nil {
			out[addr] = f[3]
		}
	}
	return out
}

// arpChanges are the addresses not to be answered for any more, and arp(8)'s
// lines for those that are not answered for yet.
func arpChanges(has map[netip.Addr]string, peers []Peer) (gone []string, lines string) {
	want := make(map[netip.Addr]bool)
	for _, p := range peers {
		want[p.Addr] = true
		if mac := macOf(p.Addr); has[p.Addr] != mac {
			lines += fmt.Sprintf("%s %s pub\n", p.Addr, mac)
		}
	}
	for addr := range has {
		if !want[addr] {
			gone = append(gone, addr.String())
		}
	}
	slices.Sort(gone)
	return gone, lines
}
