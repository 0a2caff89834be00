// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// udpSize is what we say that we take over UDP: what passes without being
// fragmented (DNS flag day 2020).
const udpSize = 1232

// settleWait is how long an unknown name is held while this node has not heard
// of all services; then the asker is to try again. Resolvers wait 5 s.
const settleWait = 2 * time.Second

// serve answers one question that came in at a place.
func (s *Server) serve(w dns.ResponseWriter, r *dns.Msg, place Listen) {
	asker, overTCP := peer(w.RemoteAddr())
	how := "local"
	var reply *dns.Msg
	switch opt := r.IsEdns0(); {
	case r.Response:
		return // never answer an answer
	case place.Subnet.IsValid() && !place.Subnet.Contains(asker) && !asker.IsLoopback():
		reply, how = failure(r, dns.RcodeRefused), "refused"
	case r.Opcode != dns.OpcodeQuery:
		reply, how = failure(r, dns.RcodeNotImplemented), "refused"
	case len(r.Question) != 1:
		reply, how = failure(r, dns.RcodeFormatError), "refused"
	case opt != nil && opt.Version() != 0:
		reply, how = failure(r, dns.RcodeBadVers), "refused"
	case r.Question[0].Qclass != dns.ClassINET:
		reply, how = failure(r, dns.RcodeRefused), "refused"
	default:
		if reply = s.local(r, asker); reply == nil {
			reply, how = s.forward(r, overTCP), "forwarded"
		}
		if reply.Rcode == dns.RcodeServerFailure {
			how = "failed"
		}
	}
	s.queries.WithLabelValues(how).Inc()
	if how != "forwarded" {
		if opt := r.IsEdns0(); opt != nil {
			reply.SetEdns0(udpSize, opt.Do())
		}
	}
	fit(reply, r, overTCP)
	if err := w.WriteMsg(reply); err != nil {
		s.log.Debug("dns answer could not be sent", "to", asker, "error", err)
	}
}

// fit makes a reply as small as the asker can take, with TC set when it had to
// be cut.
func fit(reply, r *dns.Msg, overTCP bool) {
	size := dns.MinMsgSize
	if opt := r.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
	}
	if overTCP {
		size = dns.MaxMsgSize
	}
	reply.Compress = true
	reply.Truncate(size)
}

func peer(a net.Addr) (asker netip.Addr, tcp bool) {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap(), false
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap(), true
	}
	return netip.Addr{}, false
}

// local answers a question about a name or an address of ours; nil when it is
// about something else.
func (s *Server) local(r *dns.Msg, asker netip.Addr) *dns.Msg {
	q := r.Question[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
	if name == "" {
		return nil
	}
	reply := new(dns.Msg)
	if addr, ok := reverseAddr(name); ok {
		target, known := s.names.Reverse(addr)
		if !known {
			return nil
		}
		reply.SetReply(r)
		if q.Qtype == dns.TypePTR {
			reply.Answer = []dns.RR{&dns.PTR{Hdr: s.header(q, dns.TypePTR), Ptr: dns.Fqdn(target)}}
		}
	} else {
		addrs, known := s.names.Lookup(asker, name)
		if !known {
			// Not at a resolver's, which would say that there is no such name.
			ctx, cancel := context.WithTimeout(context.Background(), settleWait)
			defer cancel()
			if !s.names.Await(ctx, name) {
				return failure(r, dns.RcodeServerFailure)
			}
			addrs, known = s.names.Lookup(asker, name)
		}
		if !known {
			return nil
		}
		reply.SetReply(r)
		if q.Qtype == dns.TypeA {
			for _, a := range addrs {
				if a.Is4() {
					reply.Answer = append(reply.Answer, &dns.A{Hdr: s.header(q, dns.TypeA), A: a.AsSlice()})
				}
			}
			// Clients take the first one: let it not always be the same.
			rand.Shuffle(len(reply.Answer), func(i, j int) {
				reply.Answer[i], reply.Answer[j] = reply.Answer[j], reply.Answer[i]
			})
		}
	}
	reply.Authoritative, reply.RecursionAvailable = true, true
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{soa(q.Name)}
	}
	return reply
}

func (s *Server) header(q dns.Question, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: q.Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: s.ttl}
}

// soa makes a negative answer one that a resolver keeps for negativeTTL only
// (RFC 2308, section 5).
func soa(name string) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: negativeTTL},
		Ns:  "ns.satl.", Mbox: "hostmaster.satl.",
		Serial: 1, Refresh: negativeTTL, Retry: negativeTTL, Expire: negativeTTL, Minttl: negativeTTL,
	}
}

// reverseAddr reads 2.0.88.10.in-addr.arpa.
func reverseAddr(name string) (netip.Addr, bool) {
	text, ok := strings.CutSuffix(name, ".in-addr.arpa")
	if !ok {
		return netip.Addr{}, false
	}
	p := strings.Split(text, ".")
	if len(p) != 4 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(p[3] + "." + p[2] + "." + p[1] + "." + p[0])
	return a, err == nil
}

func failure(r *dns.Msg, rcode int) *dns.Msg {
	reply := new(dns.Msg)
	reply.SetRcode(r, rcode)
	reply.RecursionAvailable = true
	return reply
}
