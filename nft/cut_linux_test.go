// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"satld/network/nettest"
	"satld/redirect"
)

// TestUDPFollowsThePool: cases/pool.md, pool-1: one socket, never closed.
func TestUDPFollowsThePool(t *testing.T) {
	l := newLab(t)
	keep := func(p redirect.Pool) {
		t.Helper()
		l.apply(t, p)
		nettest.Must(t, l.r.Cut(t.Context(), []redirect.Flow{{Proto: p.Proto, Published: p.Published, Keep: p.Members}}))
	}
	clients := map[string]net.Conn{}
	for name, d := range map[string]struct {
		ns   *nettest.NS
		addr string
	}{"remote": {l.remote, "192.0.2.1:18081"}, "host": {nil, "127.0.0.1:18081"}, "task": {l.other, "192.0.2.1:18081"}} {
		c, err := d.ns.Dial("udp4", d.addr)
		nettest.Must(t, err)
		defer c.Close()
		clients[name] = c
	}
	expect := func(step, want string) {
		t.Helper()
		for name, c := range clients {
			for range 4 {
				got, err := nettest.Exchange(c)
				switch {
				case want == "" && err != nil:
				case want == "" || err != nil || !strings.Contains(want, got):
					t.Errorf("%s: %s hears %q, %v, want %q", step, name, got, err, want)
				}
			}
		}
	}
	// Before there is any rule: an entry that is not redirected at all.
	nettest.Must(t, l.r.Apply(t.Context(), l.rules()))
	expect("no rule", "")
	keep(l.pool("udp", l.addrA))
	expect("0 to A", "a")
	keep(l.pool("udp"))
	expect("A to nothing", "")
	keep(l.pool("udp", l.addrB))
	expect("nothing to B", "b")
	keep(l.pool("udp", l.addrA, l.addrB))
	expect("B to A and B", "b") // the flow stays with its member
	keep(l.pool("udp", l.addrA))
	expect("A and B to A", "a")
	l.apply(t)
	nettest.Must(t, l.r.Cut(t.Context(), []redirect.Flow{{Proto: "udp", Published: 18081}}))
	expect("service removed", "")
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	nettest.Must(t, err)
	for _, f := range flows {
		if f.Forward.Protocol == unix.IPPROTO_UDP && f.Reverse.SrcIP.Equal(l.addrA.AsSlice()) && f.Forward.DstPort == 18081 {
			t.Errorf("left: %s", f)
		}
	}
}

// TestLateAnswer: an answer of a withdrawn member that was under way while its
// flows were cut must not win the flow back.
func TestLateAnswer(t *testing.T) {
	l := newLab(t)
	for _, port := range []int{53, 40053} {
		var slow net.PacketConn
		nettest.Must(t, l.a.Do(func() (err error) { slow, err = net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", port)); return err }))
		l.b.ServeUDP(t, fmt.Sprintf("0.0.0.0:%d", port), "b")
		at := func(a netip.Addr) redirect.Pool {
			return redirect.Pool{Proto: "udp", Published: uint16(port), Members: []netip.AddrPort{netip.AddrPortFrom(a, uint16(port))}}
		}
		l.apply(t, at(l.addrA))
		client, err := l.remote.Dial("udp4", fmt.Sprintf("192.0.2.1:%d", port))
		nettest.Must(t, err)
		_, err = client.Write([]byte("?"))
		nettest.Must(t, err)
		buf := make([]byte, 10)
		_, from, err := slow.ReadFrom(buf)
		nettest.Must(t, err)
		l.apply(t, at(l.addrB))
		nettest.Must(t, l.r.Cut(t.Context(), []redirect.Flow{{Proto: "udp", Published: uint16(port), Keep: at(l.addrB).Members}}))
		_, err = slow.WriteTo([]byte("a, late"), from)
		nettest.Must(t, err)
		// The late answer is lost or comes; what is asked from now on is b's.
		for i := range 5 {
			if got, err := nettest.Exchange(client); got != "b" {
				t.Errorf("port %d, datagram %d: %q, %v", port, i, got, err)
			}
		}
		client.Close()
		slow.Close()
	}
	// A client's own port is kept on the way out.
	var c net.Conn
	nettest.Must(t, l.a.Do(func() (err error) {
		c, err = net.DialUDP("udp4", &net.UDPAddr{Port: 45454}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 80})
		return err
	}))
	defer c.Close()
	_, err := nettest.Exchange(c)
	nettest.Must(t, err)
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	nettest.Must(t, err)
	kept := false
	for _, f := range flows {
		kept = kept || f.Forward.SrcPort == 45454 && f.Reverse.DstPort == 45454 && f.Reverse.DstIP.Equal(net.IPv4(192, 0, 2, 1))
	}
	if !kept {
		t.Error("the client's port was changed")
	}
}

// TestTCPDrains: cases/pool.md, pool-2 and pool-9: established connections go
// on until the process is gone, new ones go to the others from the first on,
// and a connection to something else survives everything.
func TestTCPDrains(t *testing.T) {
	l := newLab(t)
	var echo net.Listener
	nettest.Must(t, l.a.Do(func() (err error) { echo, err = net.Listen("tcp4", "0.0.0.0:81"); return err }))
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 10)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					_, _ = c.Write(buf[:n])
				}
			}()
		}
	}()
	say := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	a, b := netip.AddrPortFrom(l.addrA, 81), netip.AddrPortFrom(l.addrB, 80)
	p := redirect.Pool{Proto: "tcp", Published: 18081, Members: []netip.AddrPort{a}}
	l.apply(t, p)
	conn, err := l.remote.Dial("tcp4", "192.0.2.1:18081")
	nettest.Must(t, err)
	defer conn.Close()
	direct, err := (*nettest.NS)(nil).Dial("tcp4", "10.88.0.2:81") // not through the port
	nettest.Must(t, err)
	defer direct.Close()
	nettest.Must(t, errors.Join(say(conn), say(direct)))

	p.Members = []netip.AddrPort{b}
	l.apply(t, p)
	nettest.Must(t, l.r.Cut(t.Context(), []redirect.Flow{{Proto: "tcp", Published: 18081, Keep: p.Members}}))
	for range 100 {
		if got, err := l.remote.Ask("tcp4", "192.0.2.1:18081"); got != "b" {
			t.Fatalf("a new connection hears %q, %v", got, err)
		}
	}
	if err := say(conn); err != nil {
		t.Errorf("the established one while draining: %v", err)
	}
	nettest.Must(t, l.r.Cut(t.Context(), []redirect.Flow{{Proto: "tcp", Published: 18081, Backend: a, All: true}}))
	if err := say(conn); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after its process: %v, want a reset", err)
	}
	if err := say(direct); err != nil {
		t.Errorf("an unrelated connection: %v", err)
	}
}

