// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"net/netip"
	"time"
)

// links is what the two systems do differently: netlink on Linux, ifconfig(8)
// and route(8) on FreeBSD. Everything is idempotent, decides nothing, and
// touches only what bears our mark.
type links interface {
	// boot names this run of the kernel: what links made does not outlive it.
	boot(ctx context.Context) (string, error)
	// prepare sets what the host needs to route for containers.
	prepare(ctx context.Context) error
	// warnings are what of the host's own settings is in the way, in words.
	warnings(ctx context.Context) []string
	// used tells the prefixes that the host routes or has addresses in,
	// without those of our own interfaces and without the default route.
	used(ctx context.Context) ([]usedPrefix, error)
	// owned lists what bears our mark, namespaces included.
	owned(ctx context.Context) ([]ownedLink, error)
	// exists tells whether an interface has the name, and whether it is ours.
	exists(ctx context.Context, name string) (exists, ours bool, err error)
	// ensureBridge makes a bridge with its address and brings it up, or sets
	// right the one that is there. The caller knows that the name is ours or free.
	ensureBridge(ctx context.Context, n Network) error
	// deleteLink deletes a bridge or link of ours; others, and none, stay as they are.
	deleteLink(ctx context.Context, name string) error
	// attach makes the namespace and the links of a container, or what is
	// missing of them, and returns the namespace's path.
	attach(ctx context.Context, containerID string, wires []wire) (netns string, err error)
	// detach removes the links of the container and its namespace. Where the
	// kernel has to let go of a link first (a jail's), it waits so long as
	// patience and then says so with ErrUnavailable.
	detach(ctx context.Context, containerID string, wires []wire, patience time.Duration) error
	// faults tells what is no longer as it was made: of the bridges of nets, and
	// of the containers' links, where a container is attached. It only reads.
	faults(ctx context.Context, nets []Network, wires map[string][]wire) ([]fault, error)
	// join puts those links of the container that are there on their bridges, up.
	join(ctx context.Context, containerID string, wires []wire) error
	// tunnel makes, of a network that is on other nodes too, the link to them:
	// from local, to exactly these peers. Without peers and link there is
	// nothing to do.
	tunnel(ctx context.Context, n Network, local netip.Addr, peers []Peer) error
	// carrierMTU is the MTU of the interface with the address; 0 without one,
	// and of a loopback, which carries nothing to anybody.
	carrierMTU(ctx context.Context, local netip.Addr) (int, error)
	// resize gives the container's links that are there their MTU, both ends.
	resize(ctx context.Context, containerID string, wires []wire) error
	close() error
}

// wire is one link to make: an attachment and the bridge it hangs on.
type wire struct {
	Attachment
	Bridge  string
	Default bool // the default route leads through it
	MTU     int  // bytes; 0 is the system's own
	// Isolated keeps it from others of the bridge that are isolated too.
	Isolated bool
}

type usedPrefix struct {
	Prefix netip.Prefix
	By     string // in words: "interface docker0", "route via eth0"
}

type ownedLink struct {
	Name string
	Kind string // "c": a container's link or namespace; "n": a network's bridge; "": ours, half made
	ID   string // of the container or the network
}

// journal remembers what is being made and bears no mark yet, so that a crash
// at any step leaves nothing that nobody knows.
type journal interface {
	// begin is called before the interface is made.
	begin(name string, u unfinished) error
	// end is called when it bears its mark and its name, or is gone.
	end(name string) error
	pending() map[string]unfinished
}

// unfinished is an interface that is being made under a name of the kernel's.
type unfinished struct {
	For string `json:"for"` // ID of its container or network
	As  string `json:"as"`  // the name that it gets in the end
}
