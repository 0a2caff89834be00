// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"satld/platform/command"
)

// bsd is a FreeBSD host in memory as far as ifconfig(8), route(8), netstat(1),
// sysctl(8) and jexec(8) go, behaving as was measured on FreeBSD 14 and 15.
type bsd struct {
	links                    []*bsdLink
	jails                    map[string]*bsdJail
	calls                    []string // changes only
	cut                      int      // the daemon dies at its change of that number, when it is done; 0 never
	noJ, noTools, forwarding bool
}

type bsdLink struct {
	name, unit, descr, ether, jail string
	groups, members                []string
	inet                           []netip.Prefix
	up, deaf                       bool // deaf: up, and never running
	mtu                            int

	tunnel string                // what ifconfig prints of a vxlan
	frames map[string]netip.Addr // of a vxlan
	off    map[string][]string   // of a bridge's members: what is not set, or is besides
	addrs  map[string]port       // of a bridge
	arp    map[netip.Addr]string // published on a bridge
}

type bsdJail struct {
	lo0   bool
	route string
}

func newBSD() *bsd {
	return &bsd{forwarding: true, jails: map[string]*bsdJail{}, links: []*bsdLink{
		{name: "vtnet0", up: true, mtu: 1500, inet: []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24")}},
		{name: "lo0", up: true, mtu: 16384, groups: []string{"lo"}},
		{name: "epair0a", unit: "epair0", descr: "somebody's", mtu: 1500},
		{name: "epair0b", unit: "epair0", mtu: 1500},
		{name: "bridge0", unit: "bridge0", up: true, mtu: 1500, members: []string{"epair0a"}},
	}}
}

var errKilled = errors.New("the daemon was killed")

func (b *bsd) run(ctx context.Context, c command.Command) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	args := c.Argv
	reads := slices.Contains([]string{"sysctl", "netstat"}, args[0]) || len(args) == 2 || args[1] == "-an" || args[len(args)-1] == "addr" || args[len(args)-1] == "lo0" || len(args) == 4 && args[1] == "-j"
	if b.cut > 0 && len(b.calls) >= b.cut {
		return "", errKilled
	}
	out, said := b.do(args, c.Stdin)
	if !reads {
		b.calls = append(b.calls, c.String())
		for line := range strings.Lines(c.Stdin) {
			b.calls[len(b.calls)-1] += "\n\t" + strings.TrimSpace(line)
		}
		if b.cut > 0 && len(b.calls) >= b.cut {
			return "", errKilled // done, and nobody is there to hear of it
		}
	}
	if said != "" {
		return "", &command.Error{Command: c, Status: 1, Stderr: said, Err: errors.New("exit status 1")}
	}
	return out, nil
}

func (b *bsd) link(jail, name string) *bsdLink {
	for _, l := range b.links {
		if l.name == name && l.jail == jail {
			return l
		}
	}
	return nil
}

func (b *bsd) do(args []string, stdin string) (out, said string) {
	switch tool, args := args[0], args[1:]; tool {
	case "arp":
		return b.proxies(args, stdin)
	case "sysctl":
		if rest, ok := strings.CutPrefix(args[1], "net.link.vxlan."); ok {
			return b.table(rest)
		}
		if args[1] == "net.inet.ip.forwarding" {
			return map[bool]string{true: "1\n", false: "0\n"}[b.forwarding], ""
		}
		return "Format: Length:16 Dump:0x9ddf94fc2b8f207dec6c355de7653ff1\n", ""
	case "netstat":
		for _, l := range b.links {
			for _, p := range l.inet {
				out += fmt.Sprintf("%s link#1 U %.8s\n%s link#2 UHS lo0\n", p.Masked(), l.name, p.Addr())
			}
		}
		return "default 192.0.2.1 UGS vtnet0\n" + out, ""
	case "ifconfig", "route":
		if args[0] != "-j" {
			return b.tool(tool, "", args)
		}
		if b.noJ {
			return "", tool + ": illegal option -- j\nusage: ..."
		}
		return b.tool(tool, args[1], args[2:])
	case "jexec":
		if b.noTools {
			return "", fmt.Sprintf("jexec: execvp: %s: No such file or directory", args[1])
		}
		return b.tool(strings.TrimPrefix(args[1], "/sbin/"), args[0], args[2:])
	}
	return "", args[0] + ": not found"
}

