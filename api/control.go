// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"google.golang.org/grpc"
)

// controlTimeout bounds one request to the cluster: Docker's own 20 s.
const controlTimeout = 20 * time.Second

// outOfSequence is the text of a lost update, as Docker's clients know it.
const outOfSequence = "rpc error: code = Unknown desc = update out of sequence"

// manager guards a handler that reads or changes the cluster: it is refused
// on a worker in Docker's words, and bounded in time.
func (s *Server) manager(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.mustManage(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), controlTimeout)
		defer cancel()
		return h(w, r.WithContext(ctx))
	}
}

func (s *Server) mustManage() error {
	if s.cfg.Cluster.Manager() {
		return nil
	}
	return errUnavailable("This node is not a swarm manager. Worker nodes can't be used to view or modify cluster state. Please run this command on a manager node or promote the current node to a manager.")
}

// conflicted tells whether a write lost against another one.
func conflicted(err error) bool {
	return err != nil && strings.Contains(err.Error(), store.ErrSequenceConflict.Error())
}

// maxUpdateTries bounds the retries of an update that loses only against
// changes of status, which no client can see in the version.
const maxUpdateTries = 20

// updateLoop runs attempt until it does not lose against another write.
// attempt reads the object anew, checks the version its client saw, and
// writes; so a change of status is absorbed and a change of spec refused
// (cases/api.md, api-1).
func updateLoop(ctx context.Context, attempt func() error) error {
	var err error
	for range maxUpdateTries {
		err = attempt()
		if errors.As(err, new(staleVersion)) || !conflicted(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

// staleVersion is the refusal of an update whose version is not the current one.
type staleVersion struct{}

func (staleVersion) Error() string { return outOfSequence }

// specIndex is the version shown of an object whose spec has none of its own
// in the store: a hash of the spec, so that it moves with the spec and with
// nothing else. 53 bits, which every JSON reader keeps exact.
func specIndex(spec any) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(spec) // a spec of the API always encodes
	return h.Sum64() >> 11
}

// maxList lets the answer to a list grow to what Docker allows, 16 MiB.
var maxList = grpc.MaxCallRecvMsgSize(16 << 20)

// anySize is for lists with contents in them. They are read from this node's
// own store.
var anySize = grpc.MaxCallRecvMsgSize(math.MaxInt32)

// convertLabelFilters turns "key=value" and "key" into the map that the
// control API takes: an empty value matches any.
func convertLabelFilters(values []string) map[string]string {
	labels := make(map[string]string, len(values))
	for _, v := range values {
		key, value, _ := strings.Cut(v, "=")
		labels[key] = value
	}
	return labels
}

// uniquely finds one object by full ID, then name, then unique prefix of an
// ID. get and list give nothing when there is none.
func uniquely[T any](what, input string, get func(id string) (*T, error), byName, byPrefix func(string) ([]*T, error)) (*T, error) {
	if input == "" {
		return nil, errInvalid("no %s named", what)
	}
	if found, err := get(input); err == nil && found != nil {
		return found, nil
	}
	list, err := byName(input)
	if err == nil && len(list) == 0 {
		list, err = byPrefix(input)
	}
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, errNotFound("%s %s not found", what, input)
	case len(list) > 1:
		return nil, errInvalid("%s %s is ambiguous (%d matches found)", what, input, len(list))
	}
	return list[0], nil
}

// findService finds a service by ID, name, or unique prefix of its ID.
func (s *Server) findService(ctx context.Context, input string) (*api.Service, error) {
	control := s.cfg.Cluster.Control()
	list := func(f *api.ListServicesRequest_Filters) ([]*api.Service, error) {
		resp, err := control.ListServices(ctx, &api.ListServicesRequest{Filters: f}, maxList)
		if err != nil {
			return nil, err
		}
		return resp.Services, nil
	}
	return uniquely("service", input,
		func(id string) (*api.Service, error) {
			resp, err := control.GetService(ctx, &api.GetServiceRequest{ServiceID: id})
			if err != nil {
				return nil, err
			}
			return resp.Service, nil
		},
		func(name string) ([]*api.Service, error) {
			return list(&api.ListServicesRequest_Filters{Names: []string{name}})
		},
		func(prefix string) ([]*api.Service, error) {
			return list(&api.ListServicesRequest_Filters{IDPrefixes: []string{prefix}})
		})
}

// findTask finds a task by ID, name (web.1.<id>), or unique prefix of its ID.
func (s *Server) findTask(ctx context.Context, input string) (*api.Task, error) {
	control := s.cfg.Cluster.Control()
	list := func(f *api.ListTasksRequest_Filters) ([]*api.Task, error) {
		resp, err := control.ListTasks(ctx, &api.ListTasksRequest{Filters: f}, maxList)
		if err != nil {
			return nil, err
		}
		return resp.Tasks, nil
	}
	return uniquely("task", input,
		func(id string) (*api.Task, error) {
			resp, err := control.GetTask(ctx, &api.GetTaskRequest{TaskID: id})
			if err != nil {
				return nil, err
			}
			return resp.Task, nil
		},
		func(name string) ([]*api.Task, error) {
			return list(&api.ListTasksRequest_Filters{Names: []string{name}})
		},
		func(prefix string) ([]*api.Task, error) {
			return list(&api.ListTasksRequest_Filters{IDPrefixes: []string{prefix}})
		})
}

// findNode finds a node by ID, host name, or unique prefix of its ID; "self" is this node.
func (s *Server) findNode(ctx context.Context, input string) (*api.Node, error) {
	if input == "self" {
		input = s.cfg.Cluster.NodeID()
	}
	control := s.cfg.Cluster.Control()
	list := func(f *api.ListNodesRequest_Filters) ([]*api.Node, error) {
		resp, err := control.ListNodes(ctx, &api.ListNodesRequest{Filters: f}, maxList)
		if err != nil {
			return nil, err
		}
		return resp.Nodes, nil
	}
	return uniquely("node", input,
		func(id string) (*api.Node, error) {
			resp, err := control.GetNode(ctx, &api.GetNodeRequest{NodeID: id})
			if err != nil {
				return nil, err
			}
			return resp.Node, nil
		},
		func(name string) ([]*api.Node, error) {
			return list(&api.ListNodesRequest_Filters{Names: []string{name}})
		},
		func(prefix string) ([]*api.Node, error) {
			return list(&api.ListNodesRequest_Filters{IDPrefixes: []string{prefix}})
		})
}
