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
	// appliedKey carries how far the leader's store was when it answered.
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

// tellApplied is the leader's part: its answers to writes say how far its
// store is.
func (n *member) tellApplied(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if err == nil && n.raft != nil && n.raft.Leads() && isWrite(info.FullMethod) {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(appliedKey, strconv.FormatUint(n.raft.GetVersion().Index, 10))) // fails only outside of a call
	}
	return resp, err
}

// awaitApplied is the follower's part: a client that writes here and then
// reads here finds what it wrote.
func (n *member) awaitApplied(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if n.raft == nil || !isWrite(method) {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	var trailer metadata.MD
	if err := invoker(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...); err != nil {
		return err
	}
	index, err := strconv.ParseUint(first(trailer.Get(appliedKey)), 10, 64)
	if err != nil {
		return nil // another follower answered, or none of our kind
	}
	ctx, cancel := context.WithTimeout(ctx, appliedBound)
	defer cancel()
	n.awaitIndex(ctx, index)
	return nil
}

// awaitIndex waits until this node's store is as far as index.
func (n *member) awaitIndex(ctx context.Context, index uint64) {
	tick := time.NewTicker(appliedPoll)
	defer tick.Stop()
	for n.raft.GetVersion().Index < index {
		select {
		case <-ctx.Done():
			return
		case <-n.ended:
			return
		case <-tick.C:
		}
	}
}
