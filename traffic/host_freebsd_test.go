// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"satld/forward"
	"satld/network"
	"satld/network/jailtest"
	"satld/pf"
	"satld/platform/command"
	"satld/redirect"
)

func TestMain(m *testing.M) { jailtest.Main(m) }

// The remote client's network, and the ports published here.
var (
	hostEnd   = netip.MustParsePrefix("10.67.250.1/24")
	remoteEnd = netip.MustParsePrefix("10.67.250.2/24")
)

const webPort, dnsPort = 18080, 18053

// host is the real thing: network, pf, forward and a Table over them, on the
// FreeBSD host itself, with names and anchors of the test's own.
type host struct {
	*Table
	net    *network.Manager
	filter *pf.Redirector
	remote *jailtest.Jail
	jails  map[byte]*jailtest.Jail
}

// both is what satld has on FreeBSD: pf, and the forwarder for the host itself.
type both struct {
	*pf.Redirector
	local *forward.Forwarder
}

func (b both) Apply(ctx context.Context, r redirect.Rules) error {
	return errors.Join(b.local.Apply(ctx, r), b.Redirector.Apply(ctx, r))
}

func (b both) Cut(ctx context.Context, f []redirect.Flow) error {
	return errors.Join(b.local.Cut(ctx, f), b.Redirector.Cut(ctx, f))
}

