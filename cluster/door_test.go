// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Who has no certificate cannot hold a node's file descriptors or its memory,
// and keeps nobody else out.
func TestManyStrangers(t *testing.T) {
	t.Parallel()
	n := startNode(t, stateDir(t), newFake(), nil)
	const many = maxStrangers + 100
	silent := make([]net.Conn, 0, many)
	for range many {
		c, err := net.Dial("tcp", n.AdvertiseAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	closed := func() (count int) {
		for _, c := range silent {
			if c.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
				continue
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				count++
			}
		}
		return count
	}
	eventually(t, 5*time.Second, "the first have given way", func() string {
		if got := closed(); got < many-maxStrangers {
			return fmt.Sprintf("%d are closed", got)
		}
		return ""
	})
	join(t, startNode(t, stateDir(t), newFake(), nil), n, api.NodeRoleManager)
	eventually(t, 2*handshakeBound, "none is left that never said who comes", func() string {
		if got := closed(); got < many {
			return fmt.Sprintf("%d are closed", got)
		}
		return ""
	})

	conn, err := grpc.NewClient("passthrough:///"+n.AdvertiseAddr(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := api.NewCAClient(conn).GetRootCACertificate(t.Context(), &api.GetRootCACertificateRequest{}); err != nil {
		t.Errorf("the root's certificate, which a join begins with: %v", err)
	}
	_, err = api.NewNodeCAClient(conn).IssueNodeCertificate(t.Context(), &api.IssueNodeCertificateRequest{CSR: make([]byte, 2*strangerMessage)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large message of a stranger: %v", err)
	}
	if _, err := api.NewControlClient(conn).ListNodes(t.Context(), &api.ListNodesRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger asks for the nodes: %v", err)
	}
}
