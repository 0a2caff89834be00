// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"satld/internal/slowday"
	"satld/network/nettest"
	"satld/redirect"
)

// TestEveryWayIn: cases/pool.md, pool-7, and round robin.
func TestEveryWayIn(t *testing.T) {
	l := newLab(t)
	for _, proto := range []string{"tcp", "udp"} {
		l.apply(t, l.pool(proto, l.addrA, l.addrB))
		for way, ask := range l.everyWay() {
			got := map[string]int{}
			for range 10 {
				name, err := ask(proto)
				if err != nil {
					t.Errorf("%s, %s: %v", proto, way, err)
					break
				}
				got[name]++
			}
			if got["a"] != 5 || got["b"] != 5 {
				t.Errorf("%s, %s: %v, want 5 of each", proto, way, got)
			}
		}
	}
}

// TestEmptyPoolRefuses: at once, and does not fall through to a host's server.
func TestEmptyPoolRefuses(t *testing.T) {
	l := newLab(t)
	server, err := net.Listen("tcp4", "0.0.0.0:18081")
	nettest.Must(t, err)
	defer server.Close()
	for _, proto := range []string{"tcp", "udp"} {
		l.apply(t, l.pool(proto))
		for way, ask := range l.everyWay() {
			start := time.Now()
			_, err := ask(proto)
			if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(start) > slowday.Of(time.Second) {
				t.Errorf("%s, %s: %v after %s", proto, way, err, time.Since(start))
			}
		}
	}
	// The host's own outgoing connection from that very port still works.
	l.apply(t, l.pool("udp"))
	c, err := net.DialUDP("udp4", &net.UDPAddr{Port: 18081}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 80})
	nettest.Must(t, err)
	defer c.Close()
	if got, err := nettest.Exchange(c); got != "r" {
		t.Errorf("from the published port outwards: %q, %v", got, err)
	}
}

func TestHostIP(t *testing.T) {
	l := newLab(t)
	one := l.pool("tcp", l.addrA)
	one.HostIP = netip.MustParseAddr("192.0.2.1")
	l.apply(t, one)
	ways := l.everyWay()
	if got, err := ways["remote"]("tcp"); got != "a" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ways["host to 127.0.0.1"]("tcp"); err == nil {
		t.Errorf("127.0.0.1 is served by %q", got)
	}
	// The narrower pool wins, also when one of the two is empty.
	l.apply(t, one, l.pool("tcp", l.addrB))
	if got, err := ways["remote"]("tcp"); got != "a" {
		t.Errorf("both: %q, %v", got, err)
	}
	if got, err := ways["host to 127.0.0.1"]("tcp"); got != "b" {
		t.Errorf("both: %q, %v", got, err)
	}
	l.apply(t, one, l.pool("tcp"))
	if got, err := ways["remote"]("tcp"); got != "a" {
		t.Errorf("wide one empty: %q, %v", got, err)
	}
	one.Members = nil
	l.apply(t, one, l.pool("tcp", l.addrB))
	if got, err := ways["remote"]("tcp"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("narrow one empty: %q, %v", got, err)
	}
	if got, err := ways["host to 127.0.0.1"]("tcp"); got != "b" {
		t.Errorf("narrow one empty: %q, %v", got, err)
	}
}

func TestDifferentTargets(t *testing.T) {
	l := newLab(t)
	l.b.Serve(t, "0.0.0.0:8000", "b8000")
	p := redirect.Pool{Proto: "tcp", Published: 18081, Members: ports("10.88.0.2:80", "10.88.0.3:8000")}
	l.apply(t, p)
	got := map[string]int{}
	for range 10 {
		name, _ := l.remote.Ask("tcp4", "192.0.2.1:18081")
		got[name]++
	}
	if got["a"] != 5 || got["b8000"] != 5 {
		t.Errorf("%v", got)
	}
}

