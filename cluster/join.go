// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/ca"
	"github.com/moby/swarmkit/v2/connectionbroker"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"github.com/moby/swarmkit/v2/remotes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// joinBound bounds the way into a cluster, from the first word to a node that
// is known there.
const joinBound = 20 * time.Second

// A wrong token or address is told five times before SwarmKit's way in believes
// it: that shall not take 10 s.
func init() { ca.GetCertRetryInterval = 300 * time.Millisecond }

// Errors of Join and Leave, in Docker's words.
var (
	ErrMember       = errdefs.ErrUnavailable.WithMessage(`This node is already part of a swarm. Use "docker swarm leave" to leave this swarm and join another one.`)
	errOwn          = errdefs.ErrInvalidArgument.WithMessage("this node cannot join itself: give it a token and the address of a manager of another cluster")
	errBusy         = errdefs.ErrUnavailable.WithMessage("this node joins or leaves a cluster right now: try again")
	ErrLeaveManager = errdefs.ErrUnavailable.WithMessage(`You are attempting to leave the swarm on a node that is participating as a manager. Removing this node from the swarm leaves the others with one manager less, or the last one without any state. Use "--force" to suppress this message.`)
)

// Joining is what a node needs to join a cluster.
type Joining struct {
	Managers      []string // host:port of managers, any of which will do
	Token         string
	AdvertiseAddr string // "" is what the configuration or the listening address says
	Availability  api.NodeSpec_Availability
}

// dirs are what of the state directory is of one cluster.
type dirs struct{ certificates, raft, next, nextRaft, change string }

func dirsOf(stateDir string) dirs {
	return dirs{
		certificates: filepath.Join(stateDir, "certificates"),
		raft:         filepath.Join(stateDir, "raft"),
		next:         filepath.Join(stateDir, "certificates.next"),
		nextRaft:     filepath.Join(stateDir, "raft.next"), // of a restored cluster
		change:       filepath.Join(stateDir, "cluster.next.json"),
	}
}

// Join makes this node, which is a cluster of one without services, a member
// of another cluster. Its own is dropped. An error leaves everything as it
// was; so does a crash before the new cluster has taken the node in.
func (n *Node) Join(ctx context.Context, j Joining) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	if err := n.fresh(); err != nil {
		return err
	}
	if len(j.Managers) == 0 {
		return errdefs.ErrInvalidArgument.WithMessage("at least one remote address needs to be provided")
	}
	if _, err := ca.ParseJoinToken(j.Token); err != nil {
		return errdefs.ErrInvalidArgument.WithMessage("invalid join token")
	}
	ctx, cancel := context.WithTimeout(withLogger(ctx, n.log), joinBound)
	defer cancel()
	var err error
	if j.AdvertiseAddr, err = givenAddr(ctx, j.AdvertiseAddr); err != nil {
		return errdefs.ErrInvalidArgument.WithMessage(err.Error())
	}
	advertise, err := advertiseAddr(cmp.Or(j.AdvertiseAddr, n.cfg.AdvertiseAddr), n.listener.Addr(), localAddr)
	if err != nil {
		return errdefs.ErrInvalidArgument.WithMessage(err.Error())
	}
	m := membership{Advertise: j.AdvertiseAddr}
	var peers []api.Peer
	for _, addr := range j.Managers {
		if addr, err = withPort(addr); err != nil {
			return errdefs.ErrInvalidArgument.WithMessage(err.Error())
		}
		peers = append(peers, api.Peer{Addr: addr})
		m.Managers = append(m.Managers, manager{Addr: addr})
	}
	if err := n.obtain(ctx, j, peers, advertise); err != nil {
		return err
	}
	d := dirsOf(n.cfg.StateDir)
	if err := writeMembership(d.change, m); err != nil {
		return err
	}
	if err := n.change(ctx, func() error { return finishChange(n.cfg.StateDir) }); err != nil {
		return err
	}
	return n.taken(ctx)
}

// fresh tells whether this node's own cluster may be dropped: it is the only
// node, and there is nothing that somebody made.
func (n *Node) fresh() error {
	m := n.member.Load()
	if m.raft == nil || len(m.raft.Members()) > 1 || len(m.remember.managers()) > 0 {
		return ErrMember
	}
	var made []string
	m.store.View(func(tx store.ReadTx) {
		nodes, _ := store.FindNodes(tx, store.All)
		services, _ := store.FindServices(tx, store.All)
		secrets, _ := store.FindSecrets(tx, store.All)
		configs, _ := store.FindConfigs(tx, store.All)
		for _, kind := range []struct {
			count int
			name  string
		}{{len(nodes) - 1, "other node"}, {len(services), "service"}, {len(secrets), "secret"}, {len(configs), "config"}} {
			if kind.count > 0 {
				made = append(made, fmt.Sprintf("%d %s(s)", kind.count, kind.name))
			}
		}
	})
	if len(made) > 0 {
		return inUse(made)
	}
	return nil
}

