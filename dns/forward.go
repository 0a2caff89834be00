// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"bufio"
	"bytes"
	"context"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// upstreamTimeout bounds the wait for one resolver, forwardTimeout that
	// for all of them: less than the 5 s after which a client asks again
	// (resolv.conf(5), timeout).
	upstreamTimeout = 1500 * time.Millisecond
	forwardTimeout  = 4500 * time.Millisecond
	// rereadEvery bounds how often resolv.conf is looked at.
	rereadEvery = time.Second
	// maxUpstreams is more than the three that the C library uses.
	maxUpstreams = 6
)

// forward asks the host's resolvers, one after the other, until one gives an
// answer that is one, over the transport that the asker used. Without any
// resolver a single-label name does not exist; of others we cannot tell.
func (s *Server) forward(r *dns.Msg, overTCP bool) *dns.Msg {
	select {
	case s.inFlight <- struct{}{}:
		defer func() { <-s.inFlight }()
	default:
		s.log.Warn("dns: too many questions wait for the host's resolvers", "at_once", maxInFlight)
		return failure(r, dns.RcodeServerFailure)
	}
	list := s.upstream.list(time.Now())
	if len(list) == 0 {
		if dns.CountLabel(r.Question[0].Name) == 1 {
			reply := failure(r, dns.RcodeNameError)
			reply.Ns = []dns.RR{soa(r.Question[0].Name)}
			return reply
		}
		return failure(r, dns.RcodeServerFailure)
	}
	ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
	defer cancel()
	client := &dns.Client{Net: "udp", Timeout: upstreamTimeout}
	if overTCP {
		client.Net = "tcp"
	}
	for _, u := range list {
		// A new ID and port for each attempt, against forged answers.
		question := r.Copy()
		question.Id = dns.Id()
		reply, _, err := client.ExchangeContext(ctx, question, u.String())
		if ctx.Err() != nil && err != nil {
			break
		}
		switch {
		case err != nil:
			s.log.Debug("dns: resolver did not answer", "resolver", u, "name", r.Question[0].Name, "error", err)
			continue
		case !sameQuestion(reply, r):
			s.log.Debug("dns: resolver answered another question", "resolver", u, "name", r.Question[0].Name)
			continue
		case reply.Rcode == dns.RcodeServerFailure || reply.Rcode == dns.RcodeRefused:
			continue
		}
		reply.Id = r.Id
		return reply
	}
	return failure(r, dns.RcodeServerFailure)
}

func sameQuestion(reply, r *dns.Msg) bool {
	return reply.Response && len(reply.Question) == 1 && strings.EqualFold(reply.Question[0].Name, r.Question[0].Name) &&
		reply.Question[0].Qtype == r.Question[0].Qtype && reply.Question[0].Qclass == r.Question[0].Qclass
}

// upstreams is the host's resolvers, read again when their file changed.
type upstreams struct {
	path  string
	fixed []netip.AddrPort
	own   func(netip.AddrPort) bool // an address of ours: never ask ourselves

	mu     sync.Mutex
	looked time.Time
	seen   os.FileInfo
	read   []netip.AddrPort
}

func (u *upstreams) list(now time.Time) []netip.AddrPort {
	list := u.fixed
	if list == nil {
		list = u.current(now)
	}
	var out []netip.AddrPort
	for _, a := range list {
		if !u.own(a) && len(out) < maxUpstreams {
			out = append(out, a)
		}
	}
	return out
}

func (u *upstreams) current(now time.Time) []netip.AddrPort {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.looked.IsZero() && now.Sub(u.looked) < rereadEvery {
		return u.read
	}
	u.looked = now
	info, err := os.Stat(u.path)
	if err != nil {
		u.seen, u.read = nil, nil
		return nil
	}
	if u.seen != nil && os.SameFile(u.seen, info) && u.seen.ModTime().Equal(info.ModTime()) && u.seen.Size() == info.Size() {
		return u.read
	}
	text, err := os.ReadFile(u.path)
	if err != nil {
		return u.read // keep what worked; look again in a second
	}
	u.seen, u.read = info, parseResolvConf(text)
	return u.read
}

// parseResolvConf reads the nameserver lines of resolv.conf(5).
func parseResolvConf(text []byte) (out []netip.AddrPort) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			out = append(out, netip.AddrPortFrom(a.Unmap(), 53))
		}
	}
	return out
}
