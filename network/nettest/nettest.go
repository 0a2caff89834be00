// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

// Package nettest gives tests a host of their own: the test binary is started
// again in a fresh network and mount namespace, so that interfaces, routes and
// packet filter tables made by a test are never the machine's and all vanish
// with the process. Further namespaces stand for clients and containers. For
// tests only.
package nettest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const inside = "SATL_NETTEST_INSIDE"

// Main runs a package's tests in a host of their own. Without root it runs
// them as they are, and Require skips those that need one.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Inside says whether this process is the one in the host of its own.
func Inside() bool { return os.Getenv(inside) != "" }

// Outside is what goes before a command line that needs the machine's own
// network, which the process that started this one is still in. The command is
// started in the root directory.
func Outside() []string {
	if !Inside() {
		return nil
	}
	return []string{"nsenter", "--target", strconv.Itoa(os.Getppid()), "--net", "--mount", "--"}
}

// Run is Main for a package that has more to do around its tests: it returns
// their exit code. What comes before Run is done twice, outside and Inside.
func Run(tests func() int) int {
	if os.Geteuid() != 0 {
		return tests()
	}
	if Inside() {
		// Names of namespaces are this process's own as well.
		err := os.MkdirAll("/run/netns", 0o755)
		if err == nil {
			err = unix.Mount("tmpfs", "/run/netns", "tmpfs", 0, "")
		}
		if err != nil {
			panic(fmt.Errorf("nettest: a /run/netns of its own: %w", err))
		}
		return tests()
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is about the thread
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "nettest: cannot make a network namespace, running without:", err)
			return tests()
		}
		return max(cmd.ProcessState.ExitCode(), 1)
	}
	return 0
}

// Require skips the test where there is no host of its own.
func Require(t testing.TB) {
	t.Helper()
	if !Inside() {
		t.Skip("SKIPPED: needs root, to make a network namespace for the test")
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	Must(t, err)
}

// Forget has the host forget all connections. One that the end of an earlier
// test cut off is one for conntrack still: a client of the same address that
// happens on its port is taken for it, and gets to the task that it went to.
func Forget(t testing.TB) {
	t.Helper()
	Must(t, netlink.ConntrackTableFlush(netlink.ConntrackTable))
}

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NS is a network namespace besides the host's own: a client or a container.
type NS struct{ file *os.File }

// New makes a namespace; it goes when the test ends.
func New(t testing.TB) *NS {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			return
		}
		f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		done <- result{f, err}
	}()
	r := <-done
	Must(t, r.err)
	t.Cleanup(func() { r.f.Close() })
	return &NS{file: r.f}
}

// Open is the namespace with the path.
func Open(t testing.TB, path string) *NS {
	t.Helper()
	f, err := os.Open(path)
	Must(t, err)
	t.Cleanup(func() { f.Close() })
	return &NS{file: f}
}

// Do runs f in the namespace. Sockets that it opens stay there.
func (n *NS) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Join connects the namespace to the host by a veth pair: on a bridge of the
// host when one is named, else with hostAddr on the outer end. The default
// route leads to gateway.
func (n *NS) Join(t testing.TB, hostName, bridge string, hostAddr, addr netip.Prefix, gateway netip.Addr) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = hostName, net.FlagUp
	if bridge != "" {
		b, err := netlink.LinkByName(bridge)
		Must(t, err)
		attrs.MasterIndex = b.Attrs().Index
	}
	Must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(n.file.Fd())}))
	outer, err := netlink.LinkByName(hostName)
	Must(t, err)
	t.Cleanup(func() { _ = netlink.LinkDel(outer) })
	if bridge != "" {
		Must(t, netlink.LinkSetHairpin(outer, true)) // as package network does
	}
	if hostAddr.IsValid() {
		Must(t, netlink.AddrAdd(outer, &netlink.Addr{IPNet: ipNet(hostAddr)}))
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(n.file.Fd()), unix.NETLINK_ROUTE)
	Must(t, err)
	defer h.Close()
	lo, err := h.LinkByName("lo")
	Must(t, err)
	Must(t, h.LinkSetUp(lo))
	eth, err := h.LinkByName("eth0")
	Must(t, err)
	Must(t, h.AddrAdd(eth, &netlink.Addr{IPNet: ipNet(addr)}))
	Must(t, h.LinkSetUp(eth))
	if gateway.IsValid() {
		Must(t, h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: gateway.AsSlice()}))
	}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// Serve answers each TCP connection on addr in the namespace with text, until
// the test ends.
func (n *NS) Serve(t testing.TB, addr, text string) {
	t.Helper()
	var l net.Listener
	Must(t, n.Do(func() (err error) { l, err = net.Listen("tcp4", addr); return err }))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(text))
			_ = c.Close()
		}
	}()
}

// ServeUDP answers each datagram on addr in the namespace with text.
func (n *NS) ServeUDP(t testing.TB, addr, text string) {
	t.Helper()
	var c net.PacketConn
	Must(t, n.Do(func() (err error) { c, err = net.ListenPacket("udp4", addr); return err }))
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(text), from)
		}
	}()
}

// Dial connects from the namespace; a nil one is the host.
func (n *NS) Dial(network, addr string) (c net.Conn, err error) {
	dial := func() (err error) { c, err = net.DialTimeout(network, addr, 2*time.Second); return err }
	if n == nil {
		return c, dial()
	}
	return c, n.Do(dial)
}

// Ask connects and reads what the server says; over UDP it first sends a
// datagram.
func (n *NS) Ask(network, addr string) (string, error) {
	c, err := n.Dial(network, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return Exchange(c)
}

// Exchange sends one datagram if c is UDP and reads one answer.
func Exchange(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, udp := c.(*net.UDPConn); udp {
		if _, err := c.Write([]byte("?")); err != nil {
			return "", err
		}
	}
	buf := make([]byte, 2048)
	k, err := c.Read(buf)
	return string(buf[:k]), err
}
