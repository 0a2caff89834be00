// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"

	"satld/internal/slowday"
	"satld/network/nettest"
)

// host opens a Manager on the test's own host; everything goes with the test.
func host(t testing.TB, name, pool string) (*Manager, Config) {
	t.Helper()
	nettest.Require(t)
	cfg := Config{StateDir: t.TempDir(), Name: name, Pool: netip.MustParsePrefix(pool), netnsDir: filepath.Join(t.TempDir(), "netns")}
	m, err := Open(t.Context(), cfg)
	nettest.Must(t, err)
	t.Cleanup(func() {
		// Not t.Context: it is done by now.
		if err := m.Destroy(background()); err != nil {
			t.Error(err)
		}
		if entries, _ := os.ReadDir(cfg.netnsDir); len(entries) > 0 {
			t.Errorf("namespaces left: %v", entries)
		}
		if links, err := m.links.owned(background()); err != nil || len(links) > 0 {
			t.Errorf("left: %v, %v", links, err)
		}
		_ = m.Close()
	})
	return m, cfg
}

func interfaces(t *testing.T) []string {
	t.Helper()
	all, err := netlink.LinkList()
	nettest.Must(t, err)
	var out []string
	for _, l := range all {
		out = append(out, fmt.Sprint(l.Attrs().Name, l.Attrs().Index, l.Attrs().Alias))
	}
	slices.Sort(out)
	return out
}

func TestContainersReachEachOther(t *testing.T) {
	m, _ := host(t, "nt0", "10.88.0.0/16")
	back, err := m.Ensure(t.Context(), Network{ID: "back", Name: "back", Internal: true})
	nettest.Must(t, err)
	ns1, at1, err := m.Attach(t.Context(), "c1", Anywhere("back", DefaultID))
	nettest.Must(t, err)
	ns2, at2, err := m.Attach(t.Context(), "c2", Anywhere("back"))
	nettest.Must(t, err)
	c1, c2 := nettest.Open(t, ns1), nettest.Open(t, ns2)
	c1.Serve(t, fmt.Sprintf("%s:80", at1[0].Addr.Addr()), "one")
	if got, err := c2.Ask("tcp4", fmt.Sprintf("%s:80", at1[0].Addr.Addr())); got != "one" {
		t.Errorf("c2 to c1: %q, %v", got, err)
	}
	// A container reaches itself by its own address and by lo.
	c2.Serve(t, "0.0.0.0:81", "self")
	for _, addr := range []string{"127.0.0.1:81", fmt.Sprintf("%s:81", at2[0].Addr.Addr())} {
		if got, err := c2.Ask("tcp4", addr); got != "self" {
			t.Errorf("c2 to %s: %q, %v", addr, got, err)
		}
	}
	// The host listens on the gateway; the internal network reaches it there.
	l, err := net.Listen("tcp4", fmt.Sprintf("%s:82", back.Gateway))
	nettest.Must(t, err)
	defer l.Close()
	if c, err := c2.Dial("tcp4", l.Addr().String()); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	nettest.Must(t, c1.Do(func() error {
		eth1, err := net.InterfaceByName("eth1")
		if err != nil {
			return err
		}
		if eth1.HardwareAddr.String() != at1[1].MAC {
			t.Errorf("MAC %s, want %s", eth1.HardwareAddr, at1[1].MAC)
		}
		addrs, err := eth1.Addrs()
		if len(addrs) != 1 || addrs[0].String() != at1[1].Addr.String() {
			t.Errorf("eth1 has %v, want %s alone", addrs, at1[1].Addr)
		}
		return err
	}))
	routes := func(c *nettest.NS) (via []string) {
		nettest.Must(t, c.Do(func() error {
			all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
			for _, r := range all {
				if r.Gw != nil {
					via = append(via, r.Gw.String())
				}
			}
			return err
		}))
		return via
	}
	if via := routes(c1); !slices.Equal(via, []string{"10.88.0.1"}) {
		t.Errorf("c1 routes through %v", via)
	}
	if via := routes(c2); len(via) > 0 {
		t.Errorf("the internal network has a way out: %v", via)
	}
}

