// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/swarmkit/v2/ca"
	swarmid "github.com/moby/swarmkit/v2/identity"

	"satld/platform/atomicfile"
)

// identity is who this node is: a certificate whose common name is the node's
// random ID, signed by the cluster's root, whose organization is the
// cluster's ID.
type identity struct {
	sec   *ca.SecurityConfig
	paths *ca.SecurityConfigPaths
	close func() error
}

func (i *identity) nodeID() string    { return i.sec.ClientTLSCreds.NodeID() }
func (i *identity) clusterID() string { return i.sec.ClientTLSCreds.Organization() }
func (i *identity) manager() bool     { return i.sec.ClientTLSCreds.Role() == ca.ManagerRole }

// openIdentity reads the certificates in dir, or, when fresh says that there is
// no cluster yet, makes a root and a manager's certificate. A node keeps its ID
// over the loss of its cluster's state.
//
// An expired certificate is taken: a manager renews it through its own process.
func openIdentity(ctx context.Context, dir string, fresh bool) (*identity, error) {
	paths := ca.NewConfigPaths(dir)
	krw := ca.NewKeyReadWriter(paths.Node, nil, nil)
	if fresh {
		return createIdentity(paths, krw)
	}
	root, err := ca.GetLocalRootCA(paths.RootCA)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's root certificate in %s: %w; put the directory back from a copy", dir, err)
	}
	sec, cancel, err := ca.LoadSecurityConfig(ctx, root, krw, true)
	if err != nil {
		return nil, fmt.Errorf("read this node's certificate in %s: %w; put the directory back from a copy", dir, err)
	}
	return &identity{sec: sec, paths: paths, close: cancel}, nil
}

func createIdentity(paths *ca.SecurityConfigPaths, krw *ca.KeyReadWriter) (*identity, error) {
	id, err := certificateID(paths.Node.Cert)
	if err != nil {
		return nil, err
	}
	if id == "" {
		id = swarmid.NewID()
	}
	root, err := ca.CreateRootCA(ca.DefaultRootCN)
	if err != nil {
		return nil, fmt.Errorf("make a root certificate: %w", err)
	}
	// The root's key is kept in the replicated store. Until it is there (seed)
	// it has to outlive a crash, of the machine too.
	signer, err := root.Signer()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(paths.RootCA.Key), 0o700); err != nil {
		return nil, err
	}
	if err := atomicfile.WriteDurably(paths.RootCA.Key, signer.Key, 0o600); err != nil {
		return nil, err
	}
	if err := ca.SaveRootCA(root, paths.RootCA); err != nil {
		return nil, err
	}
	pair, issuer, err := root.IssueAndSaveNewCertificates(krw, id, ca.ManagerRole, swarmid.NewID())
	if err != nil {
		return nil, fmt.Errorf("make this node's certificate: %w", err)
	}
	sec, cancel, err := ca.NewSecurityConfig(&root, krw, pair, issuer)
	if err != nil {
		return nil, err
	}
	return &identity{sec: sec, paths: paths, close: cancel}, nil
}

// rootKey is the root's private key while this node has it; nil otherwise.
func (i *identity) rootKey() []byte {
	signer, err := i.sec.RootCA().Signer()
	if err != nil {
		return nil
	}
	return signer.Key
}

// forgetRootKey removes the key's file once the store holds the key.
func (i *identity) forgetRootKey() error {
	err := os.Remove(i.paths.RootCA.Key)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// certificateID is the common name of the certificate at path; "" if there is
// no certificate that can be read.
func certificateID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return "", nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", nil
	}
	return cert.Subject.CommonName, nil
}
