// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"satld/network/nettest"
)

// connect plugs the cable of one host into the other.
func connect(t *testing.T, a, b *ring) {
	t.Helper()
	var there *os.File
	nettest.Must(t, b.ns.Do(func() (err error) { there, err = os.Open("/proc/thread-self/ns/net"); return err }))
	defer there.Close()
	nettest.Must(t, a.ns.Do(func() error {
		cable, err := netlink.LinkByName("cable")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetDown(cable), netlink.LinkSetName(cable, "cable2"), netlink.LinkSetNsFd(cable, int(there.Fd())))
	}))
	nettest.Must(t, b.ns.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "cables"
		joint := &netlink.Bridge{LinkAttrs: attrs}
		err := errors.Join(netlink.LinkAdd(joint), netlink.LinkSetUp(joint))
		for _, name := range []string{"cable", "cable2"} {
			end, findErr := netlink.LinkByName(name)
			if findErr != nil {
				return findErr
			}
			err = errors.Join(err, netlink.LinkSetMaster(end, joint), netlink.LinkSetUp(end))
		}
		return err
	}))
}

// addrIn is a container's address in a network.
func (r *ring) addrIn(container, network string) string {
	r.t.Helper()
	return r.docker("inspect", "-f", `{{(index .NetworkSettings.Networks "`+network+`").IPAddress}}`, container)
}

// Two hosts, one cluster: a published port's pool has the tasks of both on each,
// the host reaches them through the tunnel, and so do tasks each other; one that
// turns unhealthy leaves the other host's pool too, and what was half open to
// it is cut there.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	const thereAddr = "192.0.2.11"
	listen := []string{"--listen-addr", "0.0.0.0:2377"}
	a, b := newHostAt(t, hostAddr, listen...), newHostAt(t, thereAddr, listen...)
	connect(t, a, b)
	a.up()
	b.up()
	b.docker("swarm", "join", "--token", a.docker("swarm", "join-token", "-q", "worker"), hostAddr+":2377")
	a.docker("network", "create", "-d", "overlay", "back")
	a.web("--mode", "global", "--network", "back")
	a.awaitRunning("web", 2)
	one := func(r *ring) string { return r.docker("ps", "-q", "--no-trunc", "--filter", "name=web") }
	here, there := one(a), one(b)
	far := b.addrIn(there, "ingress")
	backs := []string{a.addrIn(here, "back"), b.addrIn(there, "back")}
	for r, members := range map[*ring][]string{a: {backs[0], far}, b: {a.addrIn(here, "ingress"), backs[1]}} {
		r.awaitPool(webTable, members)
		for _, m := range members {
			r.until(r.addr+" to "+m, func() bool { body, err := r.get("http://" + m + "/"); return err == nil && body != "" })
		}
		for _, m := range backs {
			r.docker("exec", one(r), "/app", "-probe", "http://"+m+"/")
		}
		if nat, _ := r.Anchor(r.anchor("nat")); strings.Count(nat, "inet from any to ") != 2 { // ingress and back
			t.Errorf("the way back of what is redirected to another host:\n%s", nat)
		}
	}
	seen := make(map[string]bool)
	for port := range uint16(4) {
		seen[a.Packet("tcp", netip.AddrPortFrom(netip.MustParseAddr(stranger), 4000+port).String(), hostAddr+":8080").Backend.Addr().String()] = true
	}
	if len(seen) != 2 || !seen[far] || len(a.States(far)) == 0 {
		t.Errorf("packets go to %v", seen)
	}

	if _, err := b.get("http://" + far + "/bad"); err != nil {
		t.Fatal(err)
	}
	a.until("its end in the pool over there", func() bool { return !slices.Contains(a.pool(webTable), far) })
	a.until("the end of what is half open to it", func() bool { return len(a.States(far)) == 0 })

	a.docker("service", "rm", "web")
	for _, r := range []*ring{a, b} {
		r.until("the end of the tasks", func() bool { live, dying := r.Jails(); return len(live)+len(dying) == 0 })
	}
}
