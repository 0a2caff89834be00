// SPDX-License-Identifier: BSD-2-Clause

// Package traffic decides which tasks may be reached: the one predicate for
// redirect pools and for DNS, recomputed whole at each change. It feeds a
// Redirector (nft or pf) and answers names; it knows nothing of why.
//
// A Table holds the members of this node. Names are answered from it directly,
// so a change is in DNS at once; Run is the one loop that brings the packet
// filter there: it computes the whole set of pools (Plan), writes it whole,
// tries again when that failed, audits what is there and now and then asserts
// it all again (DESIGN.md, section 5). A pool exists, and refuses connections,
// as long as a member publishes its port, be it starting or draining: a port
// that is published never falls through to whatever else listens on the host.
package traffic

import (
	"context"
	"net/netip"

	"satld/redirect"
)

// Port is one published port of a member.
type Port struct {
	Proto     string     // "tcp", "udp", "sctp"
	HostIP    netip.Addr // invalid or unspecified: every address of the host
	Published uint16
	Target    uint16
}

// Endpoint is a member's place in one network.
type Endpoint struct {
	NetworkID string
	Addr      netip.Addr
	Aliases   []string // names besides the service's and the container's, in this network
	Nameless  bool     // no name is answered with it: it carries redirected traffic only
}

// Member is one running container of this node as far as traffic is concerned.
type Member struct {
	ContainerID   string // key
	Name          string // container name: web.1.<task id>, or the name given to run
	TaskID        string // empty for run
	ServiceID     string
	ServiceName   string
	Slot          uint64
	Endpoints     []Endpoint // the first one receives published traffic
	Ports         []Port
	NotReadyNames bool // service label satl.dns.not-ready=true: tasks.<service> lists it while starting
	FailOpen      bool // service label satl.traffic.fail-open=true

	// Serving is the predicate: observed RUNNING, desired RUNNING, not
	// withdrawn (DESIGN.md section 5). A starting member resolves others but
	// is listed by no name of its service. Without Process it counts for nothing.
	Serving bool
	// Unhealthy is true of a member that is RUNNING, is to go on running, and
	// is out of traffic for its health alone: whom FailOpen may fall back on.
	// Starting and draining members are not (cases/pool.md, pool-8).
	Unhealthy bool
	// Process is true while the main process lives: established TCP flows to
	// a withdrawn member are left alone until it ends (cases/pool.md, pool-2).
	Process bool
}

// Redirector writes the packet filter: nft on Linux, pf on FreeBSD.
type Redirector interface {
	// Apply makes the filter hold exactly rules, in one transaction, and
	// nothing outside our own table or anchors is touched.
	Apply(ctx context.Context, rules redirect.Rules) error
	// Audit tells whether the filter still holds what Apply wrote last.
	Audit(ctx context.Context) (same bool, err error)
	// Cut deletes connection state: UDP flows (and half-open TCP) to each
	// removed member of a pool and, where all is set, established TCP too.
	// Nothing else is touched.
	Cut(ctx context.Context, flows []redirect.Flow) error
	// Clear removes our table or anchors' rules altogether.
	Clear(ctx context.Context) error
}

var _ Traffic = (*Table)(nil)

// Traffic is what the executor uses of this package; *Table implements it.
type Traffic interface {
	// Put adds or replaces a member. When it makes the member serve, Put
	// returns after the packet filter holds it, or when ctx is done.
	Put(ctx context.Context, m Member) error
	// Withdraw takes a member out of every pool and name at once and returns
	// when the packet filter confirmed it, or with ctx's error; the change
	// stands and is retried either way.
	Withdraw(ctx context.Context, containerID string) error
	// Remove forgets a member whose process is gone; its remaining flows are cut.
	Remove(ctx context.Context, containerID string) error
}
