// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// nameLimit is IFNAMSIZ without its zero.
const nameLimit = 15

// ifconfig(8): -a, -l, -g GROUP, NAME, `bridge create [name NAME]`, `epair
// create`, and the commands that command knows, in one call as many as wanted.
// -j JAIL works on the inside of a VNET.
func ifconfig(c *call) int {
	args, inside := c.args, c.inside
	if len(args) > 1 && args[0] == "-j" {
		knob, exit := c.dashJ(args[1])
		if exit != 0 {
			return exit
		}
		inside, args = knob, args[2:]
	}
	exit := 0
	c.update(func(w *world.World) {
		i := iface{call: c, w: w, jail: inside}
		exit = i.run(args)
	})
	return exit
}

// dashJ is what -j makes of a jail's name or number.
func (c *call) dashJ(name string) (jail string, exit int) {
	w, err := world.Read(c.dir)
	if err != nil {
		return "", c.fail(99, "%v", err)
	}
	if w.Knobs.NoDashJ {
		fmt.Fprintf(os.Stderr, "%s: illegal option -- j\nusage: %s [-f type:format] interface ...\n", c.name, c.name)
		return "", 1
	}
	j := w.LiveJail(name)
	if j == nil {
		return "", c.fail(1, "jail not found: No such file or directory")
	}
	if !j.VNET { // it has the host's
		return "", 0
	}
	return j.Name, 0
}

// iface is one run of ifconfig on a host or in a VNET.
type iface struct {
	*call
	w    *world.World
	jail string
}

func (i iface) run(args []string) int {
	switch {
	case len(args) == 0 || args[0] == "-a":
		for _, l := range i.links() {
			i.show(l)
		}
		return 0
	case args[0] == "-l":
		var names []string
		for _, l := range i.links() {
			names = append(names, l.Name)
		}
		i.printf("%s\n", strings.Join(names, " "))
		return 0
	case args[0] == "-g" && len(args) == 2:
		for _, l := range i.links() {
			if slices.Contains(l.Groups, args[1]) {
				i.printf("%s\n", l.Name)
			}
		}
		return 0
	case strings.HasPrefix(args[0], "-"):
		return i.fail(1, "illegal option -- %s", args[0][1:])
	case len(args) > 1 && args[1] == "create":
		return i.create(args[0], args[2:])
	}
	l := i.w.Link(i.jail, args[0])
	if l == nil {
		return i.fail(1, "interface %s does not exist", args[0])
	}
	if len(args) == 1 {
		i.show(l)
		return 0
	}
	return i.commands(l, args[1:])
}

// links are the interfaces that this side sees.
func (i iface) links() (out []*world.Link) {
	for _, l := range i.w.Links {
		if l.Jail == i.jail {
			out = append(out, l)
		}
	}
	return out
}

// create makes the next of a kind, or one of a number: bridge, bridge7.
func (i iface) create(kind string, rest []string) int {
	unit := -1
	if cut := strings.TrimRight(kind, "0123456789"); cut != kind {
		n, err := strconv.Atoi(kind[len(cut):])
		if err != nil || n > 32767 {
			return i.fail(1, "SIOCIFCREATE2 (%s): Invalid argument", kind)
		}
		kind, unit = cut, n
	}
	mac := func() string {
		i.w.NextMAC++
		return fmt.Sprintf("58:9c:fc:10:%02x:%02x", i.w.NextMAC>>8, i.w.NextMAC&0xff)
	}
	switch kind {
	case "bridge":
		n, taken := i.free("bridge", unit)
		if taken {
			return i.fail(1, "interface bridge%d already exists", n)
		}
		l := i.add(&world.Link{Name: fmt.Sprintf("bridge%d", n), Kind: "bridge", Unit: n, MAC: mac(), Groups: []string{"bridge"}})
		if err := errors.Join(i.w.Save(), plumb(i.w).bridge(l)); err != nil {
			return i.fail(1, "ioctl SIOCIFCREATE2 (bridge): %s", words(err))
		}
		if len(rest) == 0 {
			i.printf("%s\n", l.Name)
			return 0
		}
		exit := i.commands(l, rest)
		i.printf("%s\n", l.Name)
		return exit
	case "epair":
		if len(rest) > 0 {
			return i.fail(1, "the fake makes pairs without further commands")
		}
		n, taken := i.free("epair", unit)
		if taken {
			return i.fail(1, "interface epair%d already exists", n)
		}
		a := i.add(&world.Link{Name: fmt.Sprintf("epair%da", n), Kind: "epair", Unit: n, MAC: mac(), Groups: []string{"epair"}})
		b := i.add(&world.Link{Name: fmt.Sprintf("epair%db", n), Kind: "epair", Unit: n, MAC: mac(), Groups: []string{"epair"}})
		if err := errors.Join(i.w.Save(), plumb(i.w).pair(a, b)); err != nil {
			return i.fail(1, "ioctl SIOCIFCREATE2 (epair): %s", words(err))
		}
		i.printf("%s\n", a.Name)
		return 0
	case "vxlan":
		return i.createVXLAN(unit, mac(), rest)
	}
	return i.fail(1, "SIOCIFCREATE2 (%s): Invalid argument", kind)
}