func (b *bsd) tool(tool, jail string, args []string) (out, said string) {
	j := b.jails[jail]
	if jail != "" && j == nil {
		return "", "ifconfig: jail not found: No such file or directory"
	}
	switch {
	case tool == "route":
		if j.route != "" {
			return "", "add net default: gateway " + args[2] + " fib 0: route already in table"
		}
		j.route = args[2]
		return "", ""
	case args[0] == "-a":
		for _, l := range b.links {
			if l.jail == jail {
				out += b.show(l)
			}
		}
		return out, ""
	case jail != "" && args[0] == "lo0":
		if len(args) == 1 {
			return b.show(&bsdLink{name: "lo0", up: j.lo0, mtu: 16384}), ""
		}
		j.lo0 = true
		return "", ""
	case len(args) > 1 && args[1] == "create":
		return b.create(args[0], args[2:]...)
	case len(args) == 2 && args[1] == "addr":
		for mac, p := range b.link("", args[0]).addrs {
			out += fmt.Sprintf("%s Vlan1 %s 0 flags=1<%s>\n", mac, p.name, map[bool]string{true: "STATIC"}[p.static])
		}
		return out, ""
	}
	l := b.link(jail, args[0])
	if l == nil {
		return "", fmt.Sprintf("ifconfig: interface %s does not exist", args[0])
	}
	if len(args) == 1 {
		return b.show(l), ""
	}
	for args = args[1:]; len(args) > 0 && said == ""; {
		var arg string
		if len(args) > 1 {
			arg = args[1]
		}
		used := 2
		switch args[0] {
		case "up", "down":
			l.up, used = args[0] == "up", 1
		case "vxlanflushall":
			l.frames, used = map[string]netip.Addr{}, 1
		case "private", "-learn", "-discover":
			l.off[arg] = append(l.off[arg], args[0])
		case "deladdr":
			if _, ok := l.addrs[arg]; !ok {
				return "", "ifconfig: BRDGDADDR " + arg + ": No such file or directory"
			}
			delete(l.addrs, arg)
		case "static":
			l.addrs[args[2]], used = port{arg, true}, 3
		case "destroy":
			used = 1
			for _, o := range b.links {
				if o.unit == l.unit && o.jail != "" && b.jails[o.jail] != nil {
					b.jails[o.jail].route = "" // it went that way
				}
			}
			b.links = slices.DeleteFunc(b.links, func(o *bsdLink) bool { return o.unit == l.unit })
			for _, o := range b.links {
				o.members = slices.DeleteFunc(o.members, func(m string) bool { return m == l.name })
				delete(o.off, l.name)
				maps.DeleteFunc(o.addrs, func(_ string, p port) bool { return p.name == l.name })
			}
		case "name":
			if b.link(jail, arg) != nil {
				return "", "ifconfig: ioctl SIOCSIFNAME (set name): File exists"
			}
			l.name = arg
		case "description":
			l.descr = arg
		case "group":
			l.groups = append(l.groups, arg)
		case "ether":
			l.ether = arg
		case "mtu":
			l.mtu, _ = strconv.Atoi(arg)
			for _, m := range l.members { // as if_bridge(4) does
				b.link("", m).mtu = l.mtu
			}
		case "inet":
			l.inet = []netip.Prefix{netip.MustParsePrefix(arg)}
		case "addm":
			said = b.addm(l, arg)
		case "vnet":
			if b.jails[arg] == nil {
				return "", "ifconfig: jail \"" + arg + "\" not found"
			}
			l.jail, l.up, l.inet = arg, false, nil
			l.groups = nil
		default:
			said = "ifconfig: " + args[0] + ": bad value"
		}
		args = args[used:]
	}
	return "", said
}

func (b *bsd) create(unit string, with ...string) (out, said string) {
	if slices.ContainsFunc(b.links, func(l *bsdLink) bool { return l.unit == unit }) {
		return "", "ifconfig: interface " + unit + " already exists"
	}
	if strings.HasPrefix(unit, "bridge") {
		b.links = append(b.links, &bsdLink{name: unit, unit: unit, mtu: 1500, off: map[string][]string{}, addrs: map[string]port{}, arp: map[netip.Addr]string{}})
		return "", ""
	}
	if strings.HasPrefix(unit, "vxlan") {
		at := func(word string) string { return with[slices.Index(with, word)+1] }
		b.links = append(b.links, &bsdLink{name: unit, unit: unit, mtu: 1450, frames: map[string]netip.Addr{},
			tunnel: fmt.Sprintf("vxlan vni %s local %s:%s remote %s:%s", at("vxlanid"), at("vxlanlocal"), at("vxlanlocalport"), at("vxlanremote"), at("vxlanremoteport"))})
		return unit + "\n", ""
	}
	for _, end := range []string{"a", "b"} {
		b.links = append(b.links, &bsdLink{name: unit + end, unit: unit, mtu: 1500})
	}
	return unit + "a\n", ""
}

func (b *bsd) addm(bridge *bsdLink, name string) (said string) {
	member := b.link("", name)
	switch {
	case member == nil:
		return "ifconfig: BRDGADD " + name + ": No such file or directory"
	case slices.Contains(bridge.members, name):
		return "ifconfig: BRDGADD " + name + ": File exists"
	case len(bridge.members) == 0:
		bridge.mtu = member.mtu
	}
	member.mtu = bridge.mtu
	bridge.members = append(bridge.members, name)
	return ""
}