// inUse is ErrMember of a node that joined nobody: its own cluster has what
// would be lost with it.
type inUse []string

func (held inUse) Error() string {
	return fmt.Sprintf("This node is already part of a swarm, its own, which has %s. Remove what is there, or use \"docker swarm leave --force\" to drop all of it.",
		strings.Join(held, ", "))
}

func (inUse) Unwrap() error { return ErrMember }

// obtain gets this node's certificate in the other cluster, into a directory
// of its own.
func (n *Node) obtain(ctx context.Context, j Joining, peers []api.Peer, advertise string) (err error) {
	d := dirsOf(n.cfg.StateDir)
	if err := errors.Join(os.RemoveAll(d.next), os.Remove(d.change)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(d.next))
		}
	}()
	paths := ca.NewConfigPaths(d.next)
	broker := connectionbroker.New(remotes.NewRemotes(peers...))
	root, err := ca.DownloadRootCA(ctx, paths.RootCA, j.Token, broker)
	if err != nil {
		return joinError(ctx, "reach the cluster", err)
	}
	if bytes.Equal(root.Certs, n.member.Load().id.sec.RootCA().Certs) {
		return errOwn
	}
	sec, cancel, err := root.CreateSecurityConfig(ctx, ca.NewKeyReadWriter(paths.Node, nil, nil),
		ca.CertificateRequestConfig{Token: j.Token, Availability: j.Availability, ConnBroker: broker})
	if err != nil {
		return joinError(ctx, "get a certificate from the cluster", err)
	}
	defer cancel()
	if sec.ClientTLSCreds.Role() != ca.ManagerRole {
		return nil
	}
	// A manager that the others cannot reach would be one that counts and
	// never answers.
	c := newConns(sec)
	defer c.close()
	probe := &member{conns: c}
	for _, p := range peers {
		if err = probe.ask(ctx, p.Addr, "reach", reachQuestion{Addr: advertise}, nil); err == nil {
			return nil
		}
	}
	return err
}

type reachQuestion struct{ Addr string }

func joinError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf("%s: no answer in time: %v", what, err))
	}
	if strings.Contains(err.Error(), "remote CA does not match fingerprint") {
		return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("%s: the token is of another cluster, or older than the last rotation of its authority: %v", what, err))
	}
	if s, ok := status.FromError(errors.Unwrap(err)); ok && s.Code() != codes.Unknown && s.Code() != codes.OK {
		return status.Errorf(s.Code(), "%s: %s", what, s.Message())
	}
	return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("%s: %v", what, err))
}

// finishChange carries out a join, leave or restore that was decided on: from the
// moment the change's file is there it is done, by this process or the next
// one. Without the file there is nothing to do. The agent's record of tasks
// stays, so that the next cluster's agent stops what it does not know.
func finishChange(stateDir string) error {
	d := dirsOf(stateDir)
	if _, err := os.Stat(d.change); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	decided, err := readMembership(d.change)
	if err != nil {
		return err
	}
	if decided.Restored {
		// There was no store before, so it is never removed.
		if err := os.Rename(d.nextRaft, d.raft); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("take the restored store: %w", err)
		}
	} else if err := os.RemoveAll(d.raft); err != nil {
		return fmt.Errorf("remove the store of the cluster that was left: %w", err)
	}
	// After a crash between the renames below there is only one of the two.
	if _, err := os.Stat(d.next); err == nil {
		if err := os.RemoveAll(d.certificates); err != nil {
			return fmt.Errorf("remove the certificates of the cluster that was left: %w", err)
		}
		if err := os.Rename(d.next, d.certificates); err != nil {
			return fmt.Errorf("take the new cluster's certificates: %w", err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(d.change, rememberedFile(stateDir)); err != nil {
		return fmt.Errorf("write down the new cluster: %w", err)
	}
	return nil
}

// taken waits until the cluster works with this node.
func (n *Node) taken(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		m := n.member.Load()
		if m.registered.Load() && (m.raft == nil || m.enlisted() && m.caughtUp.Load()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errdefs.ErrUnavailable.WithMessage("Timeout was reached before node joined. The attempt to join the swarm will continue in the background. Use the \"docker info\" command to see the current swarm status of your node.")
		case <-tick.C:
		}
	}
}

// Leave makes this node a fresh cluster of one. A manager does so only when
// forced; it is taken out of the consensus if that can be.
func (n *Node) Leave(ctx context.Context, force bool) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	m := n.member.Load()
	if m.raft != nil && !force {
		return ErrLeaveManager
	}
	if m.raft != nil && len(m.raft.Members()) > 1 {
		bound, cancel := context.WithTimeout(ctx, enlistBound)
		if err := m.resign(bound); err != nil {
			n.log.Warn("this manager leaves without having been taken out of the consensus: demote and remove it on another manager", "error", err)
		}
		cancel()
	}
	d := dirsOf(n.cfg.StateDir)
	return n.change(ctx, func() error {
		// The certificates go first: without them the rest is nobody's.
		if err := errors.Join(os.RemoveAll(d.next), os.MkdirAll(d.next, 0o700)); err != nil {
			return err
		}
		if err := writeMembership(d.change, membership{Left: true}); err != nil {
			return err
		}
		return finishChange(n.cfg.StateDir)
	})
}

