// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"satld/network/nettest"
)

// With a real network a jail's address answers, on a stack of its own, and the
// inner end comes home when the jail is gone.
func TestVNETIsReal(t *testing.T) {
	nettest.Require(t)
	r := newRuntime(t)
	r.RealNetwork()
	out, pid := r.create("web", bundle(t, root(t), nil, "sh", "-c", "/bin/busybox nc -l -p 80 -e /bin/hostname"))
	for _, line := range []string{
		"ifconfig bridge create name satl0",
		"ifconfig satl0 inet 10.88.0.1/24 up",
		"ifconfig epair create",
		"ifconfig satl0 addm epair0a",
		"ifconfig epair0a up",
		"ifconfig epair0b ether 02:42:0a:58:00:02",
		"ifconfig epair0b vnet web",
		"ifconfig -j web lo0 up",
		"ifconfig -j web epair0b inet 10.88.0.2/24 up",
		"route -j web add default 10.88.0.1",
	} {
		r.do(line)
	}
	if got := r.do("ifconfig -j web epair0b"); !strings.Contains(got, "\tether 02:42:0a:58:00:02\n\thwaddr ") {
		t.Errorf("%s", got)
	}
	r.must("start", "web")
	var said []byte
	until(t, "an answer of the jail", func() bool {
		c, err := net.DialTimeout("tcp", "10.88.0.2:80", time.Second)
		if err != nil {
			return false
		}
		defer c.Close()
		said, err = io.ReadAll(c)
		return err == nil
	})
	if string(said) != "inside\n" {
		t.Errorf("%q", said)
	}
	if addrs := r.do("jexec web /bin/ip -4 -o addr"); strings.Contains(addrs, "127.0.0.1") || !strings.Contains(addrs, "10.88.0.2/24") {
		t.Errorf("addresses inside: %s", addrs)
	}
	if routes := r.do("jexec web /bin/ip route"); !strings.Contains(routes, "default via 10.88.0.1") {
		t.Errorf("routes inside: %s", routes)
	}
	until(t, "its end", func() bool { return r.status("web").Status == "stopped" })
	r.must("delete", "web")
	until(t, "its end", gone(pid))
	r.do("ifconfig epair0b")
	if _, err := net.InterfaceByName("epair0b"); err != nil {
		t.Errorf("the inner end is not at home: %v", err)
	}
	r.do("ifconfig epair0a destroy")
	r.do("ifconfig satl0 destroy")
	for _, name := range []string{"epair0a", "epair0b", "satl0"} {
		if _, err := net.InterfaceByName(name); err == nil {
			t.Errorf("%s is there still", name)
		}
	}
	if left := r.Leftovers(); len(left) > 0 {
		t.Errorf("left: %v (output in %s)", left, out)
	}
}

func TestWrongsAreNoted(t *testing.T) {
	r := newRuntime(t)
	r.create("web", bundle(t, root(t), nil, "sleep", "1000"))
	r.do("ifconfig epair create")
	r.do("ifconfig epair0b vnet web")
	r.do("ifconfig epair0a destroy")
	r.must("delete", "--force", "web")
	wrongs := r.Forgive()
	if len(wrongs) != 1 || wrongs[0] != "epair0a destroyed while its other end epair0b is in the VNET of jail web" {
		t.Errorf("%q", wrongs)
	}
}
