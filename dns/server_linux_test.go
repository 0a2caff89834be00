// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"satld/internal/slowday"
	"satld/network/nettest"
)

func TestAnswers(t *testing.T) {
	up := newUpstream(t, "127.0.0.53", example)
	start(t, Config{Upstreams: []netip.AddrPort{up.addr}})
	three := []string{"10.88.0.2", "10.88.0.3", "10.88.0.4"}
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		want  []string
		soa   bool
		ours  bool
	}{
		{"web.", dns.TypeA, dns.RcodeSuccess, three, false, true},
		{"WeB.", dns.TypeA, dns.RcodeSuccess, three, false, true},
		{"tasks.web.", dns.TypeA, dns.RcodeSuccess, three, false, true},
		{"web.1.", dns.TypeA, dns.RcodeSuccess, three[:1], false, true},
		{"web.", dns.TypeAAAA, dns.RcodeSuccess, nil, true, true},
		{"web.", dns.TypeANY, dns.RcodeSuccess, nil, true, true},
		{"web.", dns.TypeMX, dns.RcodeSuccess, nil, true, true},
		{"down.", dns.TypeA, dns.RcodeSuccess, nil, true, true},
		{"down.", dns.TypeAAAA, dns.RcodeSuccess, nil, true, true},
		{"2.0.88.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, []string{"web.1.abcdef."}, false, true},
		{"2.0.88.10.in-addr.arpa.", dns.TypeA, dns.RcodeSuccess, nil, true, true},
		{"9.0.88.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, nil, false, false},
		{"x.0.88.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, nil, false, false},
		{"web.example.com.", dns.TypeA, dns.RcodeSuccess, []string{"192.0.2.80"}, false, false},
		{"other.", dns.TypeA, dns.RcodeSuccess, []string{"192.0.2.80"}, false, false},
		{"no.invalid.", dns.TypeA, dns.RcodeNameError, nil, false, false},
		{".", dns.TypeNS, dns.RcodeSuccess, nil, false, false},
	} {
		for _, network := range []string{"udp", "tcp"} {
			before := up.asked.Load()
			r := ask(t, network, place.String(), c.name, c.qtype)
			what := fmt.Sprintf("%s %s %s", network, c.name, dns.TypeToString[c.qtype])
			if r.Rcode != c.rcode || !slices.Equal(answers(r), c.want) {
				t.Errorf("%s: %s %v", what, dns.RcodeToString[r.Rcode], answers(r))
			}
			if ours := up.asked.Load() == before; ours != c.ours || r.Authoritative != c.ours || !r.RecursionAvailable && c.ours {
				t.Errorf("%s: ours: %t, %s", what, ours, r)
			}
			if c.soa {
				if len(r.Ns) != 1 || r.Ns[0].(*dns.SOA).Minttl > 5 || r.Ns[0].Header().Ttl > 5 {
					t.Errorf("%s: no SOA with a short TTL: %v", what, r.Ns)
				}
			}
			for _, rr := range r.Answer {
				if c.ours && (rr.Header().Ttl > 5 || rr.Header().Ttl == 0 || rr.Header().Name != c.name) {
					t.Errorf("%s: %s", what, rr)
				}
			}
		}
	}
	if up.tcp.Load() == 0 || up.tcp.Load() == up.asked.Load() {
		t.Errorf("%d of %d questions forwarded over TCP", up.tcp.Load(), up.asked.Load())
	}
}

func TestShuffled(t *testing.T) {
	start(t, Config{})
	first := map[string]int{}
	for range 200 {
		r := ask(t, "udp", place.String(), "web.", dns.TypeA)
		first[r.Answer[0].(*dns.A).A.String()]++
	}
	for a, n := range first {
		if len(first) != 3 || n < 30 {
			t.Errorf("%s is first %d times of 200: %v", a, n, first)
		}
	}
}

func TestTruncation(t *testing.T) {
	start(t, Config{})
	r := ask(t, "udp", place.String(), "many.", dns.TypeA)
	r.Compress = true // as it came
	if !r.Truncated || len(r.Answer) == 0 || r.Len() > dns.MinMsgSize {
		t.Errorf("plain UDP: TC %t, %d answers, %d bytes", r.Truncated, len(r.Answer), r.Len())
	}
	edns := func(m *dns.Msg) { m.SetEdns0(4096, true) }
	r = ask(t, "udp", place.String(), "many.", dns.TypeA, edns)
	if r.Truncated || len(r.Answer) != 100 {
		t.Errorf("EDNS: TC %t, %d answers", r.Truncated, len(r.Answer))
	}
	if opt := r.IsEdns0(); opt == nil || opt.UDPSize() != udpSize {
		t.Errorf("EDNS in the answer: %v", opt)
	}
	r = ask(t, "tcp", place.String(), "many.", dns.TypeA)
	if r.Truncated || len(r.Answer) != 100 || r.IsEdns0() != nil {
		t.Errorf("TCP: TC %t, %d answers", r.Truncated, len(r.Answer))
	}
}

func TestRefused(t *testing.T) {
	up := newUpstream(t, "127.0.0.53", example)
	s := start(t, Config{Upstreams: []netip.AddrPort{up.addr}}, Listen{Addr: place, Subnet: netip.MustParsePrefix("10.88.0.0/20")})
	for _, c := range []struct {
		what   string
		change func(*dns.Msg)
		want   int
	}{
		{"notify", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		{"chaos", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		{"EDNS 1", func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
	} {
		if r := ask(t, "udp", place.String(), "web.", dns.TypeA, c.change); r.Rcode != c.want {
			t.Errorf("%s: %s", c.what, dns.RcodeToString[r.Rcode])
		}
	}
	if up.asked.Load() > 0 {
		t.Error("forwarded")
	}
	// Two questions: a message that our client library does not even send.
	q := new(dns.Msg)
	q.SetQuestion("web.", dns.TypeA)
	q.Question = append(q.Question, q.Question[0])
	w := &writer{from: &net.UDPAddr{IP: net.IPv4(10, 88, 0, 2), Port: 9}}
	s.serve(w, q, Listen{Addr: place})
	if w.got.Rcode != dns.RcodeFormatError {
		t.Errorf("two questions: %v", w.got)
	}
	// A neighbour of the host that made itself a route.
	q.Question = q.Question[:1]
	for from, want := range map[string]int{"192.0.2.9": dns.RcodeRefused, "10.88.0.2": dns.RcodeSuccess, "127.0.0.1": dns.RcodeSuccess} {
		w = &writer{from: &net.UDPAddr{IP: net.ParseIP(from), Port: 9}}
		s.serve(w, q, Listen{Addr: place, Subnet: netip.MustParsePrefix("10.88.0.0/20")})
		if w.got.Rcode != want {
			t.Errorf("from %s: %s", from, dns.RcodeToString[w.got.Rcode])
		}
	}
	// An answer is not a question.
	q.Response = true
	w = &writer{from: &net.UDPAddr{IP: net.IPv4(10, 88, 0, 2)}}
	s.serve(w, q, Listen{Addr: place})
	if w.got != nil {
		t.Error("an answer is answered")
	}
}

// FuzzServe: whatever comes in, one reply or none, and no panic.
func FuzzServe(f *testing.F) {
	for _, name := range []string{"web.", "2.0.88.10.in-addr.arpa.", "."} {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeA)
		wire, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	s := New(names, Config{ResolvConf: "/nonexistent"})
	f.Fuzz(func(t *testing.T, wire []byte) {
		q := new(dns.Msg)
		if q.Unpack(wire) != nil {
			return
		}
		w := &writer{from: &net.UDPAddr{IP: net.IPv4(10, 88, 0, 2)}}
		s.serve(w, q, Listen{Addr: place})
		if w.got != nil {
			if _, err := w.got.Pack(); err != nil && q.Len() < 60000 {
				t.Errorf("the reply cannot be sent: %v\n%s", err, w.got)
			}
		}
	})
}

func TestListeners(t *testing.T) {
	a, b := Listen{Addr: netip.MustParseAddrPort("127.0.0.2:53")}, Listen{Addr: netip.MustParseAddrPort("127.0.0.3:53")}
	s := start(t, Config{}, a)
	answersAt := func(l Listen) bool {
		c := &dns.Client{Timeout: 200 * time.Millisecond}
		q := new(dns.Msg)
		q.SetQuestion("web.", dns.TypeA)
		_, _, err := c.Exchange(q, l.Addr.String())
		return err == nil
	}
	if !answersAt(a) || answersAt(b) {
		t.Error("at the start")
	}
	nettest.Must(t, s.Set([]Listen{a, b}))
	if !answersAt(a) || !answersAt(b) {
		t.Error("added")
	}
	nettest.Must(t, s.Set([]Listen{b}))
	if answersAt(a) || !answersAt(b) {
		t.Error("taken away")
	}
	// An address that no interface has yet (a bridge to come).
	later := Listen{Addr: netip.MustParseAddrPort("10.88.0.1:53")}
	nettest.Must(t, s.Set([]Listen{b, later}))
	// An address that somebody else has, until they leave it.
	taken, err := net.ListenPacket("udp4", "127.0.0.4:53")
	nettest.Must(t, err)
	c := Listen{Addr: netip.MustParseAddrPort("127.0.0.4:53")}
	if err := s.Set([]Listen{b, c}); err == nil || !strings.Contains(err.Error(), "127.0.0.4:53/udp") {
		t.Errorf("%v", err)
	}
	if !answersAt(b) {
		t.Error("one that fails takes the others down")
	}
	taken.Close()
	for end := time.Now().Add(3 * relistenEvery); !answersAt(c); {
		if time.Now().After(end) {
			t.Fatal("not tried again")
		}
	}
	// A socket that broke is made anew.
	s.mu.Lock()
	broken := s.open[c]
	s.mu.Unlock()
	_ = broken.servers[0].PacketConn.Close()
	for end := time.Now().Add(3 * relistenEvery); !answersAt(c); {
		if time.Now().After(end) {
			t.Fatal("not made anew")
		}
	}
}

// TestLocalIsNotHeldUp: while every resolver is silent and all slots are
// taken, names of ours are answered, and the rest is refused at once.
func TestLocalIsNotHeldUp(t *testing.T) {
	silent := newUpstream(t, "127.0.0.51", func(dns.ResponseWriter, *dns.Msg) {})
	s := start(t, Config{Upstreams: []netip.AddrPort{silent.addr}})
	for range maxInFlight {
		s.inFlight <- struct{}{}
	}
	begin := time.Now()
	if r := ask(t, "udp", place.String(), "web.", dns.TypeA); len(r.Answer) != 3 {
		t.Errorf("%s", r)
	}
	if r := ask(t, "udp", place.String(), "example.com.", dns.TypeA); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s", r)
	}
	if took := time.Since(begin); took > slowday.Of(time.Second) {
		t.Errorf("took %s", took)
	}
}

func TestTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]uint32{0: 5, time.Second: 1, time.Hour: 5} {
		if s := New(names, Config{TTL: ttl}); s.ttl != want {
			t.Errorf("%s: %d", ttl, s.ttl)
		}
	}
}

func TestRunEnds(t *testing.T) {
	nettest.Require(t)
	s := New(names, Config{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	nettest.Must(t, s.Set([]Listen{{Addr: place}}))
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	l, err := net.Listen("tcp4", place.String())
	if err != nil {
		t.Fatalf("the address is not free: %v", err)
	}
	l.Close()
	pc, err := net.ListenPacket("udp4", place.String())
	if err != nil {
		t.Fatalf("the address is not free: %v", err)
	}
	pc.Close()
}

// BenchmarkLoad: 20 clients asking at once for names of ours and of others.
func BenchmarkLoad(b *testing.B) {
	up := newUpstream(b, "127.0.0.53", example)
	start(b, Config{Upstreams: []netip.AddrPort{up.addr}})
	var mu sync.Mutex
	var all []time.Duration
	b.SetParallelism(10)
	b.RunParallel(func(pb *testing.PB) {
		c := &dns.Client{Timeout: 5 * time.Second}
		var mine []time.Duration
		for i := 0; pb.Next(); i++ {
			q := new(dns.Msg)
			q.SetQuestion([]string{"web.", "example.com."}[i%2], dns.TypeA)
			_, took, err := c.Exchange(q, place.String())
			if err != nil {
				b.Error(err)
			}
			mine = append(mine, took)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, mine...)
	})
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms-p99")
}
