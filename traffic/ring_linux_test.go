// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"satld/dns"
	"satld/network"
	"satld/network/nettest"
	"satld/nft"
	"satld/redirect"
)

// node is the real thing: network, nftables, DNS and a Table over them, on a
// host of the test's own.
type node struct {
	*Table
	net    *network.Manager
	filter *nft.Redirector
	remote *nettest.NS
	ns     map[byte]*nettest.NS
}

func newNode(t testing.TB) *node {
	t.Helper()
	nettest.Require(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("SKIPPED: nft is not installed")
	}
	nettest.Forget(t)
	m, err := network.Open(t.Context(), network.Config{StateDir: t.TempDir(), Name: "tr0"})
	nettest.Must(t, err)
	filter, err := nft.New(nft.Config{Table: "satl_" + m.Mark()})
	nettest.Must(t, err)
	tab := New(Config{Redirector: filter, Subnets: func() (out []redirect.Subnet) {
		for _, n := range m.List() {
			out = append(out, redirect.Subnet{Bridge: n.Bridge, Prefix: n.Subnet, Internal: n.Internal})
		}
		return out
	}})
	names := dns.New(tab, dns.Config{ResolvConf: "/nonexistent"})
	home, _ := m.Get(network.DefaultID)
	nettest.Must(t, names.Set([]dns.Listen{{Addr: netip.AddrPortFrom(home.Gateway, 53), Subnet: home.Subnet}}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- tab.Run(ctx) }()
	go func() { done <- names.Run(ctx) }()
	tab.Settled()
	t.Cleanup(func() {
		stop()
		err := errors.Join(<-done, <-done, tab.Clear(context.Background()), m.Destroy(context.Background()), m.Close())
		if err != nil {
			t.Error(err)
		}
		if out, _ := exec.Command("nft", "list", "ruleset").Output(); strings.Contains(string(out), "satl_") {
			t.Errorf("rules left:\n%s", out)
		}
	})
	n := &node{Table: tab, net: m, filter: filter, remote: nettest.New(t), ns: map[byte]*nettest.NS{}}
	n.remote.Join(t, "trr", "", netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("192.0.2.9/24"), netip.MustParseAddr("192.0.2.1"))
	return n
}

// run attaches a container that answers with its number on 80/tcp and 53/udp
// and returns it as a member that is starting.
func (n *node) run(t testing.TB, i byte, change ...func(*Member)) Member {
	t.Helper()
	m := task(i, change...)
	ns, at, err := n.net.Attach(t.Context(), m.ContainerID, network.Anywhere(network.DefaultID))
	nettest.Must(t, err)
	m.Endpoints = []Endpoint{{NetworkID: network.DefaultID, Addr: at[0].Addr.Addr()}}
	n.ns[i] = nettest.Open(t, ns)
	n.ns[i].Serve(t, "0.0.0.0:80", fmt.Sprint(i))
	n.ns[i].ServeUDP(t, "0.0.0.0:53", fmt.Sprint(i))
	return m
}

func (n *node) hear(t *testing.T, times int) (heard map[string]int) {
	t.Helper()
	heard = map[string]int{}
	for range times {
		for _, from := range []struct {
			ns   *nettest.NS
			addr string
		}{{nil, "127.0.0.1:8080"}, {n.remote, "192.0.2.1:8080"}} {
			got, err := from.ns.Ask("tcp4", from.addr)
			if errors.Is(err, syscall.ECONNREFUSED) {
				got = "refused"
			} else if err != nil {
				got = err.Error()
			}
			heard[got]++
		}
	}
	return heard
}

func lookup(t *testing.T, n *node, i byte, name string) []string {
	t.Helper()
	var out []string
	nettest.Must(t, n.ns[i].Do(func() error {
		q := new(mdns.Msg)
		q.SetQuestion(name, mdns.TypeA)
		r, _, err := (&mdns.Client{Timeout: 2 * time.Second}).Exchange(q, "10.88.0.1:53")
		if err != nil {
			return err
		}
		for _, rr := range r.Answer {
			out = append(out, rr.(*mdns.A).A.String())
		}
		slices.Sort(out)
		return nil
	}))
	return out
}

// TestLife: one service from its start to its end, over everything real
// (cases/gate-dns.md, gate-dns-2; cases/pool.md, pool-1).
func TestLife(t *testing.T) {
	n := newNode(t)
	a, b := n.run(t, 2), n.run(t, 3)
	step := func(what string, times int, want map[string]int) {
		t.Helper()
		if got := n.hear(t, times); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	must(t, n.Put(t.Context(), a))
	must(t, n.Put(t.Context(), b))
	time.Sleep(100 * time.Millisecond) // a Put that does not serve is not waited for
	step("starting", 3, map[string]int{"refused": 6})
	if got := lookup(t, n, 2, "web."); len(got) > 0 {
		t.Errorf("starting: DNS says %v", got)
	}
	if got := lookup(t, n, 2, "web.2."); !slices.Equal(got, []string{"10.88.0.2"}) {
		t.Errorf("a starting task finds itself at %v", got)
	}
	a.Serving, b.Serving = true, true
	must(t, n.Put(t.Context(), a))
	step("one serves", 5, map[string]int{"2": 10})
	// A task that reaches itself through its own published port; the host of
	// this test may have br_netfilter or not, both must work.
	for _, where := range []string{"192.0.2.1:8080", "10.88.0.1:8080"} {
		if got, err := n.ns[2].Ask("tcp4", where); got != "2" {
			t.Errorf("a task to itself by %s: %q, %v", where, got, err)
		}
	}
	must(t, n.Put(t.Context(), b))
	step("both serve", 5, map[string]int{"2": 5, "3": 5})
	if got := lookup(t, n, 3, "tasks.web."); !slices.Equal(got, []string{"10.88.0.2", "10.88.0.3"}) {
		t.Errorf("both serve: DNS says %v", got)
	}
	udp, err := n.remote.Dial("udp4", "192.0.2.1:53")
	nettest.Must(t, err)
	defer udp.Close()
	first, err := nettest.Exchange(udp)
	nettest.Must(t, err)
	gone, stays := a, b
	if first == "3" {
		gone, stays = b, a
	}
	must(t, n.Withdraw(t.Context(), gone.ContainerID))
	step("one withdrawn", 5, map[string]int{fmt.Sprint(stays.Slot): 10})
	// The datagrams of one socket, from at most a second later on.
	// One answer of the withdrawn member may still be under way and is lost.
	deadline, buf := time.Now().Add(time.Second), make([]byte, 10)
	for {
		_, _ = udp.Write([]byte("?"))
		_ = udp.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		k, err := udp.Read(buf)
		if string(buf[:k]) == fmt.Sprint(stays.Slot) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("UDP still goes to %q, %v", buf[:k], err)
		}
	}
	must(t, n.Remove(t.Context(), gone.ContainerID))
	must(t, n.Withdraw(t.Context(), stays.ContainerID))
	step("both withdrawn", 3, map[string]int{"refused": 6})
	must(t, n.Remove(t.Context(), stays.ContainerID))
	if got := n.Pools(); len(got) > 0 {
		t.Errorf("pools left: %v", got)
	}
}

// TestFlushIsRepaired: cases/pool.md, pool-6, and within how long.
func TestFlushIsRepaired(t *testing.T) {
	n := newNode(t)
	m := n.run(t, 2, serving)
	must(t, n.Put(t.Context(), m))
	list := func() string {
		out, _ := exec.Command("nft", "list", "table", "ip", "satl_"+n.net.Mark()).Output()
		return string(out)
	}
	before := list()
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	start := time.Now()
	for list() != before {
		if time.Since(start) > auditEvery+nft.Timeout {
			t.Fatalf("not repaired:\n%s", list())
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("repaired after %s", time.Since(start).Round(time.Millisecond))
	if got := n.hear(t, 2); got["2"] != 4 {
		t.Errorf("%v", got)
	}
}

// TestRestartIsNotNoticed: a daemon ends, its tasks go on, the next life finds
// them; clients see nothing of it.
func TestRestartIsNotNoticed(t *testing.T) {
	n := newNode(t)
	m := n.run(t, 2, serving)
	must(t, n.Put(t.Context(), m))
	stop, bad := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(bad)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := n.remote.Ask("tcp4", "192.0.2.1:8080"); got != "2" {
				bad <- fmt.Sprintf("%q, %v", got, err)
				return
			}
		}
	}()
	for range 3 {
		next := New(Config{Redirector: n.filter, Subnets: n.cfg.Subnets})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- next.Run(ctx) }()
		time.Sleep(50 * time.Millisecond) // finding its tasks takes time
		must(t, next.Put(t.Context(), m))
		next.Settled()
		must(t, next.Put(t.Context(), m))
		end()
		must(t, <-done)
	}
	close(stop)
	if text, failed := <-bad; failed {
		t.Error(text)
	}
}

