// SPDX-License-Identifier: BSD-2-Clause

// Package dns answers names of services and containers to the tasks of this
// node, and forwards every other question to the host's resolvers. Who has
// which name it asks of Names; it remembers no answer.
//
// Our names are answered for A (shuffled, TTL at most 5 s); every other type,
// and a name that nobody answers to now, gets NOERROR without data and a SOA
// (RFC 2308). Addresses of ours have a PTR. All else goes to the resolvers of
// /etc/resolv.conf, read again when it changes, over the transport that the
// asker used.
package dns

import (
	"context"
	"net/netip"
)

// Names answers names of services, tasks and containers; traffic implements it.
type Names interface {
	// Await waits, until ctx is done, as long as an unknown name may yet turn
	// out to be a service's: a node that starts has not heard of them all.
	// settled is false if that is still so. A name that no service can have
	// is not waited for.
	Await(ctx context.Context, name string) (settled bool)
	// Lookup resolves a name (lower case, without a trailing dot) as seen by
	// the asker: only names in a network that the asker's address is in.
	// known tells whether such a name exists at all, also when nobody serves
	// it now (then the answer is empty but not NXDOMAIN).
	Lookup(asker netip.Addr, name string) (addrs []netip.Addr, known bool)
	// Reverse names the container with the address, for PTR questions.
	Reverse(addr netip.Addr) (name string, known bool)
}
