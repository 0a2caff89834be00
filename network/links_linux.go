// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netlinkLinks is the Linux way: rtnetlink only, no external command. The
// handle belongs to the network namespace that the daemon started in.
//
// What is ours bears two marks: the alias says whose it is, and the link group
// is the mark's own 32 bits. The kernel takes a group, but no alias, in the
// request that makes a link (rtnl_create_link), so that one whose alias was
// never set, because the daemon died in between, is still known for ours.
type netlinkLinks struct {
	mark mark
	dir  string // of the namespaces' names
	host *netlink.Handle
}

func newNetlinkLinks(m mark, netnsDir string) (links, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	return &netlinkLinks{mark: m, dir: netnsDir, host: h}, nil
}

func (l *netlinkLinks) close() error { l.host.Close(); return nil }

func (l *netlinkLinks) prepare(context.Context) error {
	return setSysctl("net/ipv4/ip_forward", "1")
}

// add makes a link and marks it.
func (l *netlinkLinks) add(link netlink.Link, label string) error {
	link.Attrs().Group = l.mark.linkGroup()
	if err := l.host.LinkAdd(link); err != nil {
		return err
	}
	if err := l.host.LinkSetAlias(link, label); err != nil {
		return fmt.Errorf("set its alias: %w", err)
	}
	return nil
}

func (l *netlinkLinks) ensureBridge(_ context.Context, n Network) error {
	link, err := l.host.LinkByName(n.Bridge)
	if notFound(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = n.Bridge
		// A fixed address: otherwise the bridge's own changes as ports come
		// and go, and neighbours' caches with it.
		if attrs.HardwareAddr, err = net.ParseMAC(macOf(n.Gateway)); err != nil {
			return err
		}
		if err := l.add(&netlink.Bridge{LinkAttrs: attrs}, l.mark.label("n", n.ID)); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		link, err = l.host.LinkByName(n.Bridge)
	}
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}
	if !l.ours(link) || link.Type() != "bridge" {
		return fmt.Errorf("interface %s is there and is not ours: %w", n.Bridge, errdefs.ErrConflict)
	}
	if link.Attrs().Alias == "" {
		if err := l.host.LinkSetAlias(link, l.mark.label("n", n.ID)); err != nil {
			return fmt.Errorf("set its alias: %w", err)
		}
	}
	if err := setAddr(l.host, link, netip.PrefixFrom(n.Gateway, n.Subnet.Bits())); err != nil {
		return err
	}
	// IPv4 only; without this every bridge and container would also have a
	// link-local address that no packet filter of ours knows.
	_ = setSysctl("net/ipv6/conf/"+n.Bridge+"/disable_ipv6", "1")
	// 127.0.0.1 redirected into the bridge (facts: the bridge's own conf is enough).
	if err := setSysctl("net/ipv4/conf/"+n.Bridge+"/route_localnet", "1"); err != nil {
		return err
	}
	if err := l.host.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	return nil
}

func (l *netlinkLinks) deleteLink(_ context.Context, name string) error {
	return l.deleteOurs(name)
}

