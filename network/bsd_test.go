// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

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
	up                             bool
	mtu                            int
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
	reads := slices.Contains([]string{"sysctl", "netstat"}, args[0]) || len(args) == 2
	if b.cut > 0 && len(b.calls) >= b.cut {
		return "", errKilled
	}
	out, said := b.do(args)
	if !reads {
		b.calls = append(b.calls, c.String())
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

func (b *bsd) do(args []string) (out, said string) {
	switch tool, args := args[0], args[1:]; tool {
	case "sysctl":
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
		j.lo0 = true
		return "", ""
	case len(args) > 1 && args[1] == "create":
		return b.create(args[0])
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
		case "up":
			l.up, used = true, 1
		case "destroy":
			used = 1
			b.links = slices.DeleteFunc(b.links, func(o *bsdLink) bool { return o.unit == l.unit })
			for _, o := range b.links {
				o.members = slices.DeleteFunc(o.members, func(m string) bool { return m == l.name })
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

func (b *bsd) create(unit string) (out, said string) {
	if slices.ContainsFunc(b.links, func(l *bsdLink) bool { return l.unit == unit }) {
		return "", "ifconfig: interface " + unit + " already exists"
	}
	if strings.HasPrefix(unit, "bridge") {
		b.links = append(b.links, &bsdLink{name: unit, unit: unit, mtu: 1500})
		return "", ""
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
	if l.up {
		flags = "UP," + flags
	}
	out := fmt.Sprintf("%s: flags=8843<%s> metric 0 mtu %d\n", l.name, flags, l.mtu)
	if l.descr != "" {
		out += "\tdescription: " + l.descr + "\n"
	}
	for _, p := range l.inet {
		out += fmt.Sprintf("\tinet %s netmask 0x%08x\n", p.Addr(), ^uint32(0)<<(32-p.Bits()))
	}
	for _, m := range l.members {
		out += "\tmember: " + m + " flags=143<LEARNING>\n"
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