// TestHalfOpen: a connection that nobody answered yet moves on to a member.
func TestHalfOpen(t *testing.T) {
	l := newLab(t)
	nowhere := netip.MustParseAddrPort("10.88.0.99:80")
	l.apply(t, redirect.Pool{Proto: "tcp", Published: 18081, Members: []netip.AddrPort{nowhere}})
	got := make(chan string, 1)
	go func() {
		// The SYN to nowhere is sent again after a second.
		c, err := l.remote.Dial("tcp4", "192.0.2.1:18081")
		if err != nil {
			got <- err.Error()
			return
		}
		defer c.Close()
		text, _ := nettest.Exchange(c)
		got <- text
	}()
	synSeen := func() bool {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		if err != nil {
			return false
		}
		for _, f := range flows {
			if f.Forward.DstPort == 18081 && f.Reverse.SrcIP.Equal(nowhere.Addr().AsSlice()) {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(900 * time.Millisecond); !synSeen(); {
		if time.Now().After(end) {
			t.Fatal("no half-open entry seen")
		}
	}
	p := l.pool("tcp", l.addrB)
	l.apply(t, p)
	nettest.Must(t, l.r.Cut(t.Context(), []redirect.Flow{{Proto: "tcp", Published: 18081, Keep: p.Members}}))
	if text := <-got; text != "b" {
		t.Errorf("%q", text)
	}
}

// BenchmarkCut: one removed member among ten thousand entries.
func BenchmarkCut(b *testing.B) {
	l := newLab(b)
	l.apply(b, l.pool("udp", l.addrA))
	for i := range 10000 {
		nettest.Must(b, netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &netlink.ConntrackFlow{
			FamilyType: unix.AF_INET,
			Forward:    netlink.IPTuple{SrcIP: net.IPv4(198, 51, 100, 1), DstIP: net.IPv4(192, 0, 2, 1), SrcPort: uint16(20000 + i), DstPort: 9, Protocol: unix.IPPROTO_UDP},
			Reverse:    netlink.IPTuple{SrcIP: net.IPv4(192, 0, 2, 1), DstIP: net.IPv4(198, 51, 100, 1), SrcPort: 9, DstPort: uint16(20000 + i), Protocol: unix.IPPROTO_UDP},
			TimeOut:    600,
		}))
	}
	for b.Loop() {
		nettest.Must(b, l.r.Cut(b.Context(), []redirect.Flow{{Proto: "udp", Published: 18081, Keep: ports("10.88.0.3:80")}}))
	}
}