func TestAttachRepairs(t *testing.T) {
	m, cfg := host(t, "nt0", "10.88.0.0/16")
	attach := func(id string) (string, Attachment) {
		t.Helper()
		ns, at, err := m.Attach(t.Context(), id, Anywhere(DefaultID))
		nettest.Must(t, err)
		return ns, at[0]
	}
	ns, first := attach("c1")
	before := interfaces(t)
	if ns2, again := attach("c1"); ns2 != ns || again != first || !slices.Equal(before, interfaces(t)) {
		t.Errorf("not idempotent: %v, %v", again, interfaces(t))
	}
	working := func(what string) {
		t.Helper()
		ns, at := attach("c1")
		if at != first {
			t.Errorf("%s: address %v became %v", what, first, at)
		}
		nettest.Open(t, ns).Serve(t, "0.0.0.0:80", what)
		if got, err := (*nettest.NS)(nil).Ask("tcp4", first.Addr.Addr().String()+":80"); got != what {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		// The listener's own namespace may stay; its port must not.
		nettest.Must(t, m.links.detach(background(), "c1", []wire{{Attachment: first}}, 0))
	}
	working("whole")
	// A crash after the namespace was made and before the link.
	f, err := openNetns(filepath.Join(cfg.netnsDir, m.mark.nsPrefix()+"c1"))
	nettest.Must(t, err)
	_ = f.Close()
	working("namespace alone")
	// A crash before the mount.
	nettest.Must(t, os.WriteFile(filepath.Join(cfg.netnsDir, m.mark.nsPrefix()+"c1"), nil, 0o444))
	working("name alone")
	// Somebody took the link away.
	attach("c1")
	nettest.Must(t, m.links.(*netlinkLinks).deleteOurs(m.mark.veth("c1", "eth0")))
	working("link gone")
	// Somebody took the bridge away: Open makes it again.
	attach("c1")
	nettest.Must(t, m.links.deleteLink(background(), "nt0"))
	again, err := Open(t.Context(), cfg)
	nettest.Must(t, err)
	defer again.Close()
	working("bridge gone")
}

func TestOpenAdoptsOwnBridge(t *testing.T) {
	m, cfg := host(t, "nt0", "10.88.0.0/16")
	_, at, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID))
	nettest.Must(t, err)
	before := interfaces(t)
	again, err := Open(t.Context(), cfg)
	nettest.Must(t, err)
	defer again.Close()
	if !slices.Equal(before, interfaces(t)) {
		t.Errorf("a restart changed the interfaces: %v, %v", before, interfaces(t))
	}
	if got := again.Attachments("c1"); !slices.Equal(got, at) {
		t.Errorf("%v, want %v", got, at)
	}
}

func TestTwoDaemons(t *testing.T) {
	a, cfg := host(t, "nt0", "10.88.0.0/16")
	b, _ := host(t, "nt1", "10.89.0.0/16")
	for _, m := range []*Manager{a, b} {
		_, _, err := m.Attach(t.Context(), "same", Anywhere(DefaultID))
		nettest.Must(t, err)
	}
	before := interfaces(t)
	for _, c := range []struct {
		name, pool string
		want       []string
	}{
		{"nt2", "10.88.0.0/16", []string{"nt0", "--network-pool"}},
		{"nt2", "10.0.0.0/8", []string{"--network-pool"}},
		{"nt0", "10.90.0.0/16", []string{"nt0", "--network-name"}},
		{"lo", "10.90.0.0/16", []string{"lo", "--network-name"}},
	} {
		m, err := Open(t.Context(), Config{StateDir: t.TempDir(), Name: c.name, Pool: netip.MustParsePrefix(c.pool), netnsDir: cfg.netnsDir})
		if err == nil {
			m.Close()
		}
		if !errdefs.IsConflict(err) {
			t.Errorf("%s %s: %v", c.name, c.pool, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s %s: %q lacks %s", c.name, c.pool, err, w)
			}
		}
	}
	if after := interfaces(t); !slices.Equal(before, after) {
		t.Errorf("refused daemons changed the host: %v, %v", before, after)
	}
	// One sweeping everything leaves the other's alone.
	nettest.Must(t, a.Sweep(t.Context(), nil))
	if len(a.Attachments("same")) != 0 || len(b.Attachments("same")) != 1 {
		t.Error("leases")
	}
	found, err := b.links.owned(background())
	nettest.Must(t, err)
	if len(found) != 3 { // bridge, link, namespace
		t.Errorf("the other daemon has %v", found)
	}
}