func newHost(t *testing.T) *host {
	t.Helper()
	jailtest.Require(t)
	if out, err := jailtest.Run("sysctl", "-n", "net.inet.ip.forwarding"); err != nil || strings.TrimSpace(out) != "1" {
		t.Skipf("SKIPPED: needs net.inet.ip.forwarding=1: %s %v", out, err)
	}
	slow := func(ctx context.Context, c command.Command) (string, error) {
		c.Bound = time.Minute // a guest may be emulated, on a busy machine
		return command.Run(ctx, c)
	}
	m, err := network.Open(t.Context(), network.Config{StateDir: t.TempDir(), Name: "nth1", Pool: netip.MustParsePrefix("10.67.0.0/17")})
	jailtest.Must(t, err)
	n := &host{net: m, jails: map[byte]*jailtest.Jail{}}
	t.Cleanup(func() {
		for _, j := range n.jails {
			_ = j.Remove() // it may be gone already
		}
		for begun := time.Now(); ; time.Sleep(time.Second) {
			err := m.Destroy(context.Background())
			if err == nil {
				return
			}
			if !errdefs.IsUnavailable(err) || time.Since(begun) > 3*time.Minute {
				t.Error(err)
				return
			}
		}
	})
	filter, err := pf.New(t.Context(), pf.Config{Suffix: m.Mark(), Group: m.Group(), Uplinks: m.Uplinks, Run: slow})
	if err != nil && strings.Contains(err.Error(), "pf") {
		t.Skip("SKIPPED: ", err)
	}
	jailtest.Must(t, err)
	n.filter = filter
	local := forward.New(forward.Config{Addrs: func(ctx context.Context) ([]netip.Addr, error) {
		if seen, err := filter.FiltersLocal(ctx); seen || err != nil {
			return nil, err
		}
		return pf.HostAddrs()
	}})
	n.remote = jailtest.New(t, "nthRemote")
	n.remote.Join(t, "950", hostEnd, remoteEnd)
	n.Table = New(Config{Redirector: both{filter, local}, Subnets: func() (out []redirect.Subnet) {
		for _, x := range m.List() {
			out = append(out, redirect.Subnet{Bridge: x.Bridge, Prefix: x.Subnet, Internal: x.Internal, Own: x.Gateway, Overlay: x.VNI != 0})
		}
		return out
	}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- n.Run(ctx) }()
	go func() { done <- local.Run(ctx) }()
	n.Settled()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, <-done, filter.Clear(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return n
}

// run attaches a jail that answers with its number and is a member that starts.
func (n *host) run(t *testing.T, i byte, change ...func(*Member)) Member {
	t.Helper()
	m := task(i, change...)
	m.Ports = []Port{{Proto: "tcp", Published: webPort, Target: 80}, {Proto: "udp", Published: dnsPort, Target: 53}}
	j := jailtest.New(t, fmt.Sprintf("nthT%d", i))
	m.ContainerID = j.Name
	_, at, err := n.net.Attach(t.Context(), j.Name, network.Anywhere(network.DefaultID))
	jailtest.Must(t, err)
	m.Endpoints = []Endpoint{{NetworkID: network.DefaultID, Addr: at[0].Addr.Addr()}}
	n.jails[i] = j
	j.Serve(t, "tcp4", "0.0.0.0:80", fmt.Sprint(i))
	j.Serve(t, "udp4", "0.0.0.0:53", fmt.Sprint(i))
	return m
}

// from is who may ask, and where (cases/pool.md, pool-7).
func (n *host) from(sister *jailtest.Jail) map[string]func(t *testing.T) (string, error) {
	ask := func(j *jailtest.Jail, addr netip.Addr) func(t *testing.T) (string, error) {
		return func(t *testing.T) (string, error) { return j.Ask(t, fmt.Sprintf("%s:%d", addr, webPort)) }
	}
	home, _ := n.net.Get(network.DefaultID)
	return map[string]func(t *testing.T) (string, error){
		"remote":                  ask(n.remote, hostEnd.Addr()),
		"host by 127.0.0.1":       ask(nil, netip.MustParseAddr("127.0.0.1")),
		"host by its own address": ask(nil, hostEnd.Addr()),
		"task by the gateway":     ask(sister, home.Gateway),
		"task by the host":        ask(sister, hostEnd.Addr()),
	}
}

func (n *host) expect(t *testing.T, what string, sister *jailtest.Jail, want ...string) {
	t.Helper()
	for name, ask := range n.from(sister) {
		got, err := ask(t)
		if err != nil {
			got = "refused"
			if !strings.Contains(err.Error(), "refused") {
				got = err.Error()
			}
		}
		found := false
		for _, w := range want {
			found = found || got == w
		}
		if !found {
			t.Errorf("%s: %s hears %q, want %v", what, name, got, want)
		}
	}
}

// One service from its start to its end as every kind of client sees it, a task
// that calls itself and its sister through the published port included.
func TestHostLife(t *testing.T) {
	n := newHost(t)
	a, b := n.run(t, 2), n.run(t, 3)
	must(t, n.Put(t.Context(), a))
	must(t, n.Put(t.Context(), b))
	time.Sleep(2 * time.Second) // a Put that does not serve is not waited for
	n.expect(t, "starting", n.jails[2], "refused")
	a.Serving, b.Serving = true, true
	must(t, n.Put(t.Context(), a))
	for range 3 {
		n.expect(t, "one serves", n.jails[2], "2")
	}
	must(t, n.Put(t.Context(), b))
	n.expect(t, "both serve", n.jails[2], "2", "3")
	heard := map[string]int{}
	for range 4 {
		got, err := n.remote.Ask(t, fmt.Sprintf("%s:%d", hostEnd.Addr(), webPort))
		must(t, err)
		heard[got]++
	}
	if heard["2"] != 2 || heard["3"] != 2 {
		t.Errorf("in turn: %v", heard)
	}
	// A stranger that made itself a route does not reach tasks.
	if got, err := n.remote.Ask(t, a.Endpoints[0].Addr.String()+":80"); err == nil {
		t.Errorf("past the published port: %q", got)
	}
	if got, err := (*jailtest.Jail)(nil).Ask(t, a.Endpoints[0].Addr.String()+":80"); got != "2" {
		t.Errorf("the host to the task's own address: %q, %v", got, err)
	}
	if same, err := n.filter.Audit(t.Context()); !same || err != nil {
		t.Errorf("audit: %t, %v", same, err)
	}
	must(t, n.Withdraw(t.Context(), a.ContainerID))
	for range 3 {
		n.expect(t, "one withdrawn", n.jails[2], "3")
	}
	must(t, n.Withdraw(t.Context(), b.ContainerID))
	n.expect(t, "both withdrawn", n.jails[2], "refused")
	must(t, n.Remove(t.Context(), a.ContainerID))
	must(t, n.Remove(t.Context(), b.ContainerID))
	if out, err := jailtest.Run("pfctl", "-a", "satl/rdr_"+n.net.Mark(), "-s", "nat"); err != nil || strings.Contains(out, "rdr pass") {
		t.Errorf("left: %s, %v", out, err)
	}
}

// pool-1: one UDP socket follows the pool; pool-2: a connection outlives the
// withdrawal of its member and ends with it; pool-9: others' stay.
func TestHostFlows(t *testing.T) {
	n := newHost(t)
	a, b := n.run(t, 2, serving), n.run(t, 3, serving)
	must(t, n.Put(t.Context(), a))
	web, dns := fmt.Sprintf("%s:%d", hostEnd.Addr(), webPort), fmt.Sprintf("%s:%d", hostEnd.Addr(), dnsPort)
	udp, err := n.remote.Talk(t, "udp4", dns)
	must(t, err)
	hears := func(want string) {
		t.Helper()
		var got string
		var err error
		// States are cut after the change was confirmed; the machine may be slow.
		for begun := time.Now(); time.Since(begun) < 30*time.Second; {
			if got, err = udp.Say("?"); got == want {
				t.Logf("UDP hears %s after %s", want, time.Since(begun).Round(100*time.Millisecond))
				return
			}
		}
		t.Errorf("UDP hears %q, %v, want %s", got, err, want)
	}
	hears("2")
	var talks []*jailtest.Talk
	for _, from := range []*jailtest.Jail{n.remote, nil} {
		k, err := from.Talk(t, "tcp4", web)
		if k.Hello != "2" {
			t.Fatal(k.Hello, err)
		}
		talks = append(talks, k)
	}
	must(t, n.Put(t.Context(), b))
	must(t, n.Withdraw(t.Context(), a.ContainerID))
	hears("3")
	for i, k := range talks {
		if got, err := k.Say("still there?"); got != "still there?" {
			t.Errorf("connection %d of the withdrawn member: %q, %v", i, got, err)
		}
	}
	for range 10 {
		if got, err := n.remote.Ask(t, web); got != "3" {
			t.Errorf("a new one: %q, %v", got, err)
		}
	}
	states := func(addr netip.Addr) string {
		out, err := jailtest.Run("pfctl", "-ss")
		must(t, err)
		var found []string
		for line := range strings.Lines(out) {
			if strings.Contains(line, addr.String()+":") {
				found = append(found, line)
			}
		}
		return strings.Join(found, "")
	}
	for begun := time.Now(); strings.Contains(states(a.Endpoints[0].Addr), " udp "); time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("UDP states of the withdrawn member:\n%s", states(a.Endpoints[0].Addr))
		}
	}
	must(t, n.jails[2].Remove()) // its process is gone
	must(t, n.Remove(t.Context(), a.ContainerID))
	for begun := time.Now(); states(a.Endpoints[0].Addr) != ""; time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("left:\n%s", states(a.Endpoints[0].Addr))
		}
	}
	for i, k := range talks {
		if got, err := k.Say("anybody?"); err == nil {
			t.Errorf("connection %d of a member that is gone: %q", i, got)
		}
	}
	must(t, n.Withdraw(t.Context(), b.ContainerID))
	for begun := time.Now(); ; {
		got, err := udp.Say("?")
		if err != nil {
			break
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("UDP with nobody there: %q", got)
		}
	}
	must(t, n.Put(t.Context(), b))
	hears("3")
}