// TestHundredServices: cases/pool.md, pool-10: removing one while adding another.
func TestHundredServices(t *testing.T) {
	n := newNode(t)
	many := func(i int) Member {
		return Member{
			ContainerID: fmt.Sprint("many", i), Name: fmt.Sprint("many", i), ServiceID: fmt.Sprint("s", i), Serving: true, Process: true,
			Endpoints: []Endpoint{{NetworkID: network.DefaultID, Addr: netip.AddrFrom4([4]byte{10, 88, 1, byte(i)})}},
			Ports:     []Port{{Proto: "tcp", Published: uint16(20000 + i), Target: 80}},
		}
	}
	for i := range 99 {
		m := many(i)
		m.Serving = false // not waited for, so that they go together
		must(t, n.Put(t.Context(), m))
	}
	start := time.Now()
	must(t, n.Put(t.Context(), many(99)))
	t.Logf("100 services written in %s", time.Since(start).Round(time.Millisecond))
	if err := n.Health(); err != nil {
		t.Error(err)
	}
	done := make(chan error)
	go func() { done <- n.Remove(t.Context(), "many99") }()
	must(t, n.Put(t.Context(), many(100)))
	must(t, <-done)
	if same, err := n.filter.Audit(t.Context()); !same || err != nil {
		t.Errorf("%t, %v", same, err)
	}
}

// BenchmarkWithdraw prints how long a withdrawal takes until nftables
// confirmed it, with ten services published.
func BenchmarkWithdraw(b *testing.B) {
	n := newNode(b)
	for i := byte(2); i < 12; i++ {
		m := task(i, serving)
		m.ServiceID = fmt.Sprint("s", i)
		m.Ports = []Port{{Proto: "tcp", Published: 8000 + uint16(i), Target: 80}}
		nettest.Must(b, n.Put(b.Context(), m))
	}
	m := task(2, serving)
	var took []time.Duration
	for b.Loop() {
		nettest.Must(b, n.Put(b.Context(), m))
		start := time.Now()
		nettest.Must(b, n.Withdraw(b.Context(), m.ContainerID))
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50/withdrawal")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99/withdrawal")
}