func TestNetworksAreApart(t *testing.T) {
	l := newLab(t)
	l.apply(t)
	host, err := net.Listen("tcp4", "127.0.0.1:7777")
	nettest.Must(t, err)
	defer host.Close()
	// A server of the host on loopback; tasks could get there only by
	// sending 127.0.0.1 out of their own interface.
	sendLoopbackOut(t, l.a, net.IPv4(10, 88, 0, 1))
	// Dropped, so each waits for its time to be over: all at once.
	var waiting sync.WaitGroup
	refused := func(what string, ns *nettest.NS, addr string) {
		waiting.Go(func() {
			if got, err := ns.Ask("tcp4", addr); err == nil {
				t.Errorf("%s: reached %q", what, got)
			}
		})
	}
	reached := func(what string, ns *nettest.NS, addr, want string) {
		t.Helper()
		if got, err := ns.Ask("tcp4", addr); got != want {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	refused("between networks", l.a, "10.88.16.2:80")
	refused("a neighbour with a route", l.remote, "10.88.0.2:80")
	waiting.Go(func() {
		if c, err := l.a.Dial("tcp4", "127.0.0.1:7777"); err == nil {
			c.Close()
			t.Error("a task reached the host's loopback")
		}
	})
	reached("within a network", l.b, "10.88.0.2:80", "a")
	reached("from the host", nil, "10.88.0.2:80", "a")
	reached("way out", l.b, "192.0.2.9:80", "r")
	waiting.Wait()
	// The neighbour cannot know 10.88/16: it saw the host's own address.
	l.foreign.Internal = true
	l.apply(t, l.pool("tcp", l.addrA))
	refused("out of an internal network", l.other, "192.0.2.9:80")
	refused("into an internal network", l.b, "10.88.16.2:80")
	reached("the host into an internal network", nil, "10.88.16.2:80", "o")
	waiting.Wait()
}

// sendLoopbackOut has the namespace send what is for 127/8 out through eth0,
// instead of keeping it.
func sendLoopbackOut(t *testing.T, ns *nettest.NS, gateway net.IP) {
	t.Helper()
	nettest.Must(t, ns.Do(func() error {
		return errors.Join(
			os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0o644),
			func() error {
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				eth, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				for _, dst := range []string{"127.0.0.0/8", "127.0.0.1/32"} {
					_ = netlink.RouteDel(&netlink.Route{LinkIndex: lo.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Dst: cidr(dst)})
				}
				return netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: gateway, Dst: cidr("127.0.0.0/8")})
			}())
	}))
}

// A port that is published on 127.0.0.1 is for the host alone: a neighbour that
// sends 127.0.0.1 to it over the wire is not redirected.
func TestLoopbackIsForTheHost(t *testing.T) {
	l := newLab(t)
	local := l.pool("tcp", l.addrA)
	local.HostIP = netip.MustParseAddr("127.0.0.1")
	l.apply(t, local)
	if got, err := l.everyWay()["host to 127.0.0.1"]("tcp"); got != "a" {
		t.Errorf("the host: %q, %v", got, err)
	}
	sendLoopbackOut(t, l.remote, net.IPv4(192, 0, 2, 1))
	for what, p := range map[string]redirect.Pool{"127.0.0.1": local, "every address": l.pool("tcp", l.addrA)} {
		l.apply(t, p)
		c, err := l.remote.Dial("tcp4", "127.0.0.1:18081")
		if err == nil {
			c.Close()
		}
		// Its own stack may refuse the answer: what counts is where it was sent.
		flows, listErr := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		nettest.Must(t, listErr)
		for _, f := range flows {
			if f.Forward.DstIP.IsLoopback() && f.Forward.SrcIP.Equal(net.IPv4(192, 0, 2, 9)) && f.Reverse.SrcIP.Equal(net.IP(l.addrA.AsSlice())) {
				t.Errorf("published on %s: a neighbour was redirected: %s, %v", what, f, err)
			}
		}
	}
}

// TestPublishedDNSPort: a service on port 53 takes no question of a task to
// its gateway.
func TestPublishedDNSPort(t *testing.T) {
	l := newLab(t)
	for _, members := range [][]netip.AddrPort{ports("10.88.0.2:80"), nil} {
		l.apply(t, redirect.Pool{Proto: "udp", Published: 53, Members: members})
		c, err := net.ListenPacket("udp4", "10.88.0.1:53")
		nettest.Must(t, err)
		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = c.WriteTo([]byte("dns"), from)
			}
		}()
		if got, err := l.b.Ask("udp4", "10.88.0.1:53"); got != "dns" {
			t.Errorf("members %v: %q, %v", members, got, err)
		}
		c.Close()
	}
}
