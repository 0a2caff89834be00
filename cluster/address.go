// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// advertiseAddr is the host:port other nodes are told: want, or the address
// listened on, whose unspecified host is replaced by one of this machine's.
// A want without a port gets the port listened on.
func advertiseAddr(want string, listening net.Addr, local func() (netip.Addr, error)) (string, error) {
	lhost, lport, err := net.SplitHostPort(listening.String())
	if err != nil {
		return "", err
	}
	if want != "" {
		host, port, err := net.SplitHostPort(want)
		if err != nil {
			host, port = want, lport
		}
		if port == "0" {
			port = lport
		}
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			return "", fmt.Errorf("%s is no address that other nodes could reach: choose another with --advertise-addr", want)
		}
		return net.JoinHostPort(host, port), nil
	}
	if ip, err := netip.ParseAddr(lhost); err != nil || !ip.IsUnspecified() {
		return net.JoinHostPort(lhost, lport), nil
	}
	ip, err := local()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(ip.String(), lport), nil
}

// givenAddr is the address to advertise that an operator gave a command, which
// may also be an interface of this machine, as in Docker; "" is none.
func givenAddr(ctx context.Context, given string) (string, error) {
	if given == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(given)
	if err != nil {
		host, port = given, ""
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%s: %q is no port", given, port)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return given, nil
	}
	if ifi, err := net.InterfaceByName(host); err == nil {
		addrs, err := ifi.Addrs()
		if err != nil {
			return "", fmt.Errorf("addresses of interface %s: %w", host, err)
		}
		ip := firstGlobal(addrs)
		switch {
		case !ip.IsValid():
			return "", fmt.Errorf("interface %s has no address to advertise", host)
		case port == "":
			return ip.String(), nil
		}
		return net.JoinHostPort(ip.String(), port), nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachBound)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
		return "", fmt.Errorf("%s is no address to advertise, no interface of this machine, and no name that is known", host)
	}
	return given, nil
}

// localAddr is this machine's first global address, IPv4 before IPv6; the
// loopback's where there is none, which is enough for a cluster of one.
func localAddr() (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find an address to advertise: %w", err)
	}
	if ip := firstGlobal(addrs); ip.IsValid() {
		return ip, nil
	}
	return netip.MustParseAddr("127.0.0.1"), nil
}

// firstGlobal is the first global one of the addresses, IPv4 before IPv6.
func firstGlobal(addrs []net.Addr) (first netip.Addr) {
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		if p.Addr().Is4() {
			return p.Addr()
		}
		if !first.IsValid() {
			first = p.Addr()
		}
	}
	return first
}
