// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// detachWithin bounds giving an address back; what fails is done again when
// the node is told of its networks next.
const detachWithin = 10 * time.Second

// attachRun gives a container that is no task its addresses in overlay
// networks. It keeps them until it is removed, so that it starts again without
// anybody to ask.
func (n *Node) attachRun(ctx context.Context, c *Container) (Record, error) {
	rec := c.record()
	if rec.TaskID != "" || rec.Host {
		return rec, nil
	}
	addrs := maps.Clone(rec.Addrs)
	for _, id := range rec.NetworkIDs {
		if have, known := n.cfg.Networks.Get(id); known && have.VNI == 0 || addrs[id].IsValid() {
			continue
		}
		if n.cfg.Leader == nil {
			return rec, fmt.Errorf("network %s is not of this node", id)
		}
		addr, err := n.cfg.Leader.AttachContainer(ctx, id, c.id)
		if err != nil {
			return rec, err
		}
		if addrs == nil {
			addrs = make(map[string]netip.Addr)
		}
		addrs[id] = addr
	}
	if maps.Equal(addrs, rec.Addrs) {
		return rec, nil
	}
	if err := n.update(c, func(r *Record) { r.Addrs = addrs }); err != nil {
		return rec, err
	}
	for id := range addrs {
		if err := n.awaitNetwork(ctx, id, id); err != nil {
			return rec, err
		}
	}
	return c.record(), nil
}

// giveBackAddresses has those freed that are of containers that are gone. Their
// removal is no time to ask for it: the cluster may be out of reach then.
func (n *Node) giveBackAddresses(node *api.Node) {
	if n.cfg.Leader == nil {
		return
	}
	for _, at := range node.Attachments {
		if at.Network == nil || len(at.Aliases) == 0 {
			continue
		}
		if _, here := n.byID(at.Aliases[0]); !here {
			n.wg.Go(func() { n.giveBack(at.Network.ID, at.Aliases[0]) })
		}
	}
}

func (n *Node) giveBack(networkID, containerID string) {
	ctx, cancel := context.WithTimeout(n.ctx, detachWithin)
	defer cancel()
	if err := n.cfg.Leader.DetachContainer(ctx, networkID, containerID); err != nil {
		n.log.Warn("address of a removed container is not given back yet", "container", containerID, "err", err)
	}
}
