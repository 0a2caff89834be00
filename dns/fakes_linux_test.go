// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"satld/network/nettest"
)

// fakeNames is a table of names; asking from 127.0.0.9 shows none.
type fakeNames struct {
	names   map[string][]netip.Addr
	reverse map[netip.Addr]string
	await   func(ctx context.Context, name string) bool // nil: all are known
}

func (f fakeNames) Await(ctx context.Context, name string) bool {
	return f.await == nil || f.await(ctx, name)
}

func (f fakeNames) Lookup(asker netip.Addr, name string) ([]netip.Addr, bool) {
	if asker == netip.MustParseAddr("127.0.0.9") {
		return nil, false
	}
	a, ok := f.names[name]
	return slices.Clone(a), ok
}

func (f fakeNames) Reverse(a netip.Addr) (string, bool) { n, ok := f.reverse[a]; return n, ok }

func addrs(n int) (out []netip.Addr) {
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{10, 88, byte(i >> 8), byte(i + 2)}))
	}
	return out
}

var names = fakeNames{
	names: map[string][]netip.Addr{
		"web": addrs(3), "tasks.web": addrs(3), "web.1": addrs(1), "down": nil, "many": addrs(100), "web.1.abcdef": addrs(1),
	},
	reverse: map[netip.Addr]string{addrs(1)[0]: "web.1.abcdef"},
}

// upstream is a resolver on an address of loopback.
type upstream struct {
	addr  netip.AddrPort
	asked atomic.Int64
	tcp   atomic.Int64
}

func newUpstream(t testing.TB, ip string, answer func(w dns.ResponseWriter, r *dns.Msg)) *upstream {
	t.Helper()
	u := &upstream{addr: netip.AddrPortFrom(netip.MustParseAddr(ip), 53)}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		u.asked.Add(1)
		if _, tcp := w.RemoteAddr().(*net.TCPAddr); tcp {
			u.tcp.Add(1)
		}
		answer(w, r)
	})
	for _, network := range []string{"udp", "tcp"} {
		up := make(chan struct{})
		srv := &dns.Server{Addr: u.addr.String(), Net: network, Handler: handler, NotifyStartedFunc: func() { close(up) }}
		go func() {
			if err := srv.ListenAndServe(); err != nil {
				panic(err)
			}
		}()
		<-up
		t.Cleanup(func() { _ = srv.Shutdown() })
	}
	return u
}

// example answers every A question with 192.0.2.80 and says NXDOMAIN to names
// under .invalid.
func example(w dns.ResponseWriter, r *dns.Msg) {
	m := new(dns.Msg).SetReply(r)
	switch {
	case strings.HasSuffix(r.Question[0].Name, "invalid."):
		m.Rcode = dns.RcodeNameError
	case r.Question[0].Qtype == dns.TypeA:
		rr, _ := dns.NewRR(r.Question[0].Name + " 300 IN A 192.0.2.80")
		m.Answer = []dns.RR{rr}
	}
	_ = w.WriteMsg(m)
}

var place = netip.MustParseAddrPort("127.0.0.1:53")

func start(t testing.TB, cfg Config, places ...Listen) *Server {
	t.Helper()
	nettest.Require(t)
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = filepath.Join(t.TempDir(), "none")
	}
	if len(places) == 0 {
		places = []Listen{{Addr: place}}
	}
	s := New(names, cfg)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { stop(); nettest.Must(t, <-done) })
	nettest.Must(t, s.Set(places))
	return s
}

func ask(t testing.TB, network, server, name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	for _, c := range change {
		c(q)
	}
	c := &dns.Client{Net: network, Timeout: 6 * time.Second}
	r, _, err := c.Exchange(q, server)
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[qtype], err)
	}
	if r.Id != q.Id {
		t.Errorf("%s: answer to another question", name)
	}
	return r
}

func answers(r *dns.Msg) (out []string) {
	for _, rr := range r.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.PTR:
			out = append(out, rr.Ptr)
		default:
			out = append(out, rr.String())
		}
	}
	slices.Sort(out)
	return out
}

// writer is a client in memory.
type writer struct {
	dns.ResponseWriter
	from net.Addr
	got  *dns.Msg
}

func (w *writer) RemoteAddr() net.Addr        { return w.from }
func (w *writer) WriteMsg(m *dns.Msg) error   { w.got = m; return nil }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