// deleteOurs deletes an interface if it is there; one that is not ours stays.
func (l *netlinkLinks) deleteOurs(name string) error {
	link, err := l.host.LinkByName(name)
	if notFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if !l.ours(link) {
		return nil
	}
	if err := l.host.LinkDel(link); err != nil && !notFound(err) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

// netns is the path of a container's namespace.
func (l *netlinkLinks) netns(containerID string) string {
	return filepath.Join(l.dir, l.mark.nsPrefix()+containerID)
}

func (l *netlinkLinks) attach(_ context.Context, containerID string, wires []wire) (string, error) {
	path := l.netns(containerID)
	ns, err := openNetns(path)
	if err != nil {
		return "", err
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return "", fmt.Errorf("open rtnetlink in %s: %w", path, err)
	}
	defer inside.Close()
	lo, err := inside.LinkByName("lo")
	if err == nil {
		err = inside.LinkSetUp(lo)
	}
	if err != nil {
		return "", fmt.Errorf("bring up lo: %w", err)
	}
	for _, w := range wires {
		if err := l.connect(inside, int(ns.Fd()), containerID, w); err != nil {
			return "", fmt.Errorf("interface %s: %w", w.Interface, err)
		}
	}
	if err := l.settle(ns, containerID, wires); err != nil {
		return "", err
	}
	return path, nil
}

// settle has the kernel put the links to use now: inner ends first, then the
// outer ones, then the bridges that got a first port.
func (l *netlinkLinks) settle(ns *os.File, containerID string, wires []wire) error {
	err := inNetns(ns, func() error {
		for _, w := range wires {
			if err := syncLink(w.Interface); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, w := range wires {
		if err := errors.Join(syncLink(l.mark.veth(containerID, w.Interface)), syncLink(w.Bridge)); err != nil {
			return err
		}
	}
	return nil
}

// connect makes one veth pair, or what is missing of it.
func (l *netlinkLinks) connect(inside *netlink.Handle, nsFd int, containerID string, w wire) error {
	bridge, err := l.host.LinkByName(w.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", w.Bridge, err)
	}
	name := l.mark.veth(containerID, w.Interface)
	eth, err := inside.LinkByName(w.Interface)
	if err == nil {
		// The pair is there; its outer end may have lost its bridge.
		outer, err := l.host.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find its outer end %s: %w", name, err)
		}
		if err := l.host.LinkSetAlias(outer, l.mark.label("c", containerID)); err != nil {
			return fmt.Errorf("set the alias of %s: %w", name, err)
		}
		if err := l.plug(outer, bridge); err != nil {
			return err
		}
	} else if notFound(err) {
		// A pair from an attempt that was cut short, if any.
		if err := l.deleteOurs(name); err != nil {
			return err
		}
		mac, err := net.ParseMAC(w.MAC)
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		attrs.MasterIndex, attrs.Flags = bridge.Attrs().Index, net.FlagUp
		if attrs.MTU = w.MTU; w.MTU == 0 {
			attrs.MTU = -1 // netlink's word for the system's own
		}
		pair := &netlink.Veth{LinkAttrs: attrs, PeerName: w.Interface, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(nsFd)}
		if err := l.add(pair, l.mark.label("c", containerID)); err != nil {
			return fmt.Errorf("add veth pair %s: %w", name, err)
		}
		if err := l.hairpin(pair); err != nil {
			return err
		}
		if w.Isolated {
			if err := l.host.LinkSetIsolated(pair, true); err != nil {
				return fmt.Errorf("isolate %s: %w", name, err)
			}
		}
		if eth, err = inside.LinkByName(w.Interface); err != nil {
			return fmt.Errorf("find its inner end: %w", err)
		}
	} else {
		return err
	}
	if err := setAddr(inside, eth, w.Addr); err != nil {
		return err
	}
	if err := inside.LinkSetUp(eth); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	if w.Default {
		route := &netlink.Route{LinkIndex: eth.Attrs().Index, Gw: w.Gateway.AsSlice()}
		if err := inside.RouteReplace(route); err != nil {
			return fmt.Errorf("default route through %s: %w", w.Gateway, err)
		}
	}
	return nil
}

// hairpin lets the bridge send a frame back to the port that it came from:
// where br_netfilter is loaded (dockerd loads it), a task that reaches itself
// through a published port is redirected within the bridge, not routed.
func (l *netlinkLinks) hairpin(port netlink.Link) error {
	if err := l.host.LinkSetHairpin(port, true); err != nil {
		return fmt.Errorf("set hairpin mode of %s: %w", port.Attrs().Name, err)
	}
	return nil
}

func (l *netlinkLinks) detach(_ context.Context, containerID string, wires []wire, _ time.Duration) error {
	var errs []error
	for _, w := range wires {
		errs = append(errs, l.deleteOurs(l.mark.veth(containerID, w.Interface)))
	}
	if len(wires) == 0 {
		// No lease: whatever bears the container's mark.
		all, err := l.owned(context.Background())
		errs = append(errs, err)
		for _, o := range all {
			if o.Kind == "c" && o.ID == containerID && !strings.HasPrefix(o.Name, l.mark.nsPrefix()) {
				errs = append(errs, l.deleteOurs(o.Name))
			}
		}
	}
	errs = append(errs, deleteNetns(l.netns(containerID)))
	return errors.Join(errs...)
}

// setAddr gives the link exactly this IPv4 address.
func setAddr(h *netlink.Handle, link netlink.Link, want netip.Prefix) error {
	has, err := retried(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	found := false
	for _, a := range has {
		if p, ok := prefixOf(a.IPNet); ok && p == want {
			found = true
		} else if err := h.AddrDel(link, &a); err != nil {
			return fmt.Errorf("delete address %s: %w", a.IPNet, err)
		}
	}
	if found {
		return nil
	}
	addr := &netlink.Addr{
		IPNet:     &net.IPNet{IP: want.Addr().AsSlice(), Mask: net.CIDRMask(want.Bits(), 32)},
		Broadcast: lastOf(want).AsSlice(),
	}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s: %w", want, err)
	}
	return nil
}
