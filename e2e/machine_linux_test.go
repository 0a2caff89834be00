// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"satld/network/nettest"
)

// onMachine runs the tests in a network and mount namespace of their own: what
// they use cannot meet the machine's addresses, and a run that is cut short
// leaves none of its own there.
func onMachine(tests func() int) int {
	return nettest.Run(func() int {
		if !nettest.Inside() {
			skipReason = "cannot make a network namespace"
			return tests()
		}
		var err error
		if scratch, err = os.MkdirTemp("", "satl-e2e-images-"); err == nil {
			defer os.RemoveAll(scratch)
			err = prepare()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return tests()
	})
}

// outside goes before a command line that needs the machine's own network, and
// starts in the root directory.
func outside() []string { return nettest.Outside() }

// prepare gives the tests' machine an interface and a resolver.
func prepare() error {
	for _, args := range []string{
		"link set lo up", "link add eth0 type veth peer name cable", "addr add " + uplink + "/24 dev eth0", "link set eth0 up", "link set cable up",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	conf := filepath.Join(scratch, "resolv.conf")
	return errors.Join(
		os.WriteFile(conf, []byte("nameserver "+uplink+"\n"), 0o644),
		unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""),
		serveNames(),
	)
}

// serveNames is the machine's resolver, over UDP and TCP, as long as the tests
// run.
func serveNames() error {
	at := net.JoinHostPort(uplink, "53")
	udp, err := net.ListenPacket("udp4", at)
	if err != nil {
		return err
	}
	tcp, err := net.Listen("tcp4", at)
	if err != nil {
		return err
	}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, asked *dns.Msg) {
		m := new(dns.Msg).SetRcode(asked, dns.RcodeNameError)
		if q := asked.Question; len(q) == 1 && q[0].Name == elsewhere+"." {
			m.Rcode = dns.RcodeSuccess
			if q[0].Qtype == dns.TypeA {
				m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(elsewhereAddr)}}
			}
		}
		_ = w.WriteMsg(m)
	})
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: answer}, {Listener: tcp, Handler: answer}} {
		go func() { _ = s.ActivateAndServe() }()
	}
	return nil
}
