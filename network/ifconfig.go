// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"bufio"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ifInfo is what one block of ifconfig(8)'s output says of an interface.
type ifInfo struct {
	Name        string
	Description string
	Up          bool
	Running     bool
	Loopback    bool
	MTU         int
	Ether       string
	Inet        []netip.Prefix
	Members     []string            // of a bridge
	Ports       map[string][]string // what is set on each of them: LEARNING, PRIVATE
	VXLAN       string              // of a tunnel: its number and both ends, as printed
	Groups      []string
}

// parseIfconfig reads the output of ifconfig(8), any number of interfaces.
func parseIfconfig(text string) []ifInfo {
	var out []ifInfo
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line != "" && line[0] != '\t' && line[0] != ' ' {
			if i, ok := parseHead(line); ok {
				out = append(out, i)
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
		case len(fields) > 3 && fields[0] == "inet" && slices.Contains(fields, "netmask"):
			// "inet A --> B netmask M" on a point-to-point link
			mask := fields[slices.Index(fields, "netmask")+1:]
			if p, ok := parseInet(fields[1], strings.Join(mask[:min(1, len(mask))], "")); ok {
				this.Inet = append(this.Inet, p)
			}
		case len(fields) > 1 && fields[0] == "member:":
			this.Members = append(this.Members, fields[1])
			if this.Ports == nil {
				this.Ports = make(map[string][]string)
			}
			this.Ports[fields[1]] = flagsIn(line)
		case len(fields) > 1 && fields[0] == "ether":
			this.Ether = fields[1]
		case len(fields) > 1 && fields[0] == "vxlan":
			this.VXLAN = strings.Join(fields, " ")
		case len(fields) > 1 && fields[0] == "groups:":
			this.Groups = fields[1:]
		}
	}
	return out
}

// parseHead reads the first line of a block:
//
//	satl0: flags=1008843<UP,BROADCAST,RUNNING> metric 0 mtu 1500
func parseHead(line string) (ifInfo, bool) {
	name, rest, ok := strings.Cut(line, ": flags=")
	if !ok {
		return ifInfo{}, false
	}
	set := flagsIn(rest)
	_, rest, _ = strings.Cut(rest, ">")
	i := ifInfo{Name: name, Up: slices.Contains(set, "UP"), Running: slices.Contains(set, "RUNNING"), Loopback: slices.Contains(set, "LOOPBACK")}
	fields := strings.Fields(rest)
	if at := slices.Index(fields, "mtu"); at >= 0 && at+1 < len(fields) {
		i.MTU, _ = strconv.Atoi(fields[at+1])
	}
	return i, true
}

// flagsIn are the names in the angle brackets of a line: flags=3<UP,BROADCAST>.
func flagsIn(line string) []string {
	_, rest, _ := strings.Cut(line, "<")
	names, _, _ := strings.Cut(rest, ">")
	return strings.Split(names, ",")
}

// parseInet reads an address and a netmask as ifconfig prints it, 0xffffff00.
func parseInet(addr, mask string) (netip.Prefix, bool) {
	a, err := netip.ParseAddr(addr)
	m, maskErr := strconv.ParseUint(strings.TrimPrefix(mask, "0x"), 16, 32)
	if err != nil || maskErr != nil || !a.Is4() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, bits.LeadingZeros32(^uint32(m))), true
}

// parseNetstat reads `netstat -rn -f inet`: the destinations with a length.
// Bare addresses are host routes; "default" is left out. netstat cuts the names
// of interfaces off after eight characters.
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

// usedBy tells the prefixes in use by others. What lies in a subnet of one of
// our bridges is ours: its own route, and that of its address through lo0.
func (m mark) usedBy(all []ifInfo, routes []usedPrefix) []usedPrefix {
	var mine []netip.Prefix
	var out []usedPrefix
	for _, i := range all {
		for _, p := range i.Inet {
			if m.owns(i) {
				mine = append(mine, p.Masked())
			} else {
				out = append(out, usedPrefix{p.Masked(), "interface " + i.Name})
			}
		}
	}
	for _, r := range routes {
		inside := func(p netip.Prefix) bool { return p.Bits() <= r.Prefix.Bits() && p.Contains(r.Prefix.Addr()) }
		if !slices.ContainsFunc(mine, inside) {
			out = append(out, usedPrefix{r.Prefix, "a route through interface " + r.By})
		}
	}
	return out
}