func TestSweepFindsStrays(t *testing.T) {
	m, cfg := host(t, "nt0", "10.88.0.0/16")
	for _, id := range []string{"lost", "kept"} {
		_, _, err := m.Attach(t.Context(), id, Anywhere(DefaultID))
		nettest.Must(t, err)
	}
	foreign := netlink.NewLinkAttrs()
	foreign.Name = "svforeign"
	nettest.Must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: foreign}))
	nettest.Must(t, netlink.LinkSetAlias(&netlink.Bridge{LinkAttrs: foreign}, "satl:00000000:c:lost"))
	t.Cleanup(func() { _ = netlink.LinkDel(&netlink.Bridge{LinkAttrs: foreign}) })
	// The daemon died between making a link and setting its alias.
	half := netlink.NewLinkAttrs()
	half.Name, half.Group = "svhalf", m.mark.linkGroup()
	nettest.Must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: half}))
	// The record is lost, the things are there.
	nettest.Must(t, os.Remove(filepath.Join(cfg.StateDir, "network", "leases.json")))
	again, err := Open(t.Context(), cfg)
	nettest.Must(t, err)
	defer again.Close()
	nettest.Must(t, again.Sweep(t.Context(), map[string]bool{"kept": true}))
	found, err := again.links.owned(background())
	nettest.Must(t, err)
	for _, f := range found {
		if f.ID == "lost" {
			t.Errorf("left %+v", f)
		}
	}
	if len(found) != 3 {
		t.Errorf("%v", found)
	}
	if _, err := netlink.LinkByName("svhalf"); err == nil {
		t.Error("the half-made link is left")
	}
	if _, err := netlink.LinkByName("svforeign"); err != nil {
		t.Errorf("another's interface is gone: %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	m, _ := host(t, "nt0", "10.88.0.0/16")
	const n = 30
	start := time.Now()
	var wg sync.WaitGroup
	addrs := make([]netip.Prefix, n)
	for i := range n {
		wg.Go(func() {
			_, at, err := m.Attach(t.Context(), fmt.Sprint("c", i), Anywhere(DefaultID))
			if err != nil {
				t.Error(err)
				return
			}
			addrs[i] = at[0].Addr
		})
	}
	wg.Wait()
	t.Logf("%d attached in %s", n, time.Since(start))
	slices.SortFunc(addrs, netip.Prefix.Compare)
	if len(slices.Compact(addrs)) != n {
		t.Errorf("an address twice: %v", addrs)
	}
}

// TestHostUntouched: what the host had before is the same after a Manager's
// whole life.
func TestHostUntouched(t *testing.T) {
	nettest.Require(t)
	routes := func() string {
		var b bytes.Buffer
		all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		nettest.Must(t, err)
		for _, r := range all {
			fmt.Fprintln(&b, r)
		}
		return b.String()
	}
	links, before := interfaces(t), routes()
	t.Run("life", func(t *testing.T) {
		m, _ := host(t, "nt0", "10.88.0.0/16")
		_, _, err := m.Attach(t.Context(), "c1", Anywhere(DefaultID))
		nettest.Must(t, err)
	})
	if !slices.Equal(links, interfaces(t)) || routes() != before {
		t.Errorf("left %v\n%s", interfaces(t), routes())
	}
}

func BenchmarkAttachDetach(b *testing.B) {
	m, _ := host(b, "nt0", "10.88.0.0/16")
	var attach, detach time.Duration
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint("c", i)
		t0 := time.Now()
		_, _, err := m.Attach(b.Context(), id, Anywhere(DefaultID))
		nettest.Must(b, err)
		t1 := time.Now()
		nettest.Must(b, m.Detach(b.Context(), id))
		attach, detach = attach+t1.Sub(t0), detach+time.Since(t1)
	}
	b.ReportMetric(float64(attach.Microseconds())/1000/float64(b.N), "ms/attach")
	b.ReportMetric(float64(detach.Microseconds())/1000/float64(b.N), "ms/detach")
}

// background is for clean-up, when the test's own context is done.
func background() context.Context { return context.Background() }

// TestFirstPacket: a container's links carry packets when Attach returns. When
// they do not, the first connection waits a second for its retransmission.
func TestFirstPacket(t *testing.T) {
	m, _ := host(t, "nt0", "10.88.0.0/16")
	for i := range 20 {
		id := fmt.Sprint("c", i)
		ns, at, err := m.Attach(t.Context(), id, Anywhere(DefaultID))
		nettest.Must(t, err)
		nettest.Open(t, ns).Serve(t, "0.0.0.0:80", "x")
		start := time.Now()
		_, err = (*nettest.NS)(nil).Ask("tcp4", at[0].Addr.Addr().String()+":80")
		if took := time.Since(start); err != nil || took > slowday.Of(900*time.Millisecond) {
			t.Errorf("container %d answered after %s: %v", i, took, err)
		}
		if i%2 == 1 {
			nettest.Must(t, m.Detach(t.Context(), id))
		}
	}
}
