// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// plumbing does to this kernel what ifconfig and route did to the fake one, so
// that a jail's address can be reached from the network namespace the tools
// run in: a bridge is a bridge, an epair is a veth, a VNET is a namespace. It
// is nothing where the test did not ask for a real network.
type plumbing bool

func plumb(w *world.World) plumbing { return plumbing(w.RealNetwork) }

// system is how this system calls an interface.
func system(l *world.Link) string {
	if l.Kind == "lo" {
		return "lo"
	}
	return l.Name
}

// at runs f on an interface, in the namespace it is in.
func (p plumbing) at(w *world.World, l *world.Link, f func(h *netlink.Handle, link netlink.Link) error) error {
	if !p {
		return nil
	}
	h, err := handle(w, l.Jail)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(system(l))
	if err != nil {
		return err
	}
	return f(h, link)
}

// handle speaks to the namespace of a jail, or to the one we are in.
func handle(w *world.World, jail string) (*netlink.Handle, error) {
	j := w.Jail(jail)
	if jail == "" || j == nil {
		return netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	f, err := os.Open(j.NetNS)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return netlink.NewHandleAt(netns.NsHandle(f.Fd()), unix.NETLINK_ROUTE)
}

func (p plumbing) bridge(l *world.Link) error {
	if !p {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = l.Name
	return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
}

func (p plumbing) pair(a, b *world.Link) error {
	if !p {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Name
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: b.Name})
}

func (p plumbing) rename(w *world.World, l *world.Link, name string) error {
	return p.at(w, l, func(h *netlink.Handle, link netlink.Link) error {
		up := link.Attrs().Flags&net.FlagUp != 0
		if err := h.LinkSetDown(link); err != nil {
			return err
		}
		if err := h.LinkSetName(link, name); err != nil || !up {
			return err
		}
		return h.LinkSetUp(link)
	})
}

// state brings an interface up or down. This system gives lo 127.0.0.1 by
// itself, FreeBSD does not.
func (p plumbing) state(w *world.World, l *world.Link) error {
	return p.at(w, l, func(h *netlink.Handle, link netlink.Link) error {
		if !l.Up {
			return h.LinkSetDown(link)
		}
		if err := h.LinkSetUp(link); err != nil || l.Kind != "lo" || l.Jail == "" {
			return err
		}
		addrs, err := h.AddrList(link, unix.AF_INET)
		for _, a := range addrs {
			if err = h.AddrDel(link, &a); err != nil {
				break
			}
		}
		return err
	})
}

func (p plumbing) mac(w *world.World, l *world.Link) error {
	mac, err := net.ParseMAC(l.MAC)
	if err != nil {
		return err
	}
	return p.at(w, l, func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetHardwareAddr(link, mac) })
}

func (p plumbing) mtu(w *world.World, l *world.Link) error {
	return p.at(w, l, func(h *netlink.Handle, link netlink.Link) error { return h.LinkSetMTU(link, l.MTU) })
}

func (p plumbing) address(w *world.World, l *world.Link, prefix netip.Prefix, add bool) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 32)}}
	return p.at(w, l, func(h *netlink.Handle, link netlink.Link) error {
		if add {
			return h.AddrReplace(link, addr)
		}
		return h.AddrDel(link, addr)
	})
}

func (p plumbing) member(b, m *world.Link, add bool) error {
	if !p {
		return nil
	}
	link, err := netlink.LinkByName(m.Name)
	if err != nil {
		return err
	}
	if !add {
		return netlink.LinkSetNoMaster(link)
	}
	bridge, err := netlink.LinkByName(b.Name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMaster(link, bridge)
}

func (p plumbing) move(l *world.Link, j *world.Jail) error {
	if !p {
		return nil
	}
	link, err := netlink.LinkByName(l.Name)
	if err != nil {
		return err
	}
	f, err := os.Open(j.NetNS)
	if err != nil {
		return err
	}
	defer f.Close()
	return netlink.LinkSetNsFd(link, int(f.Fd()))
}

// home brings an interface back from a VNET to the namespace we are in.
func (p plumbing) home(w *world.World, l *world.Link) error {
	return there(p.at(w, l, func(h *netlink.Handle, link netlink.Link) error {
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer f.Close()
		return h.LinkSetNsFd(link, int(f.Fd()))
	}))
}

// there forgives that an interface is not: a tool that was killed had written
// it down and not made it.
func there(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	return err
}

func (p plumbing) destroy(w *world.World, l *world.Link) error {
	return there(p.at(w, l, func(h *netlink.Handle, link netlink.Link) error { return h.LinkDel(link) }))
}

func (p plumbing) route(w *world.World, inside string, via *world.Link, dest, gateway string) error {
	if !p || inside == "" { // the host's own routes are the test's
		return nil
	}
	gw, err := netip.ParseAddr(gateway)
	if err != nil {
		return err
	}
	r := netlink.Route{Gw: gw.AsSlice()}
	if dest != "default" {
		d, err := netip.ParsePrefix(dest)
		if err != nil {
			return err
		}
		r.Dst = &net.IPNet{IP: d.Addr().AsSlice(), Mask: net.CIDRMask(d.Bits(), 32)}
	}
	return p.at(w, via, func(h *netlink.Handle, link netlink.Link) error {
		r.LinkIndex = link.Attrs().Index
		return h.RouteAdd(&r)
	})
}
