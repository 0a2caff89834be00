// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package traffic

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"satld/network"
	"satld/network/jailtest"
)

// A member on another node, which has no way back but the overlay network: every
// kind of client gets its answer, and when it is gone so are its states, and who
// was with it goes on with a member here.
func TestHostRemoteMember(t *testing.T) {
	n := newHost(t)
	here, there := netip.MustParsePrefix("192.168.77.1/24"), netip.MustParsePrefix("192.168.77.2/24")
	over, err := n.net.Ensure(t.Context(), network.Network{ID: "over", Name: "over", Subnet: netip.MustParsePrefix("10.68.1.0/24"), Gateway: netip.MustParseAddr("10.68.1.1"), VNI: 4098})
	must(t, err)
	node := jailtest.Node{
		VNI: over.VNI, Here: here, There: there, Addr: netip.MustParsePrefix("10.68.1.3/24"), MAC: "02:42:0a:44:01:03",
		Knows: map[netip.Addr]string{over.Gateway: "02:42:0a:44:01:01"},
	}.Start(t, "nthR")
	must(t, n.net.SetPeers(t.Context(), here.Addr(), map[string][]network.Peer{over.ID: {{Addr: netip.MustParseAddr("10.68.1.3"), Host: there.Addr()}}}))
	node.Serve(t, "tcp4", "0.0.0.0:80", "afar")
	node.Serve(t, "udp4", "0.0.0.0:53", "afar")
	n.Nudge()

	own := n.run(t, 2)
	must(t, n.Put(t.Context(), own)) // it does not serve yet
	remote := remoteMember("b", "10.68.1.3", true)
	remote.ServiceID, remote.ServiceName, remote.Ports = own.ServiceID, own.ServiceName, own.Ports
	n.SetRemote([]Member{remote})
	n.Settled()
	heard := func(want string) {
		t.Helper()
		var got string
		var err error
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Second) {
			if got, err = n.remote.Ask(t, fmt.Sprintf("%s:%d", hostEnd.Addr(), webPort)); got == want {
				return
			}
		}
		t.Fatalf("%q, %v, want %s", got, err, want)
	}
	heard("afar")
	n.expect(t, "a member on another node", n.jails[2], "afar")
	web, dns := fmt.Sprintf("%s:%d", hostEnd.Addr(), webPort), fmt.Sprintf("%s:%d", hostEnd.Addr(), dnsPort)
	tcp, err := n.remote.Talk(t, "tcp4", web)
	must(t, err)
	udp, err := n.remote.Talk(t, "udp4", dns)
	must(t, err)
	if got, err := udp.Say("?"); got != "afar" {
		t.Errorf("UDP hears %q, %v", got, err)
	}
	if got, err := tcp.Say("still there?"); got != "still there?" {
		t.Errorf("%q, %v", got, err)
	}

	own.Serving = true
	must(t, n.Put(t.Context(), own))
	n.SetRemote(nil)
	heard("2")
	var got string
	for begun := time.Now(); got != "2" && time.Since(begun) < time.Minute; {
		if got, err = udp.Say("?"); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	if got != "2" {
		t.Errorf("UDP hears %q, %v", got, err)
	}
	if got, err := tcp.Say("still there?"); err == nil {
		t.Errorf("the connection to the member that is gone: %q", got)
	}
	// One call may not get through all of them on a slow machine.
	left := func() (lines []string) {
		states, err := jailtest.Run("pfctl", "-ss")
		must(t, err)
		for line := range strings.Lines(states) {
			if strings.Contains(line, "10.68.1.3:") && strings.Contains(line, "(") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	for begun := time.Now(); len(left()) > 0 && time.Since(begun) < time.Minute; {
		time.Sleep(time.Second)
	}
	if l := left(); len(l) > 0 {
		t.Errorf("left: %s", l)
	}
	n.expect(t, "a member here", n.jails[2], "2")
}
