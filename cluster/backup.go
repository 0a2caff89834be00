// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/platform/atomicfile"
	"satld/raft"
)

// A backup is a tar archive: what it is, the node's certificates, the store,
// and at the end the sums of all that, so that one cut short has none.
const (
	backupFormat = 1

	backupAbout = "backup.json"
	backupRoot  = "certificates/swarm-root-ca.crt"
	backupCert  = "certificates/swarm-node.crt"
	backupKey   = "certificates/swarm-node.key"
	backupStore = "store"
	backupSums  = "SHA256SUMS"

	// maxBackup bounds what is read of a backup, in bytes.
	maxBackup = 4 << 30
)

// backupParts are what SHA256SUMS is about, in the order of the archive.
var backupParts = []string{backupAbout, backupRoot, backupCert, backupKey, backupStore}

// About is what a backup says of itself.
type About struct {
	Format    int
	Taken     time.Time
	ClusterID string
	NodeID    string
	Hostname  string
	Addr      string // the node's, for others
	Index     uint64 // of the store, in the cluster's log
	Term      uint64
	Services  int
	Nodes     int
}

// Backup writes the whole state of the cluster, with the key of its
// certificate authority and this manager's identity: who has it is the
// cluster. It is what this manager knows, leader or not.
func (n *Node) Backup(w io.Writer, now time.Time) error {
	m := n.member.Load()
	if m.raft == nil {
		return errdefs.ErrFailedPrecondition.WithMessage("this node is a worker: only a manager has what a backup is made of")
	}
	var state bytes.Buffer
	at, err := m.raft.Backup(&state)
	if err != nil {
		return fmt.Errorf("back up the store: %w", err)
	}
	about := About{
		Format: backupFormat, Taken: now.UTC(), ClusterID: m.id.clusterID(), NodeID: m.id.nodeID(),
		Hostname: n.cfg.Hostname, Addr: m.advertise, Index: at.Index, Term: at.Term,
	}
	m.store.View(func(tx store.ReadTx) {
		services, _ := store.FindServices(tx, store.All)
		nodes, _ := store.FindNodes(tx, store.All)
		about.Services, about.Nodes = len(services), len(nodes)
	})
	text, err := json.MarshalIndent(about, "", "\t")
	if err != nil {
		return err
	}
	cert, key, err := m.id.sec.KeyReader().Read()
	if err != nil {
		return fmt.Errorf("read this node's certificate: %w", err)
	}
	return writeBackup(w, now, map[string][]byte{
		backupAbout: append(text, '\n'), backupRoot: m.id.sec.RootCA().Certs, backupCert: cert, backupKey: key, backupStore: state.Bytes(),
	})
}

func writeBackup(w io.Writer, now time.Time, parts map[string][]byte) error {
	out := tar.NewWriter(w)
	put := func(name string, data []byte) error {
		head := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: now, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if err := out.WriteHeader(head); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	}
	for _, name := range backupParts {
		if err := put(name, parts[name]); err != nil {
			return err
		}
	}
	return errors.Join(put(backupSums, sums(parts)), out.Close())
}

// sums are what sha256sum(1) says of the parts.
func sums(parts map[string][]byte) []byte {
	var b bytes.Buffer
	for _, name := range backupParts {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(parts[name]), name)
	}
	return b.Bytes()
}

// readBackup returns the parts of a backup that is whole.
func readBackup(r io.Reader) (about About, parts map[string][]byte, err error) {
	parts = make(map[string][]byte)
	in := tar.NewReader(io.LimitReader(r, maxBackup))
	for {
		head, err := in.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			parts[head.Name], err = io.ReadAll(in)
		}
		if err != nil {
			return about, nil, fmt.Errorf("it is no backup, or was cut short: %w", err)
		}
	}
	for _, name := range append([]string{backupSums}, backupParts...) {
		if _, there := parts[name]; !there {
			return about, nil, fmt.Errorf("it is no backup, or was cut short: there is no %s in it", name)
		}
	}
	if !bytes.Equal(parts[backupSums], sums(parts)) {
		return about, nil, fmt.Errorf("it is damaged: what is in it is not what %s says", backupSums)
	}
	if err := json.Unmarshal(parts[backupAbout], &about); err != nil {
		return about, nil, fmt.Errorf("read its %s: %w", backupAbout, err)
	}
	if about.Format != backupFormat {
		return about, nil, fmt.Errorf("its format is %d, and this satld reads %d", about.Format, backupFormat)
	}
	return about, parts, nil
}

