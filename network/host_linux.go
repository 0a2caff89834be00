// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (l *netlinkLinks) boot(context.Context) (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// warnings has nothing to say: prepare sets what is needed.
func (l *netlinkLinks) warnings(context.Context) []string { return nil }

func (l *netlinkLinks) used(context.Context) ([]usedPrefix, error) {
	all, err := retried(func() ([]netlink.Link, error) { return l.host.LinkList() })
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names, ours := make(map[int]string), make(map[int]bool)
	for _, link := range all {
		a := link.Attrs()
		names[a.Index], ours[a.Index] = a.Name, l.ours(link)
	}
	var out []usedPrefix
	addrs, err := retried(func() ([]netlink.Addr, error) { return l.host.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok && !ours[a.LinkIndex] {
			out = append(out, usedPrefix{p.Masked(), "interface " + names[a.LinkIndex]})
		}
	}
	// Every table: a VPN's policy routes count as well.
	routes, err := retried(func() ([]netlink.Route, error) {
		return l.host.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		p, ok := prefixOf(r.Dst)
		if !ok || p.Bits() == 0 || p.Addr().IsMulticast() || ours[r.LinkIndex] {
			continue
		}
		by := "a route"
		if name := names[r.LinkIndex]; name != "" {
			by = "a route through interface " + name
		}
		out = append(out, usedPrefix{p, by})
	}
	return out, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones), ok && addr.Unmap().Is4()
}

func (l *netlinkLinks) owned(context.Context) ([]ownedLink, error) {
	all, err := retried(func() ([]netlink.Link, error) { return l.host.LinkList() })
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var out []ownedLink
	for _, link := range all {
		if kind, id, ok := l.mark.parse(link.Attrs().Alias); ok {
			out = append(out, ownedLink{Name: link.Attrs().Name, Kind: kind, ID: id})
		} else if l.ours(link) {
			out = append(out, ownedLink{Name: link.Attrs().Name})
		}
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), l.mark.nsPrefix()); ok {
			out = append(out, ownedLink{Name: e.Name(), Kind: "c", ID: id})
		}
	}
	return out, nil
}

func (l *netlinkLinks) exists(_ context.Context, name string) (exists, ours bool, err error) {
	link, err := l.host.LinkByName(name)
	if notFound(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	return true, l.ours(link), nil
}

func (l *netlinkLinks) ours(link netlink.Link) bool {
	a := link.Attrs()
	_, _, marked := l.mark.parse(a.Alias)
	return marked || a.Alias == "" && a.Group != 0 && a.Group == l.mark.linkGroup()
}

// retried repeats a listing that the kernel changed under our feet.
func retried[T any](list func() ([]T, error)) (out []T, err error) {
	for range 5 {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, err
}

func notFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// setSysctl writes a value of this namespace unless it is there already: in a
// container /proc/sys may be read-only and right.
func setSysctl(key, value string) error {
	path := "/proc/sys/" + key
	if has, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(has)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", strings.ReplaceAll(key, "/", "."), value, err)
	}
	return nil
}
