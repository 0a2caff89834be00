// SPDX-License-Identifier: BSD-2-Clause

package forward

import (
	"context"
	"net/netip"
	"slices"

	"satld/redirect"
)

// pool is a published port and who gets its connections; the Forwarder's lock
// guards it.
type pool struct {
	key     redirect.Key
	members []*member
	next    int // whose turn it is
}

// member is one address in a pool. Its context is over when it leaves, and
// with it every attempt to connect to it.
type member struct {
	addr  netip.AddrPort
	in    context.Context
	leave context.CancelFunc
}

// set makes the pool hold exactly the addresses; who stays keeps his place.
func (p *pool) set(addrs []netip.AddrPort) {
	var now []*member
	for _, m := range p.members {
		if slices.Contains(addrs, m.addr) {
			now = append(now, m)
		} else {
			m.leave()
		}
	}
	for _, a := range addrs {
		if !slices.ContainsFunc(now, func(m *member) bool { return m.addr == a }) {
			m := &member{addr: a}
			m.in, m.leave = context.WithCancel(context.Background())
			now = append(now, m)
		}
	}
	p.members = now
}

// turn is the member whose turn it is; nil when there is none.
func (p *pool) turn() *member {
	if len(p.members) == 0 {
		return nil
	}
	m := p.members[p.next%len(p.members)]
	p.next = (p.next + 1) % len(p.members)
	return m
}
