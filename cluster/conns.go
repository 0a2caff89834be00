// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"sync"
	"time"

	"github.com/moby/swarmkit/v2/ca"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

const (
	// peerSilence is how long a node may be silent before a connection to it
	// is asked for a sign of life (gRPC allows no less), and peerAnswer how
	// long that may take.
	peerSilence = 10 * time.Second
	peerAnswer  = 3 * time.Second
	// peerRetry is the longest wait before another attempt to connect: an
	// election is over in a second or two.
	peerRetry = time.Second
)

// conns are this node's connections to other nodes, one to an address, with
// this node's certificate shown and theirs demanded.
type conns struct {
	sec   *ca.SecurityConfig
	unary grpc.UnaryClientInterceptor // around every call; nil is none

	mu   sync.Mutex
	open map[string]*grpc.ClientConn // nil after close
}

func newConns(sec *ca.SecurityConfig) *conns {
	return &conns{sec: sec, open: make(map[string]*grpc.ClientConn)}
}

// to is the connection to an address. It connects when it is used.
func (c *conns) to(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[addr]; conn != nil {
		return conn, nil
	}
	if c.open == nil {
		return nil, errLeft
	}
	wait := backoff.DefaultConfig
	wait.BaseDelay, wait.MaxDelay = peerRetry/5, peerRetry
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(c.sec.ClientTLSCreds), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: peerAnswer}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerSilence, Timeout: peerAnswer}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if c.unary != nil {
		options = append(options, grpc.WithChainUnaryInterceptor(c.unary))
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, options...)
	if err != nil {
		return nil, err
	}
	c.open[addr] = conn
	return conn, nil
}

// keep closes the connections to all other addresses.
func (c *conns) keep(addrs map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, conn := range c.open {
		if !addrs[addr] {
			conn.Close()
			delete(c.open, addr)
		}
	}
}

func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		conn.Close()
	}
	c.open = nil
}
