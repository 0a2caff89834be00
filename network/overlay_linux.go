// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// tunnel implements links: a VXLAN link as a port of the network's bridge. It
// learns nothing and floods nothing: the forwarding entries say which frame
// goes to which node, and questions for an address are answered on the spot
// from the neighbour entries, so that nothing unknown ever leaves the node.
func (l *netlinkLinks) tunnel(_ context.Context, n Network, local netip.Addr, peers []Peer) error {
	name := l.mark.tunnel(n.ID)
	link, err := l.host.LinkByName(name)
	if err != nil && !notFound(err) {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if v, ok := link.(*netlink.Vxlan); err == nil && (!ok || !v.SrcAddr.Equal(local.AsSlice()) || uint32(v.VxlanId) != n.VNI) {
		if err := l.deleteOurs(name); err != nil {
			return err
		}
		link = nil
	}
	if err != nil {
		link = nil
	}
	if link == nil {
		if len(peers) == 0 {
			return nil
		}
		if link, err = l.addTunnel(n, name, local); err != nil {
			return err
		}
	}
	if err := l.plugTunnel(n, link); err != nil {
		return err
	}
	return l.syncPeers(link.Attrs().Index, peers)
}

func (l *netlinkLinks) addTunnel(n Network, name string, local netip.Addr) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, n.mtu()
	vxlan := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(n.VNI), SrcAddr: local.AsSlice(), Port: vxlanPort, Proxy: true}
	if err := l.add(vxlan, l.mark.label("n", n.ID)); err != nil {
		return nil, fmt.Errorf("add vxlan %s: %w", name, err)
	}
	_ = setSysctl("net/ipv6/conf/"+name+"/disable_ipv6", "1")
	return l.host.LinkByName(name)
}

// plugTunnel makes the link a port of the network's bridge, up.
func (l *netlinkLinks) plugTunnel(n Network, link netlink.Link) error {
	bridge, err := l.host.LinkByName(n.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.Bridge, err)
	}
	if link.Attrs().MTU != n.mtu() {
		if err := l.host.LinkSetMTU(link, n.mtu()); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", link.Attrs().Name, n.mtu(), err)
		}
	}
	if link.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := l.host.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("put %s into bridge %s: %w", link.Attrs().Name, n.Bridge, err)
		}
		if err := l.host.LinkSetLearning(link, false); err != nil {
			return fmt.Errorf("switch learning off on %s: %w", link.Attrs().Name, err)
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := l.host.LinkSetUp(link); err != nil {
			return fmt.Errorf("bring up %s: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

// entry is one neighbour or forwarding entry, as far as it is ours to say.
type entry struct{ ip, mac string }

// syncPeers makes the link's entries exactly those of the peers: the
// neighbour (which MAC has the address), where its frames go (which node), and
// that the bridge sends them to this port.
func (l *netlinkLinks) syncPeers(index int, peers []Peer) error {
	neighbours, remotes, ports := make(map[entry]bool), make(map[entry]bool), make(map[entry]bool)
	for _, p := range peers {
		mac := macOf(p.Addr)
		neighbours[entry{p.Addr.String(), mac}] = true
		remotes[entry{p.Host.String(), mac}] = true
		ports[entry{"", mac}] = true
	}
	has, err := retried(func() ([]netlink.Neigh, error) { return l.host.NeighList(index, unix.AF_INET) })
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	frames, err := retried(func() ([]netlink.Neigh, error) { return l.host.NeighList(index, unix.AF_BRIDGE) })
	if err != nil {
		return fmt.Errorf("list forwarding entries: %w", err)
	}
	for _, e := range append(has, frames...) {
		key, want := entry{"", e.HardwareAddr.String()}, neighbours
		switch {
		case e.Family == unix.AF_INET:
			key.ip = e.IP.String()
		case e.Flags&netlink.NTF_SELF != 0:
			key.ip, want = e.IP.String(), remotes
		default:
			want = ports
		}
		atPort := e.Family == unix.AF_BRIDGE && e.Flags&netlink.NTF_SELF == 0
		if e.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 || atPort && e.State&netlink.NUD_PERMANENT != 0 {
			continue // the kernel's own: what comes and goes, and the port's own address
		}
		if want[key] {
			delete(want, key)
			continue
		}
		if err := l.host.NeighDel(&e); err != nil && !notFound(err) && err != unix.ENOENT {
			return fmt.Errorf("delete entry %s %s: %w", key.ip, key.mac, err)
		}
	}
	for e := range neighbours {
		if err := l.setNeighbour(index, unix.AF_INET, 0, e); err != nil {
			return err
		}
	}
	for e := range remotes {
		if err := l.setNeighbour(index, unix.AF_BRIDGE, netlink.NTF_SELF, e); err != nil {
			return err
		}
	}
	for e := range ports {
		if err := l.setNeighbour(index, unix.AF_BRIDGE, netlink.NTF_MASTER, e); err != nil {
			return err
		}
	}
	return nil
}

func (l *netlinkLinks) setNeighbour(index, family, flags int, e entry) error {
	mac, err := net.ParseMAC(e.mac)
	if err != nil {
		return err
	}
	n := &netlink.Neigh{LinkIndex: index, Family: family, Flags: flags, State: netlink.NUD_PERMANENT, HardwareAddr: mac}
	if flags == netlink.NTF_MASTER {
		n.State = netlink.NUD_NOARP // a permanent one would be the bridge's own address
	}
	if e.ip != "" {
		n.IP = net.ParseIP(e.ip).To4()
	}
	if family == unix.AF_INET {
		n.Type = unix.RTN_UNICAST
	}
	if err := l.host.NeighSet(n); err != nil {
		return fmt.Errorf("set entry %s %s: %w", e.ip, e.mac, err)
	}
	return nil
}

func (l *netlinkLinks) carrierMTU(_ context.Context, local netip.Addr) (int, error) {
	addrs, err := retried(func() ([]netlink.Addr, error) { return l.host.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return 0, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); !ok || p.Addr() != local {
			continue
		}
		link, err := l.host.LinkByIndex(a.LinkIndex)
		if err != nil || link.Attrs().Flags&net.FlagLoopback != 0 {
			return 0, err
		}
		return link.Attrs().MTU, nil
	}
	return 0, nil
}

// resize sets the inner ends first: a bridge takes on the least MTU of its
// ports, and nobody is to send what does not pass.
func (l *netlinkLinks) resize(_ context.Context, containerID string, wires []wire) error {
	path := l.netns(containerID)
	if !isNetns(path) {
		return nil
	}
	ns, err := openNetns(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open rtnetlink in %s: %w", path, err)
	}
	defer inside.Close()
	for _, w := range wires {
		if err := setMTU(inside, w.Interface, w.MTU); err != nil {
			return err
		}
		if err := setMTU(l.host, l.mark.veth(containerID, w.Interface), w.MTU); err != nil {
			return err
		}
	}
	return nil
}

// setMTU sets a link's MTU, if there is such a link.
func setMTU(h *netlink.Handle, name string, mtu int) error {
	link, err := h.LinkByName(name)
	if notFound(err) || err == nil && link.Attrs().MTU == mtu {
		return nil
	}
	if err == nil {
		err = h.LinkSetMTU(link, mtu)
	}
	if err != nil {
		return fmt.Errorf("set the MTU of %s to %d: %w", name, mtu, err)
	}
	return nil
}
