// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// createVXLAN is `vxlanN create` with what follows it, which needs both ends.
func (i iface) createVXLAN(unit int, mac string, args []string) int {
	n, taken := i.free("vxlan", unit)
	if taken {
		return i.fail(1, "interface vxlan%d already exists", n)
	}
	v := world.VXLAN{LocalPort: 4789, RemotePort: 4789}
	for len(args) > 0 {
		if args[0] == "-vxlanlearn" {
			v.NoLearn = true
			args = args[1:]
			continue
		}
		if len(args) == 1 {
			return i.fail(1, "'%s' requires argument", args[0])
		}
		var err error
		switch args[0] {
		case "vxlanid":
			v.VNI, err = strconv.Atoi(args[1])
		case "vxlanlocal":
			v.Local = args[1]
		case "vxlanremote":
			v.Remote = args[1]
		case "vxlanlocalport":
			v.LocalPort, err = strconv.Atoi(args[1])
		case "vxlanremoteport":
			v.RemotePort, err = strconv.Atoi(args[1])
		default:
			err = fmt.Errorf("%s: bad value", args[0])
		}
		if err != nil {
			return i.fail(1, "%v", err)
		}
		args = args[2:]
	}
	l := i.add(&world.Link{Name: fmt.Sprintf("vxlan%d", n), Kind: "vxlan", Unit: n, MAC: mac, Groups: []string{"vxlan"}, VXLAN: v})
	l.MTU = 1450
	if err := errors.Join(i.w.Save(), plumb(i.w).vxlan(l)); err != nil {
		return i.fail(1, "ioctl SIOCIFCREATE2 (vxlan): %s", words(err))
	}
	i.printf("%s\n", l.Name)
	return 0
}

// runs tells whether the kernel has the tunnel's socket: an end that is an
// address of the host, and a destination for what has no entry.
func (i iface) runs(l *world.Link) bool {
	here := slices.ContainsFunc(i.w.Links, func(o *world.Link) bool {
		return o.Jail == l.Jail && slices.ContainsFunc(o.Inet, func(p string) bool { return netip.MustParsePrefix(p).Addr().String() == l.VXLAN.Local })
	})
	return l.Up && here && l.VXLAN.Remote != "" && l.VXLAN.VNI > 0
}

// leave takes a member out of a bridge, and what the bridge knew of it.
func leave(b *world.Link, name string) {
	b.Members = slices.DeleteFunc(b.Members, func(n string) bool { return n == name })
	delete(b.Ports, name)
	maps.DeleteFunc(b.Static, func(_, at string) bool { return at == name })
}

// port sets what a bridge does with a member.
func (i iface) port(b *world.Link, what, name string) int {
	if !slices.Contains(b.Members, name) {
		return i.fail(1, "unable to get bridge flags: No such file or directory")
	}
	p := b.Ports[name]
	word, off := strings.CutPrefix(what, "-")
	switch word {
	case "private":
		p.Private = !off
	case "learn":
		p.NoLearn = off
	case "discover":
		p.NoDiscover = off
	}
	if b.Ports == nil {
		b.Ports = make(map[string]world.Port)
	}
	b.Ports[name] = p
	m := i.w.Link(b.Jail, name)
	err := plumb(i.w).at(i.w, m, func(h *netlink.Handle, link netlink.Link) error {
		return errors.Join(h.LinkSetLearning(link, !p.NoLearn), h.LinkSetFlood(link, !p.NoDiscover), h.LinkSetIsolated(link, p.Private))
	})
	if err != nil {
		return i.fail(1, "%s %s: %s", what, name, words(err))
	}
	return 0
}

// addrs are `static MEMBER MAC`, `deladdr MAC` and `addr` of a bridge.
func (i iface) addrs(b *world.Link, what, arg string, rest []string) int {
	if what == "addr" {
		for _, mac := range slices.Sorted(maps.Keys(b.Static)) {
			i.printf("%s Vlan1 %s 0 flags=1<STATIC>\n", mac, b.Static[mac])
		}
		return 0
	}
	mac, at := arg, b.Static[arg]
	if what == "static" {
		mac, at = rest[0], arg
	}
	m := i.w.Link(b.Jail, at)
	hw, err := net.ParseMAC(mac)
	switch {
	case err != nil:
		return i.fail(1, "%s: invalid address: No such file or directory", mac)
	case m == nil || !slices.Contains(b.Members, at):
		return i.fail(1, "BRDG%sADDR %s: No such file or directory", map[bool]string{true: "S", false: "D"}[what == "static"], arg)
	}
	if b.Static == nil {
		b.Static = make(map[string]string)
	}
	if b.Static[mac] = at; what == "deladdr" {
		delete(b.Static, mac)
	}
	err = plumb(i.w).at(i.w, m, func(h *netlink.Handle, link netlink.Link) error {
		e := &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER, State: netlink.NUD_NOARP, HardwareAddr: hw}
		if what == "deladdr" {
			return h.NeighDel(e)
		}
		return h.NeighSet(e)
	})
	if err != nil {
		return i.fail(1, "%s %s: %s", what, mac, words(err))
	}
	return 0
}

// vxlan makes a tunnel. This kernel needs no destination for what has no entry,
// and answers for the neighbours that it knows on the tunnel.
func (p plumbing) vxlan(l *world.Link) error {
	if !p {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = l.Name, l.MTU
	return netlink.LinkAdd(&netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: l.VXLAN.VNI, SrcAddr: net.ParseIP(l.VXLAN.Local), Port: l.VXLAN.LocalPort, Learning: !l.VXLAN.NoLearn, Proxy: true,
	})
}

// flush takes all of a tunnel's entries away.
func (p plumbing) flush(w *world.World, l *world.Link) error {
	return p.at(w, l, func(h *netlink.Handle, link netlink.Link) error {
		entries, err := entriesOf(h, link)
		for _, e := range entries {
			err = errors.Join(err, h.NeighDel(&e))
		}
		return err
	})
}

// entriesOf are a tunnel's forwarding entries.
func entriesOf(h *netlink.Handle, link netlink.Link) ([]netlink.Neigh, error) {
	all, err := h.NeighList(link.Attrs().Index, unix.AF_BRIDGE)
	return slices.DeleteFunc(all, func(e netlink.Neigh) bool { return e.Flags&netlink.NTF_SELF == 0 || e.IP == nil }), err
}

// ftable is net.link.vxlan.UNIT.ftable.count and dump: this kernel's own.
func ftable(w *world.World, oid string) (value string, ok bool) {
	rest, ok := strings.CutPrefix(oid, "net.link.vxlan.")
	unit, what, _ := strings.Cut(rest, ".ftable.")
	at := slices.IndexFunc(w.Links, func(l *world.Link) bool { return l.Kind == "vxlan" && strconv.Itoa(l.Unit) == unit })
	if !ok || at < 0 {
		return "", false
	}
	lines := []string{""}
	err := plumb(w).at(w, w.Links[at], func(h *netlink.Handle, link netlink.Link) error {
		entries, err := entriesOf(h, link)
		for _, e := range entries {
			lines = append(lines, fmt.Sprintf("S 0x02 %s %15s %08d", strings.ToUpper(e.HardwareAddr.String()), e.IP, 1213))
		}
		return err
	})
	if what == "count" {
		return strconv.Itoa(len(lines) - 1), err == nil
	}
	return strings.Join(lines, "\n") + "\n", err == nil && what == "dump"
}
