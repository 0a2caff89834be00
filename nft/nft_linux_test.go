// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
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

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
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

// TestForeignTableUntouched: cases/pool.md, pool-5 and pool-10, for nftables.
func TestForeignTableUntouched(t *testing.T) {
	l := newLab(t)
	nft(t, `table ip foreign {
	set blocked {
		type ipv4_addr
		elements = { 203.0.113.1, 203.0.113.2 }
	}
	chain input {
		type filter hook input priority 0; policy accept;
		ip saddr @blocked counter drop
		tcp dport 18081 accept
	}
	chain pools {
	}
}
`)
	t.Cleanup(func() { nft(t, "delete table ip foreign\n") })
	before := ruleset(t, "foreign")
	for i := range 100 {
		if i%2 == 0 {
			l.apply(t, l.pool("tcp", l.addrA))
		} else {
			l.apply(t, l.pool("udp", l.addrB))
		}
	}
	nettest.Must(t, l.r.Clear(t.Context()))
	if after := ruleset(t, "foreign"); after != before || before == "" {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestAuditSeesDrift(t *testing.T) {
	l := newLab(t)
	audit := func(what string, want bool) {
		t.Helper()
		if same, err := l.r.Audit(t.Context()); same != want || err != nil {
			t.Errorf("%s: %t, %v", what, same, err)
		}
	}
	audit("before any Apply", true)
	p := []redirect.Pool{l.pool("tcp", l.addrA, l.addrB), l.pool("udp")}
	p[1].HostIP = netip.MustParseAddr("192.0.2.1")
	table := l.r.table
	l.apply(t, p...)
	audit("after Apply", true)
	whole := ruleset(t, table)
	for what, change := range map[string]string{
		"everything flushed": "flush ruleset\n",
		"table flushed":      "flush table ip " + table + "\n",
		"table deleted":      "delete table ip " + table + "\n",
		"a rule added":       "add rule ip " + table + " forward drop\n",
		"a rule inserted":    "insert rule ip " + table + " pools tcp dport 18081 accept\n",
		"a chain added":      "add chain ip " + table + " x\nadd rule ip " + table + " x drop\n",
		"the policy changed": "add chain ip " + table + " forward { policy drop; }\n",
	} {
		nft(t, change)
		audit(what, false)
		nettest.Must(t, l.r.Apply(t.Context(), l.rules(p...)))
		if what == "a chain added" {
			// Not a chain of ours; emptied, so it does nothing.
			nft(t, "delete chain ip "+table+" x\n")
		}
		audit(what+", repaired", true)
		if now := ruleset(t, table); stripHandles(now) != stripHandles(whole) {
			t.Errorf("%s: repaired to\n%s", what, now)
		}
	}
	// A chain of ours that hangs elsewhere, as an older version might leave.
	nft(t, "delete table ip "+table+"\n")
	nft(t, "table ip "+table+" {\n chain forward { type filter hook forward priority 10; policy drop;\n }\n}\n")
	audit("elsewhere", false)
	nettest.Must(t, l.r.Apply(t.Context(), l.rules(p...)))
	audit("elsewhere, repaired", true)
	// Another daemon's table is not ours to judge.
	other, err := New(Config{Table: table + "b"})
	nettest.Must(t, err)
	nettest.Must(t, other.Apply(t.Context(), l.rules()))
	audit("another daemon's table", true)
	nettest.Must(t, other.Clear(t.Context()))
	nettest.Must(t, other.Clear(t.Context())) // twice is fine
	audit("another daemon left", true)
}

func stripHandles(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		text, _, _ := strings.Cut(line, " # handle")
		out = append(out, strings.TrimRight(text, "\n"))
	}
	return strings.Join(out, "\n")
}

// TestNoGap: while the same pool is written again and again no connection is
// refused or strays.
func TestNoGap(t *testing.T) {
	l := newLab(t)
	l.apply(t, l.pool("tcp", l.addrA))
	stop, bad := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(bad)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := l.remote.Ask("tcp4", "192.0.2.1:18081"); got != "a" {
				bad <- fmt.Sprintf("connection %d: %q, %v\n%s\nnot redirected:\n%s\nresets sent by the host %s, by the task %s",
					n, got, err, ruleset(t, l.r.table), notRedirected(), resets(nil), resets(l.a))
				return
			}
		}
	}()
	for i := range 100 {
		p := []redirect.Pool{l.pool("tcp", l.addrA)}
		if i%2 == 0 {
			p = append(p, l.pool("udp", l.addrB))
		}
		l.apply(t, p...)
	}
	close(stop)
	if text, failed := <-bad; failed {
		t.Error(text)
	}
}

