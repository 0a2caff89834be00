// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/remotes"

	"satld/platform/atomicfile"
)

// rememberPeriod is how often new managers are written down.
const rememberPeriod = time.Second

// remembered is what a node keeps of its cluster beside its certificates: the
// managers to turn to after a restart.
type remembered struct {
	file string

	mu   sync.Mutex
	data membership
}

// membership is remembered's file.
type membership struct {
	// Advertise is the address that the node was told to give others when it
	// joined; "" where it was told none.
	Advertise string `json:"advertise,omitempty"`
	// Left says that the node left a cluster on purpose: what it held of it
	// is gone rightly.
	Left bool `json:"left,omitempty"`
	// Restored says that the node's state is that of a backup.
	Restored bool `json:"restored,omitempty"`
	// Managers are those of the others; none is a cluster of one.
	Managers []manager `json:"managers,omitempty"`
}

type manager struct {
	ID   string `json:"id,omitempty"`
	Addr string `json:"addr"`
}

func rememberedFile(stateDir string) string { return filepath.Join(stateDir, "cluster.json") }

func openRemembered(stateDir string) (*remembered, error) {
	data, err := readMembership(rememberedFile(stateDir))
	return &remembered{file: rememberedFile(stateDir), data: data}, err
}

// readMembership reads the file; one that is missing says nothing.
func readMembership(file string) (m membership, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read the managers of this node's cluster: %s: %w; put the file back from a copy", file, err)
	}
	return m, nil
}

func (r *remembered) advertise() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data.Advertise
}

func (r *remembered) left() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data.Left
}

func (r *remembered) managers() []api.Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]api.Peer, 0, len(r.data.Managers))
	for _, m := range r.data.Managers {
		out = append(out, api.Peer{NodeID: m.ID, Addr: m.Addr})
	}
	return out
}

// setManagers writes the managers down if they are others than those there.
func (r *remembered) setManagers(peers []api.Peer) error {
	var list []manager
	for _, p := range peers {
		list = append(list, manager{ID: p.NodeID, Addr: p.Addr})
	}
	slices.SortFunc(list, func(a, b manager) int { return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.ID, b.ID)) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(list, r.data.Managers) {
		return nil
	}
	next := r.data
	next.Managers = list
	if err := writeMembership(r.file, next); err != nil {
		return err
	}
	r.data = next
	return nil
}

// writeMembership waits for the disk: which cluster the node is in decides what
// of its state is removed (finishChange). It changes with the managers.
func writeMembership(file string, m membership) error {
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.WriteDurably(file, append(b, '\n'), 0o600)
}

// keepKnown writes down which managers the cluster has, and on a manager keeps
// the agent's list of them, until ctx is done. A worker's list is its agent's:
// every session with a manager brings it.
func (n *member) keepKnown(ctx context.Context) error {
	tick := time.NewTicker(rememberPeriod)
	defer tick.Stop()
	for {
		if err := n.remember.setManagers(n.known()); err != nil {
			n.log.Warn("the cluster's managers could not be written down", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// known are the other managers, as far as this node knows.
func (n *member) known() []api.Peer {
	list := n.broker.Remotes()
	if n.raft != nil {
		current := n.members.list()
		if len(current) == 0 {
			return n.remember.managers() // raft does not know them yet
		}
		for p := range list.Weights() {
			if !slices.Contains(current, p) {
				list.Remove(p)
			}
		}
		for _, p := range current {
			if p.NodeID != n.id.nodeID() {
				if _, known := list.Weights()[p]; !known {
					list.Observe(p, remotes.DefaultObservationWeight)
				}
			}
		}
	}
	var out []api.Peer
	for p := range list.Weights() {
		if p.Addr != n.advertise && p.NodeID != n.id.nodeID() {
			out = append(out, p)
		}
	}
	if len(out) == 0 && n.raft == nil {
		return n.remember.managers() // a worker never forgets the last one
	}
	return named(out)
}

// named leaves out the address that a node joined by, of whose manager it knew
// no ID then, where it knows the ID by now.
func named(peers []api.Peer) []api.Peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p api.Peer) bool {
		return p.NodeID == "" && slices.ContainsFunc(peers, func(o api.Peer) bool { return o.NodeID != "" && o.Addr == p.Addr })
	})
}
