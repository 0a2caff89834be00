// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"errors"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
)

// Run follows this node's leadership until ctx is done. While this node leads
// and has applied what earlier leaders left, lead runs; its context ends with
// the leadership, and Run waits for it to return. An error of lead ends Run.
//
// A leader whose write failed, as its disk stood still, does not go on from
// there: lead ends, and runs anew once all that was under way is decided.
// SwarmKit's parts take a write to fail with the leadership only. What its
// dispatcher had to say of nodes and tasks it would never say again.
func (n *Node) Run(ctx context.Context, lead func(context.Context) error) error {
	stop := func() error { return nil }
	defer func() { stop() }()
	failed := make(chan error, 1)
	// begin ends what runs and, if this node leads, runs it anew.
	begin := func(leads bool) error {
		err := stop()
		stop = func() error { return nil }
		if err == nil && leads && n.takeOver(ctx) == nil {
			stop = n.startLeading(ctx, lead, failed)
		}
		n.nudge()
		return err
	}
	snapshot := time.NewTimer(firstGeneration)
	defer snapshot.Stop()
	var saved uint64
	for {
		select {
		case <-ctx.Done():
			return stop()
		case err := <-failed:
			return err
		case <-snapshot.C:
			snapshot.Reset(generation)
			if v := n.fsm.version(); v != saved {
				saved = v
				go n.snapshot()
			}
		case leads := <-n.leader:
			if !leads {
				n.fsm.lead(false)
			}
			if err := begin(leads); err != nil {
				return err
			}
		case <-n.faltered:
			if !n.Leads() {
				continue // the write failed with the leadership: that is in n.leader
			}
			n.log.Warn("a write to the cluster store was not done in time: the leader's parts start anew once it can be written", "time", n.cfg.ProposeTimeout)
			if err := begin(true); err != nil {
				return err
			}
		}
	}
}

// takeOver waits until everything written before is applied, by earlier leaders
// or by this one, and opens the door for proposals.
func (n *Node) takeOver(ctx context.Context) error {
	applied := make(chan error, 1)
	go func() { applied <- n.raft.Barrier(0).Error() }()
	select {
	case err := <-applied:
		if err != nil {
			return err // leadership is gone again; its end is in n.leader
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-n.faltered: // of what has just ended
	default:
	}
	n.fsm.lead(true)
	if err := n.fixAddress(); err != nil {
		n.log.Warn("own address could not be changed in the cluster's configuration", "address", n.cfg.Addr, "error", err)
	}
	n.log.Info("leading the cluster", "node_id", n.cfg.ID)
	return nil
}

// startLeading runs lead; the function it returns ends it and waits for it.
func (n *Node) startLeading(ctx context.Context, lead func(context.Context) error, failed chan<- error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		err := lead(ctx)
		if err != nil && ctx.Err() == nil {
			failed <- err
		}
		done <- err
	}()
	return sync.OnceValue(func() error {
		cancel()
		err := <-done
		// The door stays open until the leader's parts have ended, so that
		// what they still have to write can be written on a normal stop.
		n.fsm.lead(false)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// fixAddress makes the configuration name the address this node has now.
func (n *Node) fixAddress() error {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return err
	}
	for _, s := range f.Configuration().Servers {
		if string(s.ID) == n.cfg.ID && string(s.Address) != n.cfg.Addr {
			n.log.Info("own address changed", "from", s.Address, "to", n.cfg.Addr)
			return n.raft.AddVoter(s.ID, hraft.ServerAddress(n.cfg.Addr), 0, addressTimeout).Error()
		}
	}
	return nil
}

func (n *Node) snapshot() {
	err := n.raft.Snapshot().Error()
	if err != nil && !errors.Is(err, hraft.ErrNothingNewToSnapshot) && !errors.Is(err, hraft.ErrRaftShutdown) {
		n.log.Warn("no snapshot of the cluster store was taken", "error", err)
	}
}
