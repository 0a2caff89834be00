// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"io"
	"time"

	"github.com/moby/swarmkit/v2/api"

	"satld/cluster"
)

// membership is what a fake cluster was asked to become.
type membership struct {
	joined []cluster.Joining
	left   []bool // forced or not
	inits  []string
	forced int
	err    error // the answer
	ended  chan struct{}
}

func (m *membership) Ended() <-chan struct{} { return m.ended }

func (m *membership) Join(_ context.Context, j cluster.Joining) error {
	m.joined = append(m.joined, j)
	return m.err
}

func (m *membership) Leave(_ context.Context, force bool) error {
	m.left = append(m.left, force)
	return m.err
}

func (m *membership) Init(_ context.Context, advertise string) error {
	m.inits = append(m.inits, advertise)
	return m.err
}

func (m *membership) ForceNewCluster(context.Context) error {
	m.forced++
	return m.err
}

func (m *membership) Backup(w io.Writer, _ time.Time) error {
	if m.err == nil {
		_, m.err = io.WriteString(w, "the whole cluster")
	}
	return m.err
}

func (m *membership) Managers() []api.Peer {
	return []api.Peer{{NodeID: fakeNodeID, Addr: "127.0.0.1:2377"}}
}