// owns tells whether the interface bears our mark: its description, which also
// an end that went into a jail and came back keeps. The group does not.
func (m mark) owns(i ifInfo) bool {
	_, _, ok := m.parse(i.Description)
	return ok
}

// uplinks are the names of the interfaces that lead out of the host.
func (m mark) uplinks(all []ifInfo) (names []string) {
	for _, i := range all {
		if i.Up && !i.Loopback && len(i.Inet) > 0 && !m.owns(i) {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return names
}

// find looks an interface up by name.
func find(all []ifInfo, name string) (ifInfo, bool) {
	at := slices.IndexFunc(all, func(i ifInfo) bool { return i.Name == name })
	if at < 0 {
		return ifInfo{}, false
	}
	return all[at], true
}

// markArgs are what marks an interface and then names it, in this order: under
// the name bears nothing the mark that is not ours.
func (m mark) markArgs(from, kind, id, name string) []string {
	return []string{"ifconfig", from, "description", m.label(kind, id), "group", m.group(), "name", name}
}

// bridgeCommands set right what of a bridge is not; nothing is known of one that
// was just made. An address that is there is not set again: ifconfig takes it
// away first, and routes and neighbours with it.
//
// An overlay's has the hardware address that the other nodes know it by, and
// the MTU that its frames have left.
func bridgeCommands(n Network, is ifInfo) (out [][]string) {
	if mac := macOf(n.Gateway); n.VNI != 0 && (is.Ether != mac || is.MTU != n.mtu()) {
		out = append(out, []string{"ifconfig", n.Bridge, "ether", mac, "mtu", strconv.Itoa(n.mtu())})
	}
	if addr := netip.PrefixFrom(n.Gateway, n.Subnet.Bits()); !slices.Contains(is.Inet, addr) || !is.Up {
		out = append(out, []string{"ifconfig", n.Bridge, "inet", addr.String(), "up"})
	}
	return out
}

// pair is a container's link: the outer end stays on the host and in the
// bridge, the inner one goes into the jail.
type pair struct {
	wire
	jail         string
	outer, inner string
}

func (m mark) pair(jail string, w wire) pair {
	return pair{wire: w, jail: jail, outer: m.veth(jail, w.Interface), inner: m.inner(jail, w.Interface)}
}

// hostCommands bring a pair from how it stands on the host to where its inner
// end is in the jail. The bridge's MTU goes first: a member's cannot be changed,
// and a bridge without members would take that of the first one.
func (p pair) hostCommands(all []ifInfo) ([][]string, error) {
	bridge, ok := find(all, p.Bridge)
	if !ok {
		return nil, fmt.Errorf("bridge %s is not there", p.Bridge)
	}
	outer, ok := find(all, p.outer)
	if !ok {
		return nil, fmt.Errorf("link %s is not there", p.outer)
	}
	var out [][]string
	member := slices.Contains(bridge.Members, p.outer)
	mtu := strconv.Itoa(bridge.MTU)
	if !member && outer.MTU != bridge.MTU {
		out = append(out, []string{"ifconfig", p.outer, "mtu", mtu})
	}
	inner, here := find(all, p.inner)
	if here {
		set := []string{"ifconfig", p.inner, "ether", p.MAC}
		if inner.MTU != bridge.MTU {
			set = append(set, "mtu", mtu)
		}
		out = append(out, set)
	}
	out = append(out, p.joinCommands(bridge, outer.Up)...)
	if here {
		out = append(out, []string{"ifconfig", p.inner, "vnet", p.jail})
	}
	return out, nil
}

// joinCommands put the outer end on its bridge and bring it up, as far as it is
// not. Private ports of a bridge do not reach each other.
func (p pair) joinCommands(bridge ifInfo, up bool) (out [][]string) {
	var set []string
	if !slices.Contains(bridge.Members, p.outer) {
		set = append(set, "addm", p.outer)
	}
	if p.Isolated && !slices.Contains(bridge.Ports[p.outer], "PRIVATE") {
		set = append(set, "private", p.outer)
	}
	if len(set) > 0 {
		out = append(out, append([]string{"ifconfig", p.Bridge}, set...))
	}
	if !up {
		out = append(out, []string{"ifconfig", p.outer, "up"})
	}
	return out
}
