// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"satld/network/nettest"
	"satld/redirect"
)

// lab is a host with two bridges, two tasks on the first, one on the second,
// and a neighbour at 192.0.2.9 that sees the host as 192.0.2.1.
type lab struct {
	r               *Redirector
	a, b, other     *nettest.NS
	remote          *nettest.NS
	addrA, addrB    netip.Addr
	subnet, foreign redirect.Subnet
}

func newLab(t testing.TB) *lab {
	t.Helper()
	nettest.Require(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("SKIPPED: nft is not installed")
	}
	nettest.Forget(t)
	r, err := New(Config{Table: fmt.Sprintf("satl_test%d", os.Getpid())})
	nettest.Must(t, err)
	t.Cleanup(func() {
		if err := r.Clear(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l := &lab{
		r: r, a: nettest.New(t), b: nettest.New(t), other: nettest.New(t), remote: nettest.New(t),
		addrA: netip.MustParseAddr("10.88.0.2"), addrB: netip.MustParseAddr("10.88.0.3"),
		subnet:  redirect.Subnet{Bridge: "nf0", Prefix: netip.MustParsePrefix("10.88.0.0/20")},
		foreign: redirect.Subnet{Bridge: "nf1", Prefix: netip.MustParsePrefix("10.88.16.0/20")},
	}
	for _, s := range []redirect.Subnet{l.subnet, l.foreign} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = s.Bridge
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		nettest.Must(t, netlink.LinkAdd(bridge))
		t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
		nettest.Must(t, netlink.AddrAdd(bridge, &netlink.Addr{IPNet: &net.IPNet{IP: s.Gateway().AsSlice(), Mask: net.CIDRMask(s.Prefix.Bits(), 32)}}))
		nettest.Must(t, netlink.LinkSetUp(bridge))
		nettest.Must(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+s.Bridge+"/route_localnet", []byte("1"), 0o644))
	}
	nettest.Must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
	l.a.Join(t, "va", "nf0", netip.Prefix{}, netip.PrefixFrom(l.addrA, 20), l.subnet.Gateway())
	l.b.Join(t, "vb", "nf0", netip.Prefix{}, netip.PrefixFrom(l.addrB, 20), l.subnet.Gateway())
	l.other.Join(t, "vo", "nf1", netip.Prefix{}, netip.MustParsePrefix("10.88.16.2/20"), l.foreign.Gateway())
	l.remote.Join(t, "vr", "", netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.9/24"), netip.MustParseAddr("192.0.2.1"))
	for ns, name := range map[*nettest.NS]string{l.a: "a", l.b: "b", l.other: "o", l.remote: "r"} {
		ns.Serve(t, "0.0.0.0:80", name)
		ns.ServeUDP(t, "0.0.0.0:80", name)
	}
	return l
}

func (l *lab) rules(pools ...redirect.Pool) redirect.Rules {
	return redirect.Rules{Pools: pools, Subnets: []redirect.Subnet{l.subnet, l.foreign}}
}

func (l *lab) apply(t testing.TB, pools ...redirect.Pool) {
	t.Helper()
	nettest.Must(t, l.r.Apply(t.Context(), l.rules(pools...)))
}

func (l *lab) pool(proto string, members ...netip.Addr) redirect.Pool {
	p := redirect.Pool{Proto: proto, Published: 18081}
	for _, m := range members {
		p.Members = append(p.Members, netip.AddrPortFrom(m, 80))
	}
	return p
}

// everyWay is where a client can come from, and what it dials.
func (l *lab) everyWay() map[string]func(proto string) (string, error) {
	ask := func(ns *nettest.NS, addr string) func(string) (string, error) {
		return func(proto string) (string, error) { return ns.Ask(proto+"4", addr) }
	}
	return map[string]func(string) (string, error){
		"host to 127.0.0.1":              ask(nil, "127.0.0.1:18081"),
		"host to its address":            ask(nil, "192.0.2.1:18081"),
		"host to the gateway":            ask(nil, "10.88.0.1:18081"),
		"remote":                         ask(l.remote, "192.0.2.1:18081"),
		"task to the host's address":     ask(l.a, "192.0.2.1:18081"),
		"task to its gateway":            ask(l.b, "10.88.0.1:18081"),
		"task of another network":        ask(l.other, "192.0.2.1:18081"),
		"task of another to its gateway": ask(l.other, "10.88.16.1:18081"),
	}
}

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
}

func nft(t testing.TB, script string) string {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s", err, out)
	}
	return string(out)
}

func ruleset(t testing.TB, table string) string {
	t.Helper()
	out, err := exec.Command("nft", "-a", "list", "table", "ip", table).CombinedOutput()
	if err != nil {
		return ""
	}
	return string(out)
}
