// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"satld/raft"
)

// lost is what a write is told whose question went out and was never answered:
// it may have taken place, or may yet (cases/store.md, store-2). gRPC's own
// words must not go on to SwarmKit's proxy, which knows a lost connection by
// them and then sends the write once more: a create would be refused for the
// name that it has taken itself, or be done twice.
func lost(err error) error {
	cause := "the connection was lost before the answer"
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		cause = "no answer in time"
	case codes.Unavailable, codes.Canceled, codes.Internal, codes.Unknown:
	default:
		return err // refused before anything was done
	}
	unknown := raft.WriteError{Reason: raft.ErrUnknown, Cause: errors.New(cause)}
	return unknown.GRPCStatus().Err()
}

// changes tells whether a method may change the store, by the name where it is
// a call of our own.
func (n *member) changes(ctx context.Context, method string) bool {
	if method != callMethod {
		return isWrite(method)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	return n.calls[first(md.Get(nameKey))].leader
}

// unreached is what this process is told of a write that was never sent,
// because the leader could not be reached: gRPC's words leave that open.
func (n *member) unreached(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoker(ctx, method, req, reply, cc, opts...)
	if s, _ := status.FromError(err); isWrite(method) && s.Code() == codes.Unavailable && strings.HasPrefix(s.Message(), "connection error") {
		return status.Error(codes.Unavailable, "the cluster's leader cannot be reached and nothing was written: try again")
	}
	return err
}

type sentKey struct{}

// noteSending is a context for one call, and whether its question went out.
func noteSending(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

// sending notes in a call's context that its question went out.
type sending struct{}

var _ stats.Handler = sending{}

// HandleRPC implements stats.Handler.
func (sending) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, out := s.(*stats.OutPayload); !out {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

// TagRPC implements stats.Handler.
func (sending) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (sending) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (sending) HandleConn(context.Context, stats.ConnStats) {}
