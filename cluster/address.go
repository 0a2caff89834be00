// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"net"
	"net/netip"
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

// localAddr is this machine's first global address, IPv4 before IPv6; the
// loopback's where there is none, which is enough for a cluster of one.
func localAddr() (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find an address to advertise: %w", err)
	}
	best := netip.MustParseAddr("127.0.0.1")
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		if p.Addr().Is4() {
			return p.Addr(), nil
		}
		if best.IsLoopback() {
			best = p.Addr()
		}
	}
	return best, nil
}
