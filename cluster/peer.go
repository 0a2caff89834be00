// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/raftselector"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// What nodes say to each other beyond SwarmKit's services: one stream for
// raft, and calls with JSON in and out.
const (
	raftMethod = "/satl.Peer/Raft"
	callMethod = "/satl.Peer/Call"

	// nameKey carries the name of a call, callerKey the node for which a
	// manager hands a call on.
	nameKey   = "satl-call"
	callerKey = "satl-caller"
)

var (
	anyNode     = []string{ca.WorkerRole, ca.ManagerRole}
	managerOnly = []string{ca.ManagerRole}
)

// call is one thing that a node answers.
type call struct {
	roles  []string // who may ask
	leader bool     // the leader answers; other managers hand it on
	serve  func(ctx context.Context, caller string, body []byte) (any, error)
}

// peerService is satl.Peer for gRPC.
var peerService = grpc.ServiceDesc{
	ServiceName: "satl.Peer",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(srv any, ctx context.Context, dec func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.BytesValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		return around(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: callMethod}, func(ctx context.Context, in any) (any, error) {
			return srv.(*member).answer(ctx, in.(*wrapperspb.BytesValue))
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Raft", ServerStreams: true, ClientStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		m := srv.(*member)
		caller, err := m.caller(stream.Context(), managerOnly)
		if err != nil {
			return err
		}
		if m.streams == nil {
			return status.Error(codes.Unavailable, "this node is not a manager")
		}
		if m.raft.Leads() && m.members.status(caller) == nil {
			// One that this cluster went on without (--force-new-cluster, a
			// restored backup) would bring back what it knows.
			return status.Errorf(codes.PermissionDenied, "node %s is no manager of this cluster any more", caller)
		}
		return m.streams.serve(stream)
	}}},
}

// caller is the node that asks, if its certificate is of this cluster, has
// one of the roles, and was not removed.
func (n *member) caller(ctx context.Context, roles []string) (string, error) {
	return ca.AuthorizeOrgAndRole(ctx, n.id.clusterID(), n.removedNodes(), roles...)
}

// answer answers another node's call.
func (n *member) answer(ctx context.Context, in *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	name := first(md.Get(nameKey))
	c, ok := n.calls[name]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "unknown call %q", name)
	}
	caller, err := n.caller(ctx, c.roles)
	if err != nil {
		return nil, err
	}
	handedOn := first(md.Get(callerKey))
	if handedOn != "" {
		if _, err := n.caller(ctx, managerOnly); err != nil {
			return nil, err
		}
		caller = handedOn
	}
	if c.leader && (n.raft == nil || !n.raft.Leads()) {
		if handedOn != "" || n.raft == nil {
			return nil, status.Error(codes.Unavailable, "this node does not lead the cluster: try again")
		}
		conn, err := n.members.LeaderConn(ctx)
		if err != nil {
			return nil, unlessLeader(err)
		}
		out := new(wrapperspb.BytesValue)
		ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs(nameKey, name, callerKey, caller))
		return out, conn.Invoke(ctx, callMethod, in, out)
	}
	out, err := reply(c.serve(ctx, caller, in.Value))
	return out, withCode(err)
}

// withCode is an error as it travels: gRPC knows its kind by the code.
func withCode(err error) error {
	if _, coded := status.FromError(err); err == nil || coded {
		return err
	}
	code := codes.Unknown
	switch {
	case errdefs.IsNotFound(err):
		code = codes.NotFound
	case errdefs.IsInvalidArgument(err):
		code = codes.InvalidArgument
	case errdefs.IsFailedPrecondition(err):
		code = codes.FailedPrecondition
	case errdefs.IsConflict(err), errdefs.IsAlreadyExists(err):
		code = codes.AlreadyExists
	case errdefs.IsUnavailable(err):
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

func reply(out any, err error) (*wrapperspb.BytesValue, error) {
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &wrapperspb.BytesValue{Value: b}, nil
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// unlessLeader words what LeaderConn says of a node that leads since a moment.
func unlessLeader(err error) error {
	if err == raftselector.ErrIsLeader {
		return status.Error(codes.Unavailable, "this node leads the cluster since a moment: try again")
	}
	return err
}

// askLeader makes a call to the leader, wherever it is, through any manager.
// out may be nil.
func (n *member) askLeader(ctx context.Context, name string, in, out any) error {
	c, ok := n.calls[name]
	if !ok || !c.leader {
		return fmt.Errorf("call %q is none to the leader", name)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if n.raft != nil {
		conn, err := n.members.LeaderConn(ctx)
		switch {
		case err == raftselector.ErrIsLeader:
			answer, err := reply(c.serve(ctx, n.id.nodeID(), body))
			if err != nil {
				return err
			}
			return decode(answer.Value, out)
		case err != nil:
			return err
		}
		return invoke(ctx, conn, name, body, out)
	}
	peer, err := n.broker.Remotes().Select()
	if err != nil {
		return status.Error(codes.Unavailable, "no manager of the cluster is known")
	}
	return n.ask(ctx, peer.Addr, name, in, out)
}

// ask makes a call to the manager at addr.
func (n *member) ask(ctx context.Context, addr, name string, in, out any) error {
	conn, err := n.conns.to(addr)
	if err != nil {
		return err
	}
	return send(ctx, conn, name, in, out)
}

// askNode makes a call to a node of any role.
func (n *member) askNode(ctx context.Context, id, addr, name string, in, out any) error {
	conn, err := n.conns.toNode(id, addr)
	if err != nil {
		return err
	}
	return send(ctx, conn, name, in, out)
}

func send(ctx context.Context, conn *grpc.ClientConn, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return invoke(ctx, conn, name, body, out)
}

func invoke(ctx context.Context, conn *grpc.ClientConn, name string, body []byte, out any) error {
	answer := new(wrapperspb.BytesValue)
	ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs(nameKey, name))
	if err := conn.Invoke(ctx, callMethod, &wrapperspb.BytesValue{Value: body}, answer); err != nil {
		return err
	}
	return decode(answer.Value, out)
}

func decode(b []byte, out any) error {
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read the answer of another node: %w", err)
	}
	return nil
}

// handle is a call whose body is a T.
func handle[T any](roles []string, leader bool, serve func(ctx context.Context, caller string, in T) (any, error)) call {
	return call{roles: slices.Clone(roles), leader: leader, serve: func(ctx context.Context, caller string, body []byte) (any, error) {
		var in T
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "read the call: %v", err)
		}
		return serve(ctx, caller, in)
	}}
}