// checkCertificates tells whether the certificates are of one another and of
// the node that the backup names.
func checkCertificates(about About, parts map[string][]byte) error {
	pair, err := tls.X509KeyPair(parts[backupCert], parts[backupKey])
	if err != nil {
		return fmt.Errorf("its certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fmt.Errorf("its certificate: %w", err)
	}
	if _, err := ca.NewRootCA(parts[backupRoot], nil, nil, ca.DefaultNodeCertExpiration, nil); err != nil {
		return fmt.Errorf("its root certificate: %w", err)
	}
	if id := leaf.Subject.CommonName; id != about.NodeID || strings.Join(leaf.Subject.Organization, ",") != about.ClusterID {
		return fmt.Errorf("its certificate is of node %s in cluster %s", id, strings.Join(leaf.Subject.Organization, ","))
	}
	return nil
}

// Restore makes of a backup the state of a node that is not running, and that
// has no state of a cluster yet: with it the node is the only manager of the
// cluster, as it was then. The caller holds LockState on stateDir. An error
// leaves everything as it was; so does a crash, unless it is as good as done.
func Restore(stateDir string, r io.Reader, log *slog.Logger) (About, error) {
	about, parts, err := readBackup(r)
	if err != nil {
		return about, err
	}
	if err := checkCertificates(about, parts); err != nil {
		return about, err
	}
	d := dirsOf(stateDir)
	for _, dir := range []string{d.change, d.raft, d.certificates} {
		switch _, err := os.Stat(dir); {
		case err == nil:
			return about, fmt.Errorf("%s has the state of a cluster already: move %s, %s and %s away first, or restore to another --state-dir",
				stateDir, filepath.Base(d.raft), filepath.Base(d.certificates), filepath.Base(rememberedFile(stateDir)))
		case !errors.Is(err, os.ErrNotExist):
			return about, err
		}
	}
	own, err := openRemembered(stateDir)
	if err != nil {
		return about, err
	}
	// Left by an attempt that did not come to its end.
	if err := errors.Join(os.RemoveAll(d.next), os.RemoveAll(d.nextRaft), os.MkdirAll(d.next, 0o700)); err != nil {
		return about, err
	}
	undo := func(err error) error { return errors.Join(err, os.RemoveAll(d.next), os.RemoveAll(d.nextRaft)) }
	for name, mode := range map[string]os.FileMode{backupRoot: 0o644, backupCert: 0o644, backupKey: 0o600} {
		if err := atomicfile.WriteDurably(filepath.Join(d.next, filepath.Base(name)), parts[name], mode); err != nil {
			return about, undo(err)
		}
	}
	err = raft.Restore(d.nextRaft, raft.Member{ID: about.NodeID, Addr: cmp.Or(about.Addr, "127.0.0.1:"+defaultPort)},
		raft.Position{Index: about.Index, Term: about.Term}, bytes.NewReader(parts[backupStore]), log,
		func(tx store.Tx) error {
			if c := store.GetCluster(tx, about.ClusterID); c == nil || len(c.RootCA.CAKey) == 0 || store.GetNode(tx, about.NodeID) == nil {
				return errors.New("it lacks the cluster itself, its key, or this node")
			}
			return demoteOthers(tx, about.NodeID)
		})
	if err != nil {
		return about, undo(fmt.Errorf("its store: %w", err))
	}
	if err := writeMembership(d.change, membership{Advertise: own.advertise(), Restored: true}); err != nil {
		return about, undo(err)
	}
	return about, finishChange(stateDir)
}

// demoteOthers makes workers of all managers but one, which goes on alone: what
// they voted for and stored is not part of its history any more.
func demoteOthers(tx store.Tx, self string) error {
	nodes, err := store.FindNodes(tx, store.All)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.ID == self || n.Role != api.NodeRoleManager && n.Spec.DesiredRole != api.NodeRoleManager {
			continue
		}
		n = n.Copy()
		n.Role, n.Spec.DesiredRole, n.ManagerStatus = api.NodeRoleWorker, api.NodeRoleWorker, nil
		if err := store.UpdateNode(tx, n); err != nil {
			return err
		}
	}
	return nil
}
