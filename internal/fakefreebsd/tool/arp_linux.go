// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// arp(8) of what the host answers for: `-an -i BRIDGE`, `-d ADDR`, `-f FILE`
// with lines "ADDR MAC pub".
func arp(c *call) int {
	exit := 0
	c.update(func(w *world.World) {
		switch {
		case len(c.args) == 3 && c.args[0] == "-an" && c.args[1] == "-i":
			exit = c.arpList(w, c.args[2])
		case len(c.args) == 2 && c.args[0] == "-d":
			exit = c.arpSet(w, c.args[1], "")
		case len(c.args) == 2 && c.args[0] == "-f":
			for line := range strings.Lines(c.stdin) {
				f := strings.Fields(line)
				if len(f) != 3 || f[2] != "pub" {
					exit = c.fail(1, "bad line: %s", line)
				} else if failed := c.arpSet(w, f[0], f[1]); failed != 0 {
					exit = failed
				}
			}
		default:
			exit = c.fail(1, "usage: arp -an -i interface, -d hostname, -f filename")
		}
	})
	return exit
}

func (c *call) arpList(w *world.World, name string) int {
	l := w.Link("", name)
	if l == nil {
		return c.fail(1, "interface %s does not exist", name)
	}
	for _, p := range l.Inet {
		c.printf("? (%s) at %s on %s permanent [bridge]\n", netip.MustParsePrefix(p).Addr(), l.MAC, l.Name)
	}
	for _, a := range slices.Sorted(maps.Keys(l.Published)) {
		c.printf("? (%s) at %s on %s permanent published [bridge]\n", a, l.Published[a], l.Name)
	}
	return 0
}

// arpSet publishes an address, or with no hardware address takes it back, on
// the interface whose network it is in.
func (c *call) arpSet(w *world.World, addr, mac string) int {
	a, err := netip.ParseAddr(addr)
	at := slices.IndexFunc(w.Links, func(l *world.Link) bool {
		return l.Jail == "" && slices.ContainsFunc(l.Inet, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) })
	})
	if err != nil || at < 0 {
		return c.fail(1, "cannot intuit interface index and type for %s", addr)
	}
	l := w.Links[at]
	old, has := l.Published[addr]
	switch {
	case mac == "" && !has:
		return c.fail(1, "writing to routing socket: No such file or directory")
	case mac == "":
		delete(l.Published, addr)
	default:
		if l.Published == nil {
			l.Published = make(map[string]string)
		}
		l.Published[addr] = mac
	}
	set := plumb(w).publish
	if mac == "" {
		set, mac = plumb(w).unpublish, old
	}
	if err := set(w, l, a, mac); err != nil {
		return c.fail(1, "writing to routing socket: %s", words(err))
	}
	return 0
}

// publish has this kernel know the neighbour itself, and answer for it at the
// tunnels that are in the bridge.
func (p plumbing) publish(w *world.World, bridge *world.Link, a netip.Addr, mac string) error {
	return p.neighbour(w, bridge, a, mac, (*netlink.Handle).NeighSet)
}

func (p plumbing) unpublish(w *world.World, bridge *world.Link, a netip.Addr, mac string) error {
	return p.neighbour(w, bridge, a, mac, (*netlink.Handle).NeighDel)
}

func (p plumbing) neighbour(w *world.World, bridge *world.Link, a netip.Addr, mac string, do func(*netlink.Handle, *netlink.Neigh) error) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	links := []*world.Link{bridge}
	for _, m := range bridge.Members {
		if l := w.Link(bridge.Jail, m); l != nil && l.Kind == "vxlan" {
			links = append(links, l)
		}
	}
	for _, l := range links {
		err := p.at(w, l, func(h *netlink.Handle, link netlink.Link) error {
			return do(h, &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST, IP: a.AsSlice(), HardwareAddr: hw})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
