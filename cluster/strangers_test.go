// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// stranger is somebody who knocks at a manager's port, with a certificate or
// without.
type stranger struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func knock(t *testing.T, at *running, certificates ...tls.Certificate) stranger {
	t.Helper()
	// It believes whatever the manager shows.
	creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: certificates})
	conn, err := grpc.NewClient("passthrough:///"+at.AdvertiseAddr(), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return stranger{t, conn}
}

// asks tries all doors and tells which of them opened: those that did not
// refuse it, whatever they made of the question.
func (s stranger) asks() (opened []string) {
	for door, ask := range map[string]func(context.Context) error{
		"control": func(ctx context.Context) error {
			_, err := api.NewControlClient(s.conn).ListServices(ctx, &api.ListServicesRequest{})
			return err
		},
		"heartbeat": func(ctx context.Context) error {
			_, err := api.NewDispatcherClient(s.conn).Heartbeat(ctx, &api.HeartbeatRequest{SessionID: "x"})
			return err
		},
		"session": func(ctx context.Context) error {
			session, err := api.NewDispatcherClient(s.conn).Session(ctx, &api.SessionRequest{})
			if err == nil {
				_, err = session.Recv()
			}
			return err
		},
		"health": func(ctx context.Context) error {
			_, err := api.NewHealthClient(s.conn).Check(ctx, &api.HealthCheckRequest{Service: "Raft"})
			return err
		},
		"directory": func(ctx context.Context) error { // answers when there is news
			ctx = metadata.NewOutgoingContext(ctx, metadata.Pairs(nameKey, "directory"))
			return s.conn.Invoke(ctx, callMethod, &wrapperspb.BytesValue{Value: []byte(`""`)}, new(wrapperspb.BytesValue))
		},
		"raft": func(ctx context.Context) error { // answers what raft asks, and it asks nothing
			stream, err := s.conn.NewStream(ctx, &peerService.Streams[0], raftMethod)
			if err == nil {
				err = stream.RecvMsg(new(wrapperspb.BytesValue))
			}
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		if code := status.Code(ask(ctx)); code != codes.PermissionDenied && code != codes.Unavailable {
			opened = append(opened, door)
		}
		cancel()
	}
	slices.Sort(opened)
	return opened
}

// Who shows no certificate, an expired one, another cluster's, or that of a
// node that was removed, gets nothing at all; a worker's does not open raft.
func TestStrangers(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, stateDir(t), newFake(), nil), startNode(t, stateDir(t), newFake(), nil)
	other := startNode(t, stateDir(t), newFake(), nil)
	join(t, b, a, api.NodeRoleWorker)
	pair := func(n *running) tls.Certificate {
		t.Helper()
		cert, key, err := n.m().id.sec.KeyReader().Read()
		if err != nil {
			t.Fatal(err)
		}
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if opened := knock(t, a, pair(a)).asks(); len(opened) != 6 {
		t.Fatalf("to a manager only %v opened: this test sees nothing", opened)
	}
	for who, s := range map[string]stranger{
		"nobody":                   knock(t, a),
		"another cluster":          knock(t, a, pair(other)),
		"an expired manager":       knock(t, a, issue(t, a, a.NodeID(), ca.ManagerRole, -time.Minute)),
		"a manager of another org": knock(t, a, issueFor(t, a, a.NodeID(), ca.ManagerRole, "another", time.Hour)),
	} {
		if opened := s.asks(); len(opened) > 0 {
			t.Errorf("%s: %v opened", who, opened)
		}
	}
	worker := pair(b)
	if opened := knock(t, a, worker).asks(); !slices.Equal(opened, []string{"directory", "heartbeat", "session"}) {
		t.Errorf("to a worker %v opened", opened)
	}
	id := b.NodeID()
	if err := b.Leave(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Control().RemoveNode(t.Context(), &api.RemoveNodeRequest{NodeID: id, Force: true}); err != nil {
		t.Fatal(err)
	}
	if opened := knock(t, a, worker).asks(); len(opened) > 0 {
		t.Errorf("a removed node: %v opened", opened)
	}
}

func issue(t *testing.T, n *running, id, role string, left time.Duration) tls.Certificate {
	t.Helper()
	return issueFor(t, n, id, role, n.ClusterID(), left)
}

// issueFor makes a certificate with the cluster's own key.
func issueFor(t *testing.T, n *running, id, role, org string, left time.Duration) tls.Certificate {
	t.Helper()
	root := clusterOf(n).RootCA
	authority, err := tls.X509KeyPair(root.CACert, root.CAKey)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := x509.ParseCertificate(authority.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: id, OrganizationalUnit: []string{role}, Organization: []string{org}},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{id, role},
	}, issuer, &key.PublicKey, authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tls.X509KeyPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
