// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/raft"
)

// rolesPeriod makes a missed event mere latency.
const rolesPeriod = time.Second

// roleStep is one thing to do for a node's role to be the one wanted.
type roleStep struct {
	node string
	do   roleAction
}

type roleAction int

const (
	promote  roleAction = iota // let it have a manager's certificate
	expel                      // take it out of the consensus
	stepDown                   // it is this node: somebody else must lead first
	demote                     // let it have a worker's certificate
)

// planRoles compares what nodes are with what they are to be. The order for a
// demotion is: out of the consensus, then a worker's certificate. Members whose
// node is gone are expelled. Nothing is planned that would leave the consensus
// without a majority that can be reached.
func planRoles(nodes []*api.Node, members []raft.Member, self string) (steps []roleStep) {
	in := make(map[string]bool, len(members))
	known := make(map[string]bool, len(nodes))
	for _, m := range members {
		in[m.ID] = true
	}
	leave := func(id string) {
		switch {
		case !canLeave(members, id):
		case id == self:
			steps = append(steps, roleStep{id, stepDown})
		default:
			steps = append(steps, roleStep{id, expel})
		}
	}
	for _, n := range nodes {
		known[n.ID] = true
		switch {
		case n.Spec.DesiredRole == n.Role:
		case n.Spec.DesiredRole == api.NodeRoleManager:
			steps = append(steps, roleStep{n.ID, promote})
		case in[n.ID]:
			leave(n.ID)
		default:
			steps = append(steps, roleStep{n.ID, demote})
		}
	}
	for _, m := range members {
		if !known[m.ID] && m.ID != self {
			leave(m.ID)
		}
	}
	return steps
}

// canLeave tells whether the consensus keeps a majority that can be reached
// when a member leaves it.
func canLeave(members []raft.Member, id string) bool {
	rest, reachable := 0, 0
	for _, m := range members {
		if m.ID == id || !m.Voter {
			continue
		}
		rest++
		if !m.Unreachable {
			reachable++
		}
	}
	return rest > 0 && reachable > rest/2
}

// keepRoles makes roles what they are to be until ctx is done.
func (n *member) keepRoles(ctx context.Context) {
	changed, cancel := state.Watch(n.store.WatchQueue(), api.EventUpdateNode{}, api.EventDeleteNode{})
	defer cancel()
	tick := time.NewTicker(rolesPeriod)
	defer tick.Stop()
	for {
		if err := n.rolesPass(ctx); err != nil && ctx.Err() == nil && !errors.As(err, new(*raft.WriteError)) {
			n.log.Error("a node's role could not be changed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			drain(changed)
		case <-tick.C:
		}
	}
}

func (n *member) rolesPass(ctx context.Context) error {
	var nodes []*api.Node
	var err error
	n.store.View(func(tx store.ReadTx) { nodes, err = store.FindNodes(tx, store.All) })
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range planRoles(nodes, n.raft.Members(), n.id.nodeID()) {
		n.log.Info("a node's role changes", "node_id", s.node, "step", [...]string{"promote", "expel", "step down", "demote"}[s.do])
		switch s.do {
		case promote:
			errs = append(errs, n.setRole(s.node, api.NodeRoleManager))
		case demote:
			errs = append(errs, n.setRole(s.node, api.NodeRoleWorker))
		case expel:
			err := n.raft.RemoveMember(ctx, s.node)
			if err == nil {
				// At once: the node renews its certificate as soon as it is
				// told of the role it shall have, and one that comes with the
				// old role costs it seconds.
				err = n.setRole(s.node, api.NodeRoleWorker)
			}
			errs = append(errs, err)
		case stepDown:
			return errors.Join(append(errs, n.raft.StepDown())...)
		}
	}
	return errors.Join(errs...)
}

func (n *member) setRole(id string, role api.NodeRole) error {
	return n.store.Update(func(tx store.Tx) error {
		node := store.GetNode(tx, id)
		if node == nil || node.Spec.DesiredRole != role {
			return nil // changed meanwhile: decided anew
		}
		node = node.Copy()
		node.Role = role
		return store.UpdateNode(tx, node)
	})
}