// free is a number of a kind that nobody has: the one asked for, or for -1 the
// lowest. A number stays taken under whatever name.
func (i iface) free(kind string, unit int) (n int, taken bool) {
	has := func(n int) bool {
		return slices.ContainsFunc(i.w.Links, func(l *world.Link) bool { return l.Kind == kind && l.Unit == n })
	}
	if unit >= 0 {
		return unit, has(unit)
	}
	for has(n) {
		n++
	}
	return n, false
}

func (i iface) add(l *world.Link) *world.Link {
	l.Jail, l.MTU = i.jail, 1500
	for _, o := range i.w.Links {
		l.Index = max(l.Index, o.Index+1)
	}
	i.w.Links = append(i.w.Links, l)
	return l
}

// arguments that each command takes; alias and its like stand alone.
var linkCommands = map[string]int{
	"name": 1, "description": 1, "descr": 1, "group": 1, "-group": 1, "up": 0, "down": 0, "inet": 1, "ether": 1, "link": 1, "lladdr": 1,
	"mtu": 1, "addm": 1, "deletem": 1, "vnet": 1, "-vnet": 1, "destroy": 0, "-description": 0, "alias": 0,
	"private": 1, "-private": 1, "learn": 1, "-learn": 1, "discover": 1, "-discover": 1, "static": 2, "deladdr": 1, "addr": 0, "vxlanflushall": 0,
}

func (i iface) commands(l *world.Link, args []string) int {
	for len(args) > 0 {
		name := args[0]
		n, ok := linkCommands[name]
		if !ok || len(args) <= n {
			return i.fail(1, "%s: bad value", name)
		}
		var arg string
		if n > 0 {
			arg = args[1]
		}
		rest := args[min(2, 1+n) : 1+n]
		args = args[1+n:]
		if name == "inet" {
			used, exit := i.inet(l, arg, args)
			if exit != 0 {
				return exit
			}
			args = args[used:]
			continue
		}
		if exit := i.command(l, name, arg, rest); exit != 0 {
			return exit
		}
	}
	return 0
}

func (i iface) command(l *world.Link, name, arg string, rest []string) int {
	p := plumb(i.w)
	var err error
	switch name {
	case "name":
		return i.rename(l, arg)
	case "description", "descr":
		l.Description = arg
	case "-description":
		l.Description = ""
	case "group":
		if arg == "" || len(arg) > nameLimit || arg[len(arg)-1] >= '0' && arg[len(arg)-1] <= '9' {
			return i.fail(1, "setifgroup: group names may not end in a digit")
		}
		if !slices.Contains(l.Groups, arg) {
			l.Groups = append(l.Groups, arg)
		}
	case "-group":
		if !slices.Contains(l.Groups, arg) {
			return i.fail(1, " SIOCDIFGROUP: No such file or directory")
		}
		l.Groups = slices.DeleteFunc(l.Groups, func(g string) bool { return g == arg })
	case "up", "down":
		l.Up = name == "up"
		err = p.state(i.w, l)
	case "ether", "link", "lladdr":
		if _, perr := net.ParseMAC(arg); perr != nil {
			return i.fail(1, "malformed link-level address")
		}
		if l.HWAddr == "" {
			l.HWAddr = l.MAC
		}
		l.MAC = strings.ToLower(arg)
		err = p.mac(i.w, l)
	case "mtu":
		mtu, perr := strconv.Atoi(arg)
		if perr != nil {
			return i.fail(1, "%s: bad value", arg)
		}
		if i.bridgeOf(l) != nil {
			return i.fail(1, "ioctl SIOCSIFMTU (set mtu): Operation not supported")
		}
		l.MTU = mtu
		err = p.mtu(i.w, l)
	case "addm", "deletem":
		return i.member(l, name, arg)
	case "vnet", "-vnet":
		return i.vnet(l, name, arg)
	case "destroy":
		return i.destroy(l)
	case "private", "-private", "learn", "-learn", "discover", "-discover":
		return i.port(l, name, arg)
	case "static", "deladdr", "addr":
		return i.addrs(l, name, arg, rest)
	case "vxlanflushall":
		err = p.flush(i.w, l)
	}
	if err != nil {
		return i.fail(1, "%s %s: %s", l.Name, name, words(err))
	}
	return 0
}