// notRedirected are the TCP connections to the published port that the kernel
// takes for the host's own.
func notRedirected() string {
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	out := ""
	for _, c := range all {
		if c.Forward.Protocol == unix.IPPROTO_TCP && c.Forward.DstPort == 18081 && c.Forward.DstIP.Equal(c.Reverse.SrcIP) {
			out += fmt.Sprintf("%v, left %d s, %+v\n", c, c.TimeOut, c.ProtoInfo)
		}
	}
	return fmt.Sprintf("%s(of %d, %v)", out, len(all), err)
}

// resets is what a namespace counts of TCP, resets sent among it; nil is the
// host.
func resets(ns *nettest.NS) string {
	var data []byte
	read := func() (err error) { data, err = os.ReadFile("/proc/thread-self/net/snmp"); return err }
	var err error
	if ns == nil {
		err = read()
	} else {
		err = ns.Do(read)
	}
	if err != nil {
		return err.Error()
	}
	out := ""
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "Tcp:") {
			out += line
		}
	}
	return out
}

func TestForwardDropIsReported(t *testing.T) {
	l := newLab(t)
	l.apply(t)
	if w := l.r.Warnings(t.Context(), []string{"nf0"}); len(w) > 0 {
		t.Errorf("on a clean host: %v", w)
	}
	nft(t, "table ip filter {\n chain DOCKER-USER {\n }\n chain FORWARD { type filter hook forward priority 0; policy drop;\n jump DOCKER-USER\n }\n}\n")
	t.Cleanup(func() { nft(t, "delete table ip filter\n") })
	w := l.r.Warnings(t.Context(), []string{"nf0", "nf1"})
	if len(w) != 2 || !strings.Contains(w[0], "iptables -I DOCKER-USER -i nf0 -j ACCEPT") {
		t.Errorf("%v", w)
	}
	if got, err := l.b.Ask("tcp4", "192.0.2.9:80"); err == nil {
		t.Errorf("the drop that is warned about does not drop: %q", got)
	}
	nft(t, "add rule ip filter DOCKER-USER iifname \"nf0\" counter accept\nadd rule ip filter DOCKER-USER oifname \"nf0\" counter accept\n")
	if w := l.r.Warnings(t.Context(), []string{"nf0"}); len(w) > 0 {
		t.Errorf("after the operator let it pass: %v", w)
	}
	if got, err := l.b.Ask("tcp4", "192.0.2.9:80"); got != "r" {
		t.Errorf("after the operator let it pass: %q, %v", got, err)
	}
}

func BenchmarkApply100(b *testing.B) {
	l := newLab(b)
	r := manyRules(100)
	r.Subnets = []redirect.Subnet{l.subnet, l.foreign}
	for b.Loop() {
		nettest.Must(b, l.r.Apply(b.Context(), r))
	}
}

func BenchmarkAudit100(b *testing.B) {
	l := newLab(b)
	nettest.Must(b, l.r.Apply(b.Context(), manyRules(100)))
	for b.Loop() {
		if same, err := l.r.Audit(b.Context()); !same || err != nil {
			b.Fatal(same, err)
		}
	}
}
