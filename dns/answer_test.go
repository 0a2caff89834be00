// SPDX-License-Identifier: BSD-2-Clause

package dns

import (
	"context"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// late knows a name only after it was waited for.
type late struct {
	comes, settles bool // in time
	waited         bool
}

func (l *late) Lookup(netip.Addr, string) ([]netip.Addr, bool) {
	return []netip.Addr{netip.MustParseAddr("10.88.0.2")}, l.waited && l.comes
}

func (l *late) Await(ctx context.Context, _ string) bool {
	_, bounded := ctx.Deadline()
	l.waited = bounded
	return l.settles
}

func (*late) Reverse(netip.Addr) (string, bool) { return "", false }

// A node that starts says of no name that it does not exist, nor lets its
// resolver say so, before it has heard of all services.
func TestUnknownNameOfANodeThatStarts(t *testing.T) {
	asker := netip.MustParseAddr("10.88.0.9")
	question := new(dns.Msg).SetQuestion("web.", dns.TypeA)
	for _, c := range []struct {
		comes, settles bool
		want           string
	}{{true, true, "10.88.0.2"}, {false, true, "forwarded"}, {true, false, "SERVFAIL"}} {
		got := "forwarded"
		reply := New(&late{comes: c.comes, settles: c.settles}, Config{}).local(question, asker)
		switch {
		case reply != nil && len(reply.Answer) == 1:
			got = reply.Answer[0].(*dns.A).A.String()
		case reply != nil:
			got = dns.RcodeToString[reply.Rcode]
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