func (i iface) rename(l *world.Link, name string) int {
	switch {
	case len(name) > nameLimit || name == "":
		return i.fail(1, "ioctl SIOCSIFNAME (set name): Invalid argument")
	case i.w.Link(i.jail, name) != nil:
		return i.fail(1, "ioctl SIOCSIFNAME (set name): File exists")
	}
	if err := plumb(i.w).rename(i.w, l, name); err != nil {
		return i.fail(1, "ioctl SIOCSIFNAME (set name): %s", words(err))
	}
	for _, b := range i.w.Links {
		for k, m := range b.Members {
			if m == l.Name && b.Jail == l.Jail {
				b.Members[k] = name
			}
		}
	}
	for _, b := range i.w.Links {
		if p, ok := b.Ports[l.Name]; ok {
			delete(b.Ports, l.Name)
			b.Ports[name] = p
		}
	}
	l.Name = name
	return 0
}

// inet is an address, and what may follow it: alias, -alias, netmask, broadcast.
func (i iface) inet(l *world.Link, addr string, rest []string) (used, exit int) {
	remove, mask := false, ""
words:
	for used < len(rest) {
		switch rest[used] {
		case "alias", "add":
			used++
		case "-alias", "delete", "remove":
			remove = true
			used++
		case "netmask", "broadcast":
			if used+1 == len(rest) {
				return used, i.fail(1, "%s: bad value", rest[used])
			}
			if rest[used] == "netmask" {
				mask = rest[used+1]
			}
			used += 2
		default:
			break words
		}
	}
	p, err := netip.ParsePrefix(addr)
	if err != nil {
		var a netip.Addr
		if a, err = netip.ParseAddr(addr); err != nil || !a.Is4() {
			return used, i.fail(1, "%s: bad value", addr)
		}
		p = netip.PrefixFrom(a, bitsOf(mask, a))
	}
	at := slices.IndexFunc(l.Inet, func(have string) bool { return netip.MustParsePrefix(have).Addr() == p.Addr() })
	if remove {
		if at < 0 {
			return used, i.fail(1, "ioctl (SIOCDIFADDR): Can't assign requested address")
		}
		p = netip.MustParsePrefix(l.Inet[at])
		l.Inet = slices.Delete(l.Inet, at, at+1)
		err = plumb(i.w).address(i.w, l, p, false)
	} else if at < 0 || l.Inet[at] != p.String() {
		if at >= 0 {
			l.Inet = slices.Delete(l.Inet, at, at+1)
		}
		l.Inet = append(l.Inet, p.String())
		l.Up = true // an address brings its interface up
		if err = plumb(i.w).address(i.w, l, p, true); err == nil {
			err = plumb(i.w).state(i.w, l)
		}
	}
	if err != nil {
		return used, i.fail(1, "ioctl (SIOCAIFADDR): %s", words(err))
	}
	return used, 0
}

// bitsOf reads 255.255.255.0 or 0xffffff00; without one the class decides.
func bitsOf(mask string, a netip.Addr) int {
	if m, err := netip.ParseAddr(mask); err == nil {
		ones, _ := net.IPMask(m.AsSlice()).Size()
		return ones
	}
	if v, err := strconv.ParseUint(strings.TrimPrefix(mask, "0x"), 16, 32); err == nil {
		ones, _ := net.IPMask{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}.Size()
		return ones
	}
	ones, _ := net.IP(a.AsSlice()).DefaultMask().Size()
	return ones
}

