// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/raft"
)

const (
	// enlistRetry is the wait before a manager that is not in the consensus yet
	// asks again.
	enlistRetry = 500 * time.Millisecond
	// enlistedCheck is how often one that is in looks whether it still is.
	enlistedCheck = 2 * time.Second
	// enlistBound bounds one question.
	enlistBound = 10 * time.Second
	// reachBound is how long an address may take to answer.
	reachBound = 3 * time.Second
)

// enlistment is a manager's wish to be in the consensus, at Addr.
type enlistment struct {
	Addr string
	// Empty says that the manager holds nothing: what it voted and stored
	// before, if it is a member already, is lost.
	Empty bool
}

// enlist sees to it that this manager is in the consensus under its address
// of today, until ctx is done: a new manager joins so, and one whose address
// changed is found again. One that is told that it is no manager any more, which
// the consensus does not tell those that it drops, becomes a worker.
func (n *member) enlist(ctx context.Context, renewer *ca.TLSRenewer) error {
	empty := n.raft.Empty()
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		in := n.enlisted() && !empty
		if leader, _ := n.raft.Leader(); in && leader != "" {
			wait.Reset(enlistedCheck)
			continue
		}
		again := enlistRetry
		switch applied, err := n.enlistOnce(ctx, empty); {
		case err == nil:
			empty = false
			n.awaitIndex(ctx, applied)
			n.caughtUp.Store(true)
		case status.Code(err) == codes.PermissionDenied:
			n.log.Info("this node is no manager any more", "reason", status.Convert(err).Message())
			n.dismissed(renewer)
			again = enlistBound // until it is another member
		case ctx.Err() == nil && !in:
			n.log.Warn("this manager could not be entered in the consensus yet", "address", n.advertise, "error", err)
		}
		wait.Reset(again)
	}
}

// enlisted tells whether the consensus knows this node under its address.
func (n *member) enlisted() bool {
	if n.raft.Leads() {
		return true // it changes its own address itself
	}
	return slices.ContainsFunc(n.raft.Members(), func(m raft.Member) bool {
		return m.ID == n.id.nodeID() && m.Addr == n.advertise
	})
}

// enlistOnce asks every manager that is known, until one lets it in, and tells
// how far the leader's store was then. PermissionDenied is that this node is no
// manager any more.
func (n *member) enlistOnce(ctx context.Context, empty bool) (applied uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, enlistBound)
	defer cancel()
	var denied []error
	err = status.Error(codes.Unavailable, "no other manager is known")
	for _, p := range n.known() {
		err = n.ask(ctx, p.Addr, "enlist", enlistment{Addr: n.advertise, Empty: empty}, &applied)
		switch status.Code(err) {
		case codes.OK:
			return applied, nil
		case codes.PermissionDenied:
			denied = append(denied, err)
		}
	}
	if len(denied) > 0 && believed(len(denied), n.raft.Members(), n.id.nodeID()) {
		return 0, denied[0]
	}
	if status.Code(err) == codes.PermissionDenied {
		err = status.Error(codes.Unavailable, "not all managers say that this node is none")
	}
	return 0, err
}

// believed tells whether so many managers are enough to say to a member that it
// is none: most of the others. One alone may have been made a cluster of its own
// (--force-new-cluster) while the rest is there. What is no member, as it knows
// itself, believes anybody.
func believed(denied int, members []raft.Member, self string) bool {
	in, others := false, 0
	for _, m := range members {
		in = in || m.ID == self
		if m.Voter && m.ID != self {
			others++
		}
	}
	return !in || denied > others/2
}

// admitManager enters the caller in the consensus.
func (n *member) admitManager(ctx context.Context, caller string, in enlistment) (any, error) {
	var node *api.Node
	n.store.View(func(tx store.ReadTx) { node = store.GetNode(tx, caller) })
	if node == nil || node.Role != api.NodeRoleManager || node.Spec.DesiredRole != api.NodeRoleManager {
		return nil, status.Errorf(codes.PermissionDenied, "node %s is no manager of this cluster", caller)
	}
	if err := reachable(ctx, in.Addr); err != nil {
		return nil, err
	}
	if in.Empty {
		// Whatever it has promised before, it does not remember: it comes back
		// as somebody new.
		if err := n.raft.RemoveMember(ctx, caller); err != nil {
			return nil, err
		}
	}
	n.log.Info("manager enters the consensus", "node_id", caller, "address", in.Addr, "empty", in.Empty)
	if err := n.raft.AddMember(ctx, caller, in.Addr); err != nil {
		return nil, err
	}
	return n.raft.GetVersion().Index, nil
}

// reachable tells whether something listens at addr.
func reachable(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, reachBound)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return status.Errorf(codes.FailedPrecondition, "the manager's address %s cannot be reached from here (%v): give it another with --advertise-addr", addr, err)
	}
	return c.Close()
}
