// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"satld/network/nettest"
)

const (
	fin = 1
	syn = 2
	rst = 4
)

// segment is a TCP segment without data.
type segment struct {
	from, to netip.AddrPort
	flags    byte
}

func (s segment) bytes() []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, s.from.Port())
	binary.BigEndian.PutUint16(b[2:], s.to.Port())
	binary.BigEndian.PutUint32(b[4:], 1) // sequence number
	b[12], b[13], b[14] = 5<<4, s.flags, 4
	sum := uint32(unix.IPPROTO_TCP + len(b)) // of the pseudo header too (RFC 9293, 3.1)
	for _, part := range [][]byte{s.from.Addr().AsSlice(), s.to.Addr().AsSlice(), b} {
		for ; len(part) > 0; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

// wire is a raw socket of a namespace, which sees each segment that arrives.
type wire int

func newWire(t testing.TB, ns *nettest.NS) wire {
	t.Helper()
	var fd int
	nettest.Must(t, ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return err
	}))
	t.Cleanup(func() { unix.Close(fd) })
	nettest.Must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}))
	return wire(fd)
}

func (w wire) send(t testing.TB, s segment) {
	t.Helper()
	nettest.Must(t, unix.Sendto(int(w), s.bytes(), 0, &unix.SockaddrInet4{Addr: s.to.Addr().As4()}))
}

func (w wire) receive(t testing.TB) segment {
	t.Helper()
	b := make([]byte, 2000)
	n, _, err := unix.Recvfrom(int(w), b, 0)
	nettest.Must(t, err)
	ip := b[:n]
	tcp := ip[int(ip[0]&15)*4:]
	addr := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(ip[at : at+4])) }
	return segment{
		netip.AddrPortFrom(addr(12), binary.BigEndian.Uint16(tcp)),
		netip.AddrPortFrom(addr(16), binary.BigEndian.Uint16(tcp[2:])), tcp[13],
	}
}

// TestInvalidIsNoReset: what conntrack cannot place (here by its flags; in life
// by its sequence number) is answered by nobody and leaves no network: either
// would reset a connection that lives.
func TestInvalidIsNoReset(t *testing.T) {
	l := newLab(t)
	l.apply(t, l.pool("tcp", l.addrA))
	remote, a := newWire(t, l.remote), newWire(t, l.a)
	client, host := netip.MustParseAddrPort("192.0.2.9:44444"), netip.MustParseAddr("192.0.2.1")

	published, closed := netip.AddrPortFrom(host, 18081), netip.AddrPortFrom(host, 18099)
	remote.send(t, segment{client, published, syn | fin})
	remote.send(t, segment{client, closed, syn})
	if s := remote.receive(t); s.from != closed || s.flags&rst == 0 {
		t.Errorf("%+v came first, want the refusal of a port that nobody serves", s)
	}

	task := netip.AddrPortFrom(l.addrA, 44445)
	a.send(t, segment{task, client, syn | fin})
	a.send(t, segment{task, client, syn})
	if s := remote.receive(t); s.from.Addr() != host || s.flags != syn {
		t.Errorf("%+v came first, want what conntrack could place, from the host", s)
	}
}