func (b *bsd) show(l *bsdLink) string {
	flags := "BROADCAST"
	if l.name == "lo0" {
		flags = "LOOPBACK"
	}
	if l.up && !l.deaf {
		flags = "RUNNING," + flags
	}
	if l.up {
		flags = "UP," + flags
	}
	out := fmt.Sprintf("%s: flags=8843<%s> metric 0 mtu %d\n", l.name, flags, l.mtu)
	if l.descr != "" {
		out += "\tdescription: " + l.descr + "\n"
	}
	if l.ether != "" {
		out += "\tether " + l.ether + "\n"
	}
	if l.tunnel != "" {
		out += "\t" + l.tunnel + "\n"
	}
	for _, p := range l.inet {
		out += fmt.Sprintf("\tinet %s netmask 0x%08x\n", p.Addr(), ^uint32(0)<<(32-p.Bits()))
	}
	for _, m := range l.members {
		flags := "LEARNING,DISCOVER,AUTOEDGE"
		for _, o := range l.off[m] {
			switch o {
			case "private":
				flags += ",PRIVATE"
			case "-learn":
				flags = strings.Replace(flags, "LEARNING,", "", 1)
			case "-discover":
				flags = strings.Replace(flags, "DISCOVER,", "", 1)
			}
		}
		out += "\tmember: " + m + " flags=143<" + flags + ">\n"
	}
	return out + "\tgroups: " + strings.Join(append([]string{"x"}, l.groups...), " ") + "\n"
}

// remove ends a jail; its interfaces come back to the host.
func (b *bsd) remove(jail string) {
	delete(b.jails, jail)
	for _, l := range b.links {
		if l.jail == jail {
			l.jail, l.up, l.inet = "", false, nil
		}
	}
}

// foreign is everything that is not ours, as text.
func (b *bsd) foreign() (out string) {
	for _, l := range b.links {
		if !strings.HasPrefix(l.descr, "satl:") {
			out += fmt.Sprintf("%+v\n", *l)
		}
	}
	return out
}

// frame is what the kernel does with a forwarding entry.
func (b *bsd) frame(tunnel string, f frame) error {
	if b.cut > 0 && len(b.calls) >= b.cut {
		return errKilled
	}
	l := b.link("", tunnel)
	if l == nil {
		return unix.ENXIO
	}
	if l.frames[f.mac] = f.to; !f.to.IsValid() {
		delete(l.frames, f.mac)
	}
	b.calls = append(b.calls, strings.TrimSpace(fmt.Sprintf("SIOCSDRVSPEC %s %s %s", tunnel, f.mac, map[bool]string{true: f.to.String(), false: "none"}[f.to.IsValid()])))
	if b.cut > 0 && len(b.calls) >= b.cut {
		return errKilled
	}
	return nil
}

// table is net.link.vxlan.UNIT.ftable. The kernel prints what fits in a page.
func (b *bsd) table(oid string) (out, said string) {
	unit, what, _ := strings.Cut(oid, ".ftable.")
	for _, l := range b.links {
		switch {
		case l.unit != "vxlan"+unit:
		case what == "count":
			return fmt.Sprintf("%d\n", len(l.frames)), ""
		default:
			out = "\n"
			for mac, to := range l.frames {
				out += fmt.Sprintf("S 0x02 %s %15s 00001213\n", strings.ToUpper(mac), to)
			}
			return out[:min(len(out), 4095)], ""
		}
	}
	return "", "sysctl: unknown oid 'net.link.vxlan." + oid + "'"
}

// proxies is arp(8): -an -i BRIDGE, -d ADDR, -f FILE.
func (b *bsd) proxies(args []string, stdin string) (out, said string) {
	of := func(addr string) *bsdLink {
		for _, l := range b.links {
			for _, p := range l.inet {
				if p.Contains(netip.MustParseAddr(addr)) {
					return l
				}
			}
		}
		return nil
	}
	switch args[0] {
	case "-an":
		l := b.link("", args[2])
		for addr, mac := range l.arp {
			out += fmt.Sprintf("? (%s) at %s on %s permanent published [bridge]\n", addr, mac, l.name)
		}
		return out + fmt.Sprintf("? (%s) at %s on %s permanent [bridge]\n? (%s) at (incomplete) on %[3]s expired [bridge]\n", l.inet[0].Addr(), l.ether, l.name, l.inet[0].Addr().Next()), ""
	case "-d":
		l := of(args[1])
		if l == nil {
			return "", "arp: delete: cannot locate " + args[1]
		}
		delete(l.arp, netip.MustParseAddr(args[1]))
		return args[1] + " deleted\n", ""
	}
	for line := range strings.Lines(stdin) {
		f := strings.Fields(line)
		l := of(f[0])
		if l == nil || len(f) != 3 || f[2] != "pub" {
			return "", "arp: cannot intuit interface index and type for " + f[0]
		}
		l.arp[netip.MustParseAddr(f[0])] = f[1]
	}
	return "", ""
}
