// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"

	"satld/internal/slowday"
	"satld/network/nettest"
)

func TestForwardFindsOneThatAnswers(t *testing.T) {
	silent := newUpstream(t, "127.0.0.51", func(dns.ResponseWriter, *dns.Msg) {})
	broken := newUpstream(t, "127.0.0.52", func(w dns.ResponseWriter, r *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeServerFailure))
	})
	liar := newUpstream(t, "127.0.0.54", func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		m.Question[0].Name = "elsewhere."
		_ = w.WriteMsg(m)
	})
	good := newUpstream(t, "127.0.0.53", example)
	nobody := netip.MustParseAddrPort("127.0.0.77:53")
	start(t, Config{Upstreams: []netip.AddrPort{nobody, silent.addr, broken.addr, liar.addr, good.addr}})
	begin := time.Now()
	if r := ask(t, "udp", place.String(), "example.com.", dns.TypeA); r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 {
		t.Errorf("%s", r)
	}
	if took := time.Since(begin); took > 2*upstreamTimeout {
		t.Errorf("took %s", took)
	}
}

func TestForwardGivesUp(t *testing.T) {
	var silent []netip.AddrPort
	for i := range 5 {
		silent = append(silent, newUpstream(t, fmt.Sprintf("127.0.0.%d", 60+i), func(dns.ResponseWriter, *dns.Msg) {}).addr)
	}
	start(t, Config{Upstreams: silent})
	begin := time.Now()
	r := ask(t, "udp", place.String(), "example.com.", dns.TypeA)
	if took := time.Since(begin); r.Rcode != dns.RcodeServerFailure || took > slowday.Of(5*time.Second) {
		t.Errorf("%s after %s", dns.RcodeToString[r.Rcode], took)
	}
}

func TestNoUpstream(t *testing.T) {
	start(t, Config{})
	for name, want := range map[string]int{"nobody.": dns.RcodeNameError, "example.com.": dns.RcodeServerFailure} {
		r := ask(t, "udp", place.String(), name, dns.TypeA)
		if r.Rcode != want {
			t.Errorf("%s: %s", name, dns.RcodeToString[r.Rcode])
		}
		if want == dns.RcodeNameError && len(r.Ns) != 1 {
			t.Errorf("%s: no SOA", name)
		}
	}
}

// TestNeverAsksItself: a host whose resolv.conf names our own address.
func TestNeverAsksItself(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	nettest.Must(t, os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o644))
	start(t, Config{ResolvConf: conf})
	begin := time.Now()
	if r := ask(t, "udp", place.String(), "example.com.", dns.TypeA); r.Rcode != dns.RcodeServerFailure || time.Since(begin) > slowday.Of(time.Second) {
		t.Errorf("%s after %s", dns.RcodeToString[r.Rcode], time.Since(begin))
	}
}
