// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/moby/swarmkit/v2/ca"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
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

// to is the connection to the manager at an address. It connects when it is
// used.
func (c *conns) to(addr string) (*grpc.ClientConn, error) {
	return c.dial(addr, addr, c.sec.ClientTLSCreds)
}

// toMember is the connection to the manager of that ID, and to no other that
// may have its address by now.
func (c *conns) toMember(id, addr string) (*grpc.ClientConn, error) {
	return c.dial(addr+"/"+id, addr, nodeCreds{c.sec.ClientTLSCreds, id})
}

// toNode is the connection to a node of any role, which has to be that node.
func (c *conns) toNode(id, addr string) (*grpc.ClientConn, error) {
	return c.dial(id+"@"+addr, addr, nodeCreds{c.sec.ClientTLSCreds, id})
}

// nodeCreds are this node's credentials of today, for a server whose
// certificate is that of a certain node.
type nodeCreds struct {
	*ca.MutableTLSCreds
	id string
}

// ClientHandshake implements credentials.TransportCredentials.
func (n nodeCreds) ClientHandshake(ctx context.Context, addr string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := n.Config().Clone()
	config.ServerName = n.id
	return credentials.NewTLS(config).ClientHandshake(ctx, addr, raw)
}

// Clone implements credentials.TransportCredentials.
func (n nodeCreds) Clone() credentials.TransportCredentials { return n }

func (c *conns) dial(key, addr string, creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[key]; conn != nil {
		return conn, nil
	}
	if c.open == nil {
		return nil, errLeft
	}
	wait := backoff.DefaultConfig
	wait.BaseDelay, wait.MaxDelay = peerRetry/5, peerRetry
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: peerAnswer}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerSilence, Timeout: peerAnswer}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)), grpc.WithStatsHandler(sending{}),
	}
	if c.unary != nil {
		options = append(options, grpc.WithChainUnaryInterceptor(c.unary))
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, options...)
	if err != nil {
		return nil, err
	}
	c.open[key] = conn
	return conn, nil
}

// keep closes the connections to all managers but those at the addresses, or
// with nodes to all nodes but those that toNode knows by these names.
func (c *conns) keep(keys map[string]bool, nodes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, conn := range c.open {
		of, _, _ := strings.Cut(key, "/")
		if strings.Contains(key, "@") == nodes && !keys[of] {
			conn.Close()
			delete(c.open, key)
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
