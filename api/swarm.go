// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/daemon/cluster/convert"
	"github.com/moby/swarmkit/v2/api"

	"satld/cluster"
)

// vxlanPort is the UDP port of overlay networks.
const vxlanPort = 4789

func (s *Server) swarmRoutes(r *routes) {
	r.get("/swarm", s.manager(s.swarmInspect))
	// These are for a node that has lost its cluster, too.
	alone := r.whileLoading()
	alone.post("/swarm/init", s.swarmInit)
	alone.post("/swarm/leave", s.swarmLeave)
	r.post("/swarm/join", s.swarmJoin)
	r.post("/swarm/update", s.manager(s.swarmUpdate))
	r.get("/swarm/unlockkey", s.manager(func(w http.ResponseWriter, _ *http.Request) error {
		return writeJSON(w, http.StatusOK, &swarm.UnlockKeyResponse{}) // never locked
	}))
	r.post("/swarm/unlock", func(http.ResponseWriter, *http.Request) error {
		return errConflict("swarm is not locked")
	})
}

// swarmInit answers with this node's ID: a daemon is a cluster from its first
// start, so that there is only an address to take note of.
func (s *Server) swarmInit(w http.ResponseWriter, r *http.Request) error {
	var in swarm.InitRequest
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	if err := admitListening(in.ListenAddr, in.DataPathAddr); err != nil {
		return err
	}
	switch {
	case in.AutoLockManagers || in.Spec.EncryptionConfig.AutoLockManagers:
		return errNotSupported("autolock is not supported")
	case len(in.DefaultAddrPool) > 0:
		return errNotSupported("default address pools are not supported here: overlay networks get their subnets from the --overlay-pool that satld made the cluster with")
	case in.DataPathPort != 0 && in.DataPathPort != vxlanPort:
		return errNotSupported("the port of overlay networks is always %d", vxlanPort)
	case in.Availability != "" && in.Availability != swarm.NodeAvailabilityActive:
		return errNotSupported("a node begins as active: change that with docker node update --availability")
	}
	named := in.Spec
	if err := admitSwarm(&named, &swarm.Spec{Annotations: swarm.Annotations{Name: named.Name}}); err != nil {
		return err
	}
	if in.ForceNewCluster {
		if err := s.cfg.Cluster.ForceNewCluster(r.Context()); err != nil {
			return err
		}
	} else {
		if err := s.pass(r.Context(), loaded); err != nil {
			return err
		}
		if err := s.cfg.Cluster.Init(r.Context(), in.AdvertiseAddr); err != nil {
			return err
		}
	}
	if err := s.pass(r.Context(), led); err != nil {
		return err
	}
	if !reflect.DeepEqual(in.Spec, swarm.Spec{}) {
		err := s.changeSwarm(r.Context(), in.Spec, api.KeyRotation{}, func(swarm.Swarm) bool { return true })
		if err != nil {
			return fmt.Errorf("the cluster is there, but not as it was asked for: %w", err)
		}
	}
	return writeJSON(w, http.StatusOK, s.cfg.Cluster.NodeID())
}

// swarmJoin makes this node a member of another cluster. It returns when the
// cluster knows it.
func (s *Server) swarmJoin(w http.ResponseWriter, r *http.Request) error {
	var in swarm.JoinRequest
	if err := decodeJSON(w, r, &in); err != nil {
		return err
	}
	if err := admitListening(in.ListenAddr, in.DataPathAddr); err != nil {
		return err
	}
	j := cluster.Joining{Managers: in.RemoteAddrs, Token: in.JoinToken, AdvertiseAddr: in.AdvertiseAddr}
	switch in.Availability {
	case "", swarm.NodeAvailabilityActive:
	case swarm.NodeAvailabilityPause:
		j.Availability = api.NodeAvailabilityPause
	case swarm.NodeAvailabilityDrain:
		j.Availability = api.NodeAvailabilityDrain
	default:
		return errInvalid("invalid availability %q", in.Availability)
	}
	return s.cfg.Cluster.Join(r.Context(), j)
}

// admitListening refuses addresses to listen on that differ from those that
// the daemon was started with. The client sends its own default always.
func admitListening(listen, dataPath string) error {
	if host, _, err := net.SplitHostPort(listen); listen != "" && (err != nil || host != "0.0.0.0" && host != "[::]" && host != "") {
		return errNotSupported("the address to listen on is chosen with satld's --listen-addr")
	}
	if dataPath != "" {
		return errNotSupported("an address of its own for the data path is not supported")
	}
	return nil
}

