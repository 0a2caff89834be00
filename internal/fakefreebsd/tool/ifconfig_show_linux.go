// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// show prints an interface as ifconfig(8) of FreeBSD 15 does; the formats are
// those of outputs captured on one.
func (i iface) show(l *world.Link) {
	var flags []string
	number := 0x8802 // BROADCAST, SIMPLEX, MULTICAST
	names := "BROADCAST,SIMPLEX,MULTICAST"
	member := i.bridgeOf(l) != nil
	switch {
	case l.Kind == "lo" && l.Up:
		number, names = 0x1008049, "UP,LOOPBACK,RUNNING,MULTICAST,LOWER_UP"
	case l.Kind == "lo":
		number, names = 0x8008, "LOOPBACK,MULTICAST"
	case l.Up && member:
		number, names = 0x1008943, "UP,BROADCAST,RUNNING,PROMISC,SIMPLEX,MULTICAST,LOWER_UP"
	case l.Up:
		number, names = 0x1008843, "UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP"
	case l.Kind == "epair":
		number, names = 0x1008842, "BROADCAST,RUNNING,SIMPLEX,MULTICAST,LOWER_UP"
	}
	if l.Kind == "vxlan" && !i.runs(l) {
		names = strings.Replace(names, "RUNNING,", "", 1)
	}
	flags = append(flags, names)
	i.printf("%s: flags=%x<%s> metric 0 mtu %d\n", l.Name, number, strings.Join(flags, ","), l.MTU)
	if l.Description != "" {
		i.printf("\tdescription: %s\n", l.Description)
	}
	switch l.Kind {
	case "bridge":
		i.printf("\toptions=10<VLAN_HWTAGGING>\n")
	case "epair":
		i.printf("\toptions=60001b<RXCSUM,TXCSUM,VLAN_MTU,VLAN_HWTAGGING,RXCSUM_IPV6,TXCSUM_IPV6>\n")
	case "vxlan":
		i.printf("\toptions=80020<JUMBO_MTU,LINKSTATE>\n")
	case "lo":
		i.printf("\toptions=680003<RXCSUM,TXCSUM,LINKSTATE,RXCSUM_IPV6,TXCSUM_IPV6>\n")
	}
	if l.MAC != "" {
		i.printf("\tether %s\n", l.MAC)
	}
	if l.HWAddr != "" {
		i.printf("\thwaddr %s\n", l.HWAddr)
	}
	if l.Kind == "lo" && l.Up {
		i.printf("\tinet6 ::1 prefixlen 128\n\tinet6 fe80::1%%%s prefixlen 64 scopeid 0x%x\n", l.Name, l.Index)
	}
	for _, p := range l.Inet {
		i.printf("\tinet %s\n", inetLine(netip.MustParsePrefix(p), l.Kind == "lo"))
	}
	if l.Kind == "bridge" {
		i.showBridge(l)
	}
	if len(l.Groups) > 0 {
		i.printf("\tgroups: %s\n", strings.Join(l.Groups, " "))
	}
	if v := l.VXLAN; l.Kind == "vxlan" {
		i.printf("\tvxlan vni %d local %s:%d remote %s:%d\n", v.VNI, v.Local, v.LocalPort, v.Remote, v.RemotePort)
	}
	switch l.Kind {
	case "epair":
		i.printf("\tmedia: Ethernet 10Gbase-T (10Gbase-T <full-duplex>)\n\tstatus: active\n\tnd6 options=29<PERFORMNUD,IFDISABLED,AUTO_LINKLOCAL>\n")
	case "ether":
		i.printf("\tmedia: Ethernet autoselect (10Gbase-T <full-duplex>)\n\tstatus: active\n\tnd6 options=29<PERFORMNUD,IFDISABLED,AUTO_LINKLOCAL>\n")
	case "lo":
		i.printf("\tnd6 options=21<PERFORMNUD,AUTO_LINKLOCAL>\n")
	default:
		i.printf("\tnd6 options=9<PERFORMNUD,IFDISABLED>\n")
	}
}

func inetLine(p netip.Prefix, loopback bool) string {
	mask := net.CIDRMask(p.Bits(), 32)
	line := fmt.Sprintf("%s netmask 0x%02x%02x%02x%02x", p.Addr(), mask[0], mask[1], mask[2], mask[3])
	if loopback {
		return line
	}
	last := p.Addr().As4()
	for k := range last {
		last[k] |= ^mask[k]
	}
	return line + " broadcast " + netip.AddrFrom4(last).String()
}

func (i iface) showBridge(l *world.Link) {
	priority := 0
	if l.Up {
		priority = 32768
	}
	i.printf("\tid 00:00:00:00:00:00 priority 32768 hellotime 2 fwddelay 15\n\tmaxage 20 holdcnt 6 proto rstp maxaddr 2000 timeout 1200\n")
	i.printf("\troot id 00:00:00:00:00:00 priority %d ifcost 0 port 0\n\tbridge flags=0<>\n", priority)
	for _, name := range l.Members {
		index := 0
		if m := i.w.Link(l.Jail, name); m != nil {
			index = m.Index
		}
		i.printf("\tmember: %s flags=%s\n\t        port %d priority 128 path cost 2000 vlan protocol 802.1q\n", name, portFlags(l.Ports[name]), index)
	}
}

// portFlags are those of a bridge's member.
func portFlags(p world.Port) string {
	number, names := 0x140, []string{"AUTOEDGE", "AUTOPTP"}
	if !p.NoDiscover {
		number, names = number|2, append([]string{"DISCOVER"}, names...)
	}
	if !p.NoLearn {
		number, names = number|1, append([]string{"LEARNING"}, names...)
	}
	if p.Private {
		number, names = number|0x800, append(names, "PRIVATE")
	}
	return fmt.Sprintf("%x<%s>", number, strings.Join(names, ","))
}
