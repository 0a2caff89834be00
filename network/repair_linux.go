// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

func (l *netlinkLinks) faults(_ context.Context, nets []Network, wires map[string][]wire) ([]fault, error) {
	all, err := retried(func() ([]netlink.Link, error) { return l.host.LinkList() })
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	byName := make(map[string]netlink.Link, len(all))
	for _, link := range all {
		byName[link.Attrs().Name] = link
	}
	out, err := l.bridgeFaults(nets, byName)
	if err != nil {
		return nil, err
	}
	for id, of := range wires {
		for _, w := range of {
			name := l.mark.veth(id, w.Interface)
			link := byName[name]
			if link == nil && isNetns(l.netns(id)) {
				out = append(out, linkGone(name, id))
			}
			if link == nil || !l.ours(link) {
				continue
			}
			a := link.Attrs()
			if bridge := byName[w.Bridge]; bridge == nil || a.MasterIndex != bridge.Attrs().Index {
				out = append(out, fault{What: fmt.Sprintf("link %s was not in bridge %s", a.Name, w.Bridge), ContainerID: id})
			}
			if a.Flags&net.FlagUp == 0 {
				out = append(out, fault{What: fmt.Sprintf("link %s was down", a.Name), ContainerID: id})
			}
		}
	}
	return out, nil
}

func (l *netlinkLinks) bridgeFaults(nets []Network, byName map[string]netlink.Link) (out []fault, err error) {
	if len(nets) == 0 {
		return nil, nil
	}
	addrs, err := retried(func() ([]netlink.Addr, error) { return l.host.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, n := range nets {
		link := byName[n.Bridge]
		if link == nil {
			out = append(out, bridgeIs(n, "was gone"))
			continue
		}
		if !l.ours(link) {
			out = append(out, bridgeIs(n, "was another's")) // making it says the same
			continue
		}
		want := netip.PrefixFrom(n.Gateway, n.Subnet.Bits())
		has := slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
			p, ok := prefixOf(a.IPNet)
			return ok && p == want && a.LinkIndex == link.Attrs().Index
		})
		if !has {
			out = append(out, bridgeIs(n, "had lost its address "+want.String()))
		}
		if link.Attrs().Flags&net.FlagUp == 0 {
			out = append(out, bridgeIs(n, "was down"))
		}
	}
	return out, nil
}

// join puts the outer ends that are there back on their bridges.
func (l *netlinkLinks) join(_ context.Context, containerID string, wires []wire) error {
	for _, w := range wires {
		name := l.mark.veth(containerID, w.Interface)
		outer, err := l.host.LinkByName(name)
		if notFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		bridge, err := l.host.LinkByName(w.Bridge)
		if err != nil {
			return fmt.Errorf("find bridge %s: %w", w.Bridge, err)
		}
		if err := l.plug(outer, bridge); err != nil {
			return err
		}
		if err := errors.Join(syncLink(name), syncLink(w.Bridge)); err != nil {
			return err
		}
	}
	return nil
}

// plug has the outer end of a pair in its bridge and up.
func (l *netlinkLinks) plug(outer, bridge netlink.Link) error {
	if outer.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := l.host.LinkSetMaster(outer, bridge); err != nil {
			return fmt.Errorf("have %s join bridge %s: %w", outer.Attrs().Name, bridge.Attrs().Name, err)
		}
	}
	if err := l.host.LinkSetUp(outer); err != nil {
		return fmt.Errorf("bring up %s: %w", outer.Attrs().Name, err)
	}
	return l.hairpin(outer)
}
