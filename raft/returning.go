// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"io"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
)

// pulseless is how long after the last heartbeat to a member, answered or not,
// this node is taken not to lead it any more: longer than one can take.
const pulseless = 15 * time.Second

// returning is a transport on which what failed to reach a member fails no
// sooner than heartbeats reach it again. hashicorp/raft doubles its wait after
// each failure up to 10 s, which a member that was away for half a minute would
// spend out of date, and out of every majority, after its return; so an outage
// is one failure. Heartbeats themselves are tried at least twice a second.
//
// A leader whose disk stands still sends nothing: hashicorp/raft has heartbeats
// go on while it waits for the disk, so that the others would stay with a leader
// that can write nothing. So they elect another one. The old one resigns once its disk
// goes on, as it has heard of no majority for longer than its lease.
type returning struct {
	hraft.Transport
	hraft.WithPreVote
	still  func() bool // this node's disk
	alive  func(hraft.ServerID)
	closed <-chan struct{}

	mu     sync.Mutex
	pulses map[hraft.ServerID]*pulse
}

// pulse is the outcome of the next heartbeat to a member.
type pulse struct {
	done     chan struct{} // closed once it is known
	answered bool
}

// newReturning wraps a transport that has pre-votes, as all of hashicorp/raft's
// have. alive is called when a member has answered a heartbeat.
func newReturning(t hraft.Transport, still func() bool, alive func(hraft.ServerID), closed <-chan struct{}) hraft.Transport {
	votes, ok := t.(hraft.WithPreVote)
	if !ok {
		return t
	}
	return &returning{Transport: t, WithPreVote: votes, still: still, alive: alive, closed: closed, pulses: make(map[hraft.ServerID]*pulse)}
}

// AppendEntries implements hraft.Transport.
func (r *returning) AppendEntries(id hraft.ServerID, target hraft.ServerAddress, args *hraft.AppendEntriesRequest, resp *hraft.AppendEntriesResponse) error {
	err := errStill
	if !r.still() {
		err = r.Transport.AppendEntries(id, target, args, resp)
	}
	if heartbeats(args) {
		r.note(id, err == nil)
		if err == nil {
			r.alive(id)
		}
	} else if err != nil {
		r.await(id)
	}
	return err
}

// AppendEntriesPipeline implements hraft.Transport.
func (r *returning) AppendEntriesPipeline(id hraft.ServerID, target hraft.ServerAddress) (hraft.AppendPipeline, error) {
	p, err := r.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return pipeline{p, r.still}, nil
}

// pipeline is a way to a member that ends when this node's disk stands still.
type pipeline struct {
	hraft.AppendPipeline
	still func() bool
}

// AppendEntries implements hraft.AppendPipeline.
func (p pipeline) AppendEntries(args *hraft.AppendEntriesRequest, resp *hraft.AppendEntriesResponse) (hraft.AppendFuture, error) {
	if p.still() {
		return nil, errStill
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// InstallSnapshot implements hraft.Transport.
func (r *returning) InstallSnapshot(id hraft.ServerID, target hraft.ServerAddress, args *hraft.InstallSnapshotRequest, resp *hraft.InstallSnapshotResponse, data io.Reader) error {
	err := r.Transport.InstallSnapshot(id, target, args, resp, data)
	if err != nil {
		r.await(id)
	}
	return err
}

// heartbeats tells a heartbeat from entries: it is about no place in the log.
func heartbeats(args *hraft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// next is the pulse that is to come.
func (r *returning) next(id hraft.ServerID) *pulse {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pulses[id] == nil {
		r.pulses[id] = &pulse{done: make(chan struct{})}
	}
	return r.pulses[id]
}

func (r *returning) note(id hraft.ServerID, answered bool) {
	p := r.next(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pulses[id] != p {
		return // another heartbeat of an earlier leadership ended first
	}
	p.answered = answered
	close(p.done)
	delete(r.pulses, id)
}

// await waits for a heartbeat that is answered, as long as there are any.
func (r *returning) await(id hraft.ServerID) {
	idle := time.NewTimer(pulseless)
	defer idle.Stop()
	for {
		p := r.next(id)
		select {
		case <-p.done:
			if p.answered {
				return
			}
			idle.Reset(pulseless)
		case <-idle.C:
			return
		case <-r.closed:
			return
		}
	}
}