// pool-6: what was flushed is back within one audit; pool-5: the main ruleset
// is byte for byte what it was.
func TestHostFlushIsRepaired(t *testing.T) {
	n := newHost(t)
	main := func() string {
		rules, err := jailtest.Run("pfctl", "-s", "rules")
		must(t, err)
		nat, err := jailtest.Run("pfctl", "-s", "nat")
		must(t, err)
		return rules + nat
	}
	was := main()
	must(t, n.Put(t.Context(), n.run(t, 2, serving)))
	dump := func() string {
		out, err := jailtest.Run("pfctl", "-a", "satl/rdr_"+n.net.Mark(), "-s", "nat")
		if err != nil {
			return err.Error()
		}
		return out
	}
	before := dump()
	_, err := jailtest.Run("pfctl", "-a", "satl/rdr_"+n.net.Mark(), "-F", "all")
	must(t, err)
	begun := time.Now()
	for dump() != before {
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("not repaired: %s", dump())
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("repaired after %s", time.Since(begun).Round(100*time.Millisecond))
	n.expect(t, "repaired", n.jails[2], "2")
	for i := range 20 {
		m := task(9, serving, func(m *Member) { m.Ports[0].Published, m.Ports[1].Published = uint16(19000+i%2), uint16(19100+i%3) })
		m.Endpoints[0].Addr = netip.MustParseAddr("10.67.0.99")
		must(t, n.Put(t.Context(), m))
	}
	if now := main(); now != was {
		t.Errorf("the main ruleset became\n%s\nwas\n%s", now, was)
	}
}
