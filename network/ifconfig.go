// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"bufio"
	"fmt"
	"net/netip"
	"strings"
)

// The command lists of the FreeBSD driver, pure and tested everywhere. Sources:
// ifconfig(8), route(8), bridge(4), epair(4) and the measured facts named in
// the tests. Unverified on a FreeBSD host as a whole.

// group is the interface group of everything that bears the mark. A group's
// name may not end in a digit and holds 15 characters (ifconfig(8), group).
func (m mark) group() string { return "satl" + string(m) + "g" }

// bridgeCommands make a bridge, or set right the one that is there.
func bridgeCommands(m mark, n Network, exists bool) [][]string {
	var out [][]string
	if !exists {
		out = append(out, []string{"ifconfig", "bridge", "create", "name", n.Bridge})
	}
	return append(out,
		[]string{"ifconfig", n.Bridge, "group", m.group(), "description", m.label("n", n.ID)},
		[]string{"ifconfig", n.Bridge, "inet", netip.PrefixFrom(n.Gateway, n.Subnet.Bits()).String(), "up"},
	)
}

// epairCommands follow `ifconfig epair create`, which printed pair ("epair3a"):
// the outer end is tagged first, so that a sweep finds it whatever happens
// next; the inner end moves into the jail and is set up from outside, so that
// the task's root needs no tools. lo0 must be up or the task cannot reach its
// own address.
func epairCommands(m mark, jail, pair string, w wire) ([][]string, error) {
	inner, ok := strings.CutSuffix(pair, "a")
	if !ok || !strings.HasPrefix(pair, "epair") {
		return nil, fmt.Errorf("ifconfig epair create printed %q, not the name of a pair", pair)
	}
	inner += "b"
	out := [][]string{
		{"ifconfig", pair, "group", m.group(), "description", m.label("c", jail)},
		{"ifconfig", inner, "ether", w.MAC},
		{"ifconfig", w.Bridge, "addm", pair},
		{"ifconfig", pair, "up"},
		{"ifconfig", inner, "vnet", jail},
		{"ifconfig", "-j", jail, "lo0", "up"},
		{"ifconfig", "-j", jail, inner, "name", w.Interface},
		{"ifconfig", "-j", jail, w.Interface, "inet", w.Addr.String(), "up"},
	}
	if w.Default {
		out = append(out, []string{"route", "-j", jail, "add", "default", w.Gateway.String()})
	}
	return out, nil
}

// ifInfo is what one block of ifconfig(8)'s output says of an interface.
type ifInfo struct {
	Name        string
	Description string
	Up          bool
	Inet        []netip.Prefix
	Members     []string // of a bridge
	Groups      []string
}

// parseIfconfig reads the output of ifconfig(8), any number of interfaces.
func parseIfconfig(text string) []ifInfo {
	var out []ifInfo
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line != "" && line[0] != '\t' && line[0] != ' ' {
			name, flags, ok := strings.Cut(line, ": flags=")
			if ok { // flags=1008843<UP,BROADCAST,RUNNING>
				out = append(out, ifInfo{Name: name, Up: strings.Contains(flags, "<UP,") || strings.Contains(flags, "<UP>")})
			}
			continue
		}
		if len(out) == 0 {
			continue
		}
		this := &out[len(out)-1]
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && fields[0] == "description:":
			_, this.Description, _ = strings.Cut(line, "description: ")
		case len(fields) > 3 && fields[0] == "inet" && fields[2] == "netmask":
			if p, ok := parseInet(fields[1], fields[3]); ok {
				this.Inet = append(this.Inet, p)
			}
		case len(fields) > 1 && fields[0] == "member:":
			this.Members = append(this.Members, fields[1])
		case len(fields) > 1 && fields[0] == "groups:":
			this.Groups = fields[1:]
		}
	}
	return out
}

// parseInet reads an address and a netmask as ifconfig prints it, 0xffffff00.
func parseInet(addr, mask string) (netip.Prefix, bool) {
	a, err := netip.ParseAddr(addr)
	var m uint32
	if _, scanErr := fmt.Sscanf(mask, "0x%08x", &m); err != nil || scanErr != nil || !a.Is4() {
		return netip.Prefix{}, false
	}
	bits := 0
	for bits < 32 && m&(1<<(31-bits)) != 0 {
		bits++
	}
	return netip.PrefixFrom(a, bits), true
}

// parseNetstat reads `netstat -rn -f inet`: the destinations with a length.
// Bare addresses are host routes; "default" is left out.
func parseNetstat(text string) []usedPrefix {
	var out []usedPrefix
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		p, err := netip.ParsePrefix(fields[0])
		if err != nil {
			a, err := netip.ParseAddr(fields[0])
			if err != nil {
				continue
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if p.Addr().Is4() && p.Bits() > 0 {
			out = append(out, usedPrefix{p.Masked(), fields[3]})
		}
	}
	return out
}