// Init is Docker's `swarm init` on a node that is a cluster of its own from its
// first start: it keeps what there is and takes an address to advertise, if one
// is given. A node that is in a cluster that somebody uses already is told so.
func (n *Node) Init(ctx context.Context, advertise string) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	if err := n.fresh(); err != nil {
		return err
	}
	advertise, err := givenAddr(ctx, advertise)
	if err != nil {
		return errdefs.ErrInvalidArgument.WithMessage(err.Error())
	}
	want, err := advertiseAddr(cmp.Or(advertise, n.cfg.AdvertiseAddr), n.listener.Addr(), localAddr)
	if err != nil {
		return errdefs.ErrInvalidArgument.WithMessage(err.Error())
	}
	if advertise == "" || want == n.AdvertiseAddr() {
		return nil
	}
	return n.change(ctx, func() error {
		return writeMembership(rememberedFile(n.cfg.StateDir), membership{Advertise: advertise})
	})
}

// ForceNewCluster makes a cluster of this manager alone, with all that its
// store holds, when the others are lost.
func (n *Node) ForceNewCluster(ctx context.Context) error {
	if !n.changing.TryLock() {
		return errBusy
	}
	defer n.changing.Unlock()
	if n.member.Load().raft == nil {
		return errdefs.ErrFailedPrecondition.WithMessage("this node is a worker: only a manager has what a new cluster could be made of")
	}
	return n.change(ctx, func() error {
		n.cfg.ForceNewCluster = true
		return nil
	})
}

// resign asks the leader to take this node out of the consensus.
func (n *member) resign(ctx context.Context) error {
	for ctx.Err() == nil {
		if n.raft.Leads() {
			if err := n.raft.StepDown(); err != nil {
				return err
			}
		}
		err := n.askLeader(ctx, "resign", struct{}{}, nil)
		if err == nil || status.Code(err) == codes.FailedPrecondition {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(enlistRetry):
		}
	}
	return ctx.Err()
}

// letGo takes a manager that leaves out of the consensus.
func (n *member) letGo(ctx context.Context, caller string, _ struct{}) (any, error) {
	if caller == n.id.nodeID() {
		return nil, status.Error(codes.Unavailable, "the leader has to step down first: try again")
	}
	if !canLeave(n.raft.Members(), caller) {
		return nil, status.Error(codes.FailedPrecondition, "without this manager no majority of the others could be reached")
	}
	err := n.store.Update(func(tx store.Tx) error {
		node := store.GetNode(tx, caller)
		if node == nil {
			return nil
		}
		node = node.Copy()
		node.Spec.DesiredRole = api.NodeRoleWorker
		return store.UpdateNode(tx, node)
	})
	if err != nil {
		return nil, err
	}
	return nil, n.raft.RemoveMember(ctx, caller)
}

// withPort is the address of a manager, with Docker's port if it has none.
func withPort(addr string) (string, error) {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr, nil
	}
	if addr == "" || strings.ContainsAny(addr, " /") {
		return "", fmt.Errorf("invalid address of a manager %q: want host:port", addr)
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), defaultPort), nil
}

// defaultPort is where managers listen unless told otherwise, as in Docker.
const defaultPort = "2377"