func (i iface) bridgeOf(l *world.Link) *world.Link {
	for _, b := range i.w.Links {
		if b.Jail == l.Jail && slices.Contains(b.Members, l.Name) {
			return b
		}
	}
	return nil
}

func (i iface) member(b *world.Link, how, name string) int {
	m := i.w.Link(i.jail, name)
	if how == "addm" {
		switch {
		case b.Kind != "bridge":
			return i.fail(1, "BRDGADD %s: Invalid argument", name)
		case m == nil:
			return i.fail(1, "BRDGADD %s: No such file or directory", name)
		case slices.Contains(b.Members, name):
			return i.fail(1, "BRDGADD %s: File exists (Interface is already a member of this bridge)", name)
		case i.bridgeOf(m) != nil:
			return i.fail(1, "BRDGADD %s: Device busy (Interface is a member of another bridge)", name)
		case len(b.Members) > 0 && m.MTU != b.MTU:
			return i.fail(1, "BRDGADD %s: Invalid argument", name)
		}
		b.Members = append(b.Members, name)
	} else {
		if !slices.Contains(b.Members, name) {
			return i.fail(1, "BRDGDEL %s: No such file or directory (Interface is not a bridge member)", name)
		}
		leave(b, name)
	}
	if err := plumb(i.w).member(b, m, how == "addm"); err != nil {
		return i.fail(1, "%s %s: %s", how, name, words(err))
	}
	for a, mac := range b.Published { // at a tunnel too, if it is one
		if err := plumb(i.w).publish(i.w, b, netip.MustParseAddr(a), mac); err != nil {
			return i.fail(1, "%s %s: %s", how, name, words(err))
		}
	}
	return 0
}

func (i iface) vnet(l *world.Link, how, name string) int {
	j := i.w.LiveJail(name)
	if j == nil {
		return i.fail(1, "jail not found: No such file or directory")
	}
	if how == "-vnet" {
		inner := i.w.Link(j.Name, l.Name)
		if inner == nil {
			return i.fail(1, "ioctl SIOCSIFRVNET: No such file or directory")
		}
		l = inner
		if err := plumb(i.w).home(i.w, l); err != nil {
			return i.fail(1, "ioctl SIOCSIFRVNET: %s", words(err))
		}
		l.Jail, l.Inet, l.Up = i.jail, nil, false
		return 0
	}
	switch {
	case !j.VNET:
		return i.fail(1, "ioctl SIOCSIFVNET: Invalid argument")
	case i.w.Link(j.Name, l.Name) != nil:
		return i.fail(1, "ioctl SIOCSIFVNET: File exists")
	}
	if b := i.bridgeOf(l); b != nil { // it leaves its bridge
		leave(b, l.Name)
	}
	if err := plumb(i.w).move(l, j); err != nil {
		return i.fail(1, "ioctl SIOCSIFVNET: %s", words(err))
	}
	// What was configured belongs to the stack it leaves; its groups stay.
	l.Jail, l.Inet, l.Up = j.Name, nil, false
	return 0
}

// destroy takes both ends of a pair. Old kernels can panic when the other end
// is still in a VNET or just on its way out (facts/freebsd.md, VNET plumbing).
func (i iface) destroy(l *world.Link) int {
	if l.Kind != "bridge" && l.Kind != "epair" && l.Kind != "vxlan" {
		return i.fail(1, "SIOCIFDESTROY: Invalid argument")
	}
	for _, o := range slices.Clone(i.w.Links) {
		if o != l && (l.Kind != "epair" || o.Kind != "epair" || o.Unit != l.Unit) {
			continue
		}
		if o.Jail != i.jail {
			i.w.Wrong("%s destroyed while its other end %s is in the VNET of jail %s", l.Name, o.Name, o.Jail)
		}
		if b := i.bridgeOf(o); b != nil {
			leave(b, o.Name)
		}
		i.w.Links = slices.DeleteFunc(i.w.Links, func(x *world.Link) bool { return x == o })
	}
	if err := plumb(i.w).destroy(i.w, l); err != nil {
		return i.fail(1, "SIOCIFDESTROY: %s", words(err))
	}
	return 0
}
