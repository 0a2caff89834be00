// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	// appliedKey carries how far a manager's store was when it answered. An
	// answer without it is not the other node's, but gRPC's own word on what
	// became of the question; one with nothing in it is a worker's.
	appliedKey = "satl-applied"
	// appliedBound is how long an answer waits for this node's store to be as
	// far; what follows may then read older state.
	appliedBound = 5 * time.Second
	appliedPoll  = time.Millisecond
)

// isWrite tells whether a method may have changed the store.
func isWrite(method string) bool {
	name, ok := strings.CutPrefix(method, "/docker.swarmkit.v1.Control/")
	if method == callMethod {
		return true
	}
	return ok && !isRead(name)
}

func isRead(name string) bool {
	return strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List")
}

// tellApplied is the part of who answers: what it says to a write says how far
// its store is. That is the leader, or a manager that handed the write on to it
// and waited until it was as far itself. A refusal does too: who is told that something is gone must not
// read it after that.
func (n *member) tellApplied(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if isWrite(info.FullMethod) {
		var applied string
		if n.raft != nil {
			applied = strconv.FormatUint(n.raft.GetVersion().Index, 10)
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs(appliedKey, applied)) // fails only outside of a call
	}
	return resp, err
}

// awaitApplied is the follower's part: a client that writes here and then
// reads here finds what it wrote, or why it could not. A write whose answer is
// lost is told as such; see lost.
func (n *member) awaitApplied(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !n.changes(ctx, method) { // what nodes tell and ask each other waits for no store
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	var trailer metadata.MD
	ctx, sent := noteSending(ctx)
	err := invoker(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...)
	answer := trailer.Get(appliedKey)
	if err != nil && len(answer) == 0 && sent.Load() {
		err = lost(err)
	}
	index, none := strconv.ParseUint(first(answer), 10, 64)
	if none != nil || n.raft == nil {
		return err // a worker answered, or nobody
	}
	ctx, cancel := context.WithTimeout(ctx, appliedBound)
	defer cancel()
	n.awaitIndex(ctx, index)
	return err
}

// awaitIndex waits until this node's store is as far as index, unless it cannot
// get there.
func (n *member) awaitIndex(ctx context.Context, index uint64) {
	tick := time.NewTicker(appliedPoll)
	defer tick.Stop()
	for n.raft.GetVersion().Index < index && n.raft.Trouble() == nil {
		select {
		case <-ctx.Done():
			return
		case <-n.ended:
			return
		case <-tick.C:
		}
	}
}
