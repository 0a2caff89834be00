// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"satld/internal/slowday"
	"satld/raft"
)

// dyingLeader writes and dies before it can answer.
type dyingLeader struct {
	api.ControlServer
	api.HealthServer
	writes atomic.Int32
	die    func()
}

func (d *dyingLeader) CreateService(ctx context.Context, _ *api.CreateServiceRequest) (*api.CreateServiceResponse, error) {
	d.writes.Add(1)
	go d.die()
	<-ctx.Done()
	return nil, ctx.Err()
}

// RemoveService refuses.
func (d *dyingLeader) RemoveService(context.Context, *api.RemoveServiceRequest) (*api.RemoveServiceResponse, error) {
	return nil, (&raft.WriteError{Reason: raft.ErrNotLeader}).GRPCStatus().Err()
}

func (d *dyingLeader) Check(context.Context, *api.HealthCheckRequest) (*api.HealthCheckResponse, error) {
	return &api.HealthCheckResponse{Status: api.HealthCheckResponse_SERVING}, nil
}

// leaderAt is a follower's knowledge of its leader.
type leaderAt struct{ conn *grpc.ClientConn }

func (l leaderAt) LeaderConn(context.Context) (*grpc.ClientConn, error) { return l.conn, nil }

// A leader that dies over a write is no reason to send the write to the next
// one: the client is told that nobody knows (cases/store.md, store-2). What the
// leader itself says, and a write that never went out, are told as they are.
func TestLostAnswer(t *testing.T) {
	n := &member{ended: make(chan struct{})}
	leader := &dyingLeader{}
	var listener net.Listener
	serve := func(addr string) *grpc.Server {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		listener = l
		s := grpc.NewServer(grpc.ChainUnaryInterceptor(n.tellApplied))
		api.RegisterControlServer(s, leader)
		api.RegisterHealthServer(s, leader)
		go s.Serve(l)
		return s
	}
	first := serve("127.0.0.1:0")
	addr := listener.Addr().String()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(n.awaitApplied), grpc.WithStatsHandler(sending{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	same := func(ctx context.Context) (context.Context, error) { return ctx, nil }
	follower := api.NewRaftProxyControlServer(nil, leaderAt{conn}, same, same)
	ctx, cancel := context.WithTimeout(t.Context(), slowday.Of(20*time.Second))
	defer cancel()
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: listener.Addr()}) // somebody asked the follower

	_, err = follower.RemoveService(ctx, &api.RemoveServiceRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), raft.ErrNotLeader.Error()) {
		t.Errorf("the leader's own refusal: %v", err)
	}
	died := make(chan struct{})
	leader.die = func() {
		first.Stop()
		next := serve(addr) // the next leader
		t.Cleanup(next.Stop)
		leader.die = func() {}
		close(died)
	}
	_, err = follower.CreateService(ctx, &api.CreateServiceRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), raft.ErrUnknown.Error()) {
		t.Errorf("a lost answer: %v", err)
	}
	select {
	case <-died:
	case <-ctx.Done():
		t.Fatal("the leader was never asked")
	}
	if writes := leader.writes.Load(); writes != 1 {
		t.Errorf("written %d times", writes)
	}
}

// Of gRPC's own words on a write that never went out a client learns that
// nothing was written.
func TestUnreachedLeader(t *testing.T) {
	n := &member{ended: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(n.unreached, n.awaitApplied), grpc.WithStatsHandler(sending{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = api.NewControlClient(conn).CreateService(t.Context(), &api.CreateServiceRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("%v", err)
	}
	_, err = api.NewControlClient(conn).GetService(t.Context(), &api.GetServiceRequest{})
	if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "written") {
		t.Errorf("a read: %v", err)
	}
}
