// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/moby/swarmkit/v2/agent"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	bolt "go.etcd.io/bbolt"

	"satld/raft"
)

const (
	// agentPatience is how long a starting agent waits for the manager: one
	// that finds nobody backs off. Tasks are adopted when it starts.
	agentPatience = 2 * time.Second
	agentStop     = time.Second
	// tasksReserve is room for some hundred changes of state, in bytes.
	tasksReserve = 512 << 10
)

// openTasks opens the agent's own record of its tasks. It is made anew if it is
// damaged: the store has every task that matters, with its state.
func (n *member) openTasks() (*bolt.DB, error) {
	path := tasksFile(n.cfg.StateDir)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := raft.CheckDB(path); err != nil {
		aside := fmt.Sprintf("%s.damaged-%d", path, time.Now().Unix())
		n.log.Warn("the agent's record of tasks is damaged and is made anew", "file", path, "kept", aside, "error", err)
		if err := os.Rename(path, aside); err != nil {
			return nil, err
		}
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	switch err := reserve(db); {
	case errors.Is(err, syscall.ENOSPC):
		// A daemon that is down helps nobody: tasks that run are taken over
		// and probed on a full disk too.
		n.log.Error("the disk is full: changes of tasks are lost until there is room", "file", path, "error", err)
	case err != nil:
		db.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return db, nil
}

// reserve leaves free pages in the file, so that tasks can still change their
// state on a full disk: SwarmKit's agent does not repeat a write that failed.
func reserve(db *bolt.DB) error {
	name := []byte("satl-reserve")
	put := func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		return b.Put(name, make([]byte, tasksReserve))
	}
	if err := db.Update(put); err != nil {
		return err
	}
	return db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(name) })
}

// runAgent runs the agent until ctx is done. Its end closes the controllers
// of its tasks' managers but shuts no task down.
func (n *member) runAgent(ctx context.Context, renewer *ca.TLSRenewer) error {
	wait := time.NewTimer(agentPatience)
	defer wait.Stop()
	if n.raft != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-n.up:
		case <-wait.C:
		}
	}
	tls, cancel := n.id.sec.Watch()
	defer cancel()
	changes := make(chan *agent.NodeChanges, 1)
	root, issuer := n.id.sec.RootCA(), n.id.sec.IssuerInfo()
	a, err := agent.New(&agent.Config{
		Hostname:         n.cfg.Hostname,
		ConnBroker:       n.broker,
		Executor:         located{n.cfg.Executor, n.advertise},
		DB:               n.tasks,
		NotifyNodeChange: changes,
		NotifyTLSChange:  tls,
		Credentials:      n.id.sec.ClientTLSCreds,
		NodeTLSInfo: &api.NodeTLSInfo{
			TrustRoot:           root.Certs,
			CertIssuerPublicKey: issuer.PublicKey,
			CertIssuerSubject:   issuer.Subject,
		},
	})
	if err != nil {
		return err
	}
	// The agent's context outlives ctx, so that Stop is what ends it.
	if err := a.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Err(context.Background()) }()
	role := api.NodeRoleWorker
	if n.id.manager() {
		role = api.NodeRoleManager
	}
	for {
		select {
		case <-ctx.Done():
			sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), agentStop)
			defer cancel()
			return a.Stop(sctx)
		case err := <-ended:
			return fmt.Errorf("the agent ended: %w", err)
		case c := <-changes:
			n.followNode(c, &role, renewer)
		}
	}
}

// dismissed has this manager become a worker. Soon nobody answers its own
// manager's part any more, which its agent would ask first.
func (n *member) dismissed(renewer *ca.TLSRenewer) {
	n.own.mu.Lock()
	n.own.gone = true
	n.own.mu.Unlock()
	n.useOwn(false)
	renewer.SetExpectedRole(ca.WorkerRole)
	renewer.Renew()
}

// followNode renews the certificate when the manager asks for it or this
// node's role changed, and takes a new root certificate.
func (n *member) followNode(c *agent.NodeChanges, role *api.NodeRole, renewer *ca.TLSRenewer) {
	if c.Node != nil {
		n.registered.Store(true)
		want := c.Node.Spec.DesiredRole
		changed := want != *role
		*role = want
		if changed {
			if want == api.NodeRoleWorker {
				n.dismissed(renewer)
			} else if name, err := ca.ParseRole(want); err == nil {
				renewer.SetExpectedRole(name)
			}
		}
		if changed || c.Node.Certificate.Status.State == api.IssuanceStateRotate {
			renewer.Renew()
		}
	}
	if c.RootCert == nil || bytes.Equal(c.RootCert, n.id.sec.RootCA().Certs) {
		return
	}
	root, err := ca.NewRootCA(c.RootCert, nil, nil, ca.DefaultNodeCertExpiration, nil)
	if err == nil {
		err = n.id.sec.UpdateRootCA(&root)
	}
	if err == nil {
		err = ca.SaveRootCA(root, n.id.paths.RootCA)
	}
	if err != nil {
		n.log.Error("the cluster's new root certificate could not be taken", "error", err)
	}
}