// swarmLeave makes this node a fresh cluster of one.
func (s *Server) swarmLeave(_ http.ResponseWriter, r *http.Request) error {
	force, err := queryStrictBool(r, "force")
	if err != nil {
		return err
	}
	return s.cfg.Cluster.Leave(r.Context(), force)
}

// cluster reads the one cluster object, without its secrets.
func (s *Server) clusterObject(ctx context.Context) (*api.Cluster, error) {
	resp, err := s.cfg.Cluster.Control().ListClusters(ctx, &api.ListClustersRequest{}, maxList)
	if err != nil {
		return nil, err
	}
	if len(resp.Clusters) == 0 {
		return nil, errUnavailable("This node is not part of a swarm")
	}
	return resp.Clusters[0], nil
}

// renderSwarm is the cluster as clients see it. Its version moves with its spec.
func renderSwarm(c *api.Cluster) swarm.Swarm {
	out := convert.SwarmFromGRPC(*c)
	out.Version.Index = specIndex(out.Spec)
	out.DefaultAddrPool = nil // SwarmKit's own, which no network here is taken from
	return out
}

func (s *Server) swarmInspect(w http.ResponseWriter, r *http.Request) error {
	c, err := s.clusterObject(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, renderSwarm(c))
}

// swarmUpdate changes what is honoured of the cluster's settings: labels,
// task history, heartbeat, certificate expiry; and rotates join tokens.
func (s *Server) swarmUpdate(w http.ResponseWriter, r *http.Request) error {
	var spec swarm.Spec
	if err := decodeJSON(w, r, &spec); err != nil {
		return err
	}
	version, err := queryVersion(r, "swarm")
	if err != nil {
		return err
	}
	var rotate [3]bool
	for i, name := range []string{"rotateWorkerToken", "rotateManagerToken", "rotateManagerUnlockKey"} {
		if rotate[i], err = queryStrictBool(r, name); err != nil {
			return err
		}
	}
	if rotate[2] {
		return errNotSupported("autolock is not supported")
	}
	return s.changeSwarm(r.Context(), spec, api.KeyRotation{WorkerJoinToken: rotate[0], ManagerJoinToken: rotate[1]},
		func(now swarm.Swarm) bool { return now.Version.Index == version })
}

// changeSwarm gives the cluster another spec, if it is one that may be changed.
func (s *Server) changeSwarm(ctx context.Context, spec swarm.Spec, rotate api.KeyRotation, may func(now swarm.Swarm) bool) error {
	return updateLoop(ctx, func() error {
		current, err := s.clusterObject(ctx)
		if err != nil {
			return err
		}
		shown := renderSwarm(current)
		if !may(shown) {
			return staleVersion{}
		}
		if err := admitSwarm(&spec, &shown.Spec); err != nil {
			return err
		}
		next, err := convert.MergeSwarmSpecToGRPC(spec, *current.Spec.Copy())
		if err != nil {
			return errInvalid("%v", err)
		}
		next.Annotations.Labels = spec.Labels
		_, err = s.cfg.Cluster.Control().UpdateCluster(ctx, &api.UpdateClusterRequest{
			ClusterID: current.ID, Spec: &next, ClusterVersion: &current.Meta.Version, Rotation: rotate,
		})
		return err
	})
}

// admitSwarm refuses changes of what has no effect here. Zero values are
// those that the client leaves as they are.
func admitSwarm(spec, current *swarm.Spec) error {
	if spec.Name == "" {
		spec.Name = current.Name
	}
	raft := spec.Raft
	raft.KeepOldSnapshots = nil // a pointer, and of no effect in Docker either
	currentRaft := current.Raft
	currentRaft.KeepOldSnapshots = nil
	switch {
	case spec.Name != current.Name:
		return errInvalid(`swarm spec must be named "default"`)
	case raft != swarm.RaftConfig{} && !reflect.DeepEqual(raft, currentRaft):
		return errNotSupported("changing raft settings is not supported")
	case spec.EncryptionConfig.AutoLockManagers:
		return errNotSupported("autolock is not supported")
	case len(spec.CAConfig.ExternalCAs) > 0:
		return errNotSupported("external certificate authorities are not supported")
	case spec.TaskDefaults.LogDriver != nil:
		return errNotSupported("a default log driver for tasks is not supported")
	}
	return nil
}
