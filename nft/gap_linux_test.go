// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"satld/network/nettest"
	"satld/redirect"
)

// TestNoGap: while the same pool is written again and again no connection is
// refused or strays.
func TestNoGap(t *testing.T) {
	l := newLab(t)
	l.apply(t, l.pool("tcp", l.addrA))
	stop, bad := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(bad)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := l.remote.Ask("tcp4", "192.0.2.1:18081"); got != "a" {
				bad <- fmt.Sprintf("connection %d: %q, %v\n%s\nnot redirected:\n%s\nresets sent by the host %s, by the task %s",
					n, got, err, ruleset(t, l.r.table), notRedirected(), resets(nil), resets(l.a))
				return
			}
		}
	}()
	for i := range 100 {
		p := []redirect.Pool{l.pool("tcp", l.addrA)}
		if i%2 == 0 {
			p = append(p, l.pool("udp", l.addrB))
		}
		l.apply(t, p...)
	}
	close(stop)
	if text, failed := <-bad; failed {
		t.Error(text)
	}
}

// notRedirected are the TCP connections to the published port that the kernel
// takes for the host's own.
func notRedirected() string {
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	out := ""
	for _, c := range all {
		if c.Forward.Protocol == unix.IPPROTO_TCP && c.Forward.DstPort == 18081 && c.Forward.DstIP.Equal(c.Reverse.SrcIP) {
			out += fmt.Sprintf("%v, left %d s, %+v\n", c, c.TimeOut, c.ProtoInfo)
		}
	}
	return fmt.Sprintf("%s(of %d, %v)", out, len(all), err)
}

// resets is what a namespace counts of TCP, resets sent among it; nil is the
// host.
func resets(ns *nettest.NS) string {
	var data []byte
	read := func() (err error) { data, err = os.ReadFile("/proc/thread-self/net/snmp"); return err }
	var err error
	if ns == nil {
		err = read()
	} else {
		err = ns.Do(read)
	}
	if err != nil {
		return err.Error()
	}
	out := ""
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "Tcp:") {
			out += line
		}
	}
	return out
}
