// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/events"
	goevents "github.com/docker/go-events"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"golang.org/x/sync/errgroup"
)

const (
	// sweepEvery is how often bridges of networks that are gone are looked for.
	sweepEvery = 2 * time.Second
	// sweepTimeout bounds one look.
	sweepTimeout = 10 * time.Second
)

// Run does what no request asks for, until ctx is done: events of services,
// nodes, networks, secrets and configs from changes of the store, and the removal of bridges
// whose network is gone.
func (s *Server) Run(ctx context.Context) error {
	if err := s.cfg.Cluster.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var g errgroup.Group
	g.Go(func() error { s.watchStore(ctx); return nil })
	g.Go(func() error { s.sweepLoop(ctx); return nil })
	return g.Wait()
}

// watchStore publishes what changes in the store of whatever cluster this node
// is in. It begins once the store is loaded, so that a restart does not tell
// old news.
func (s *Server) watchStore(ctx context.Context) {
	for ctx.Err() == nil {
		s.watchMember(ctx, s.cfg.Cluster.Ended())
		select {
		case <-ctx.Done():
		case <-time.After(rewatch): // the next store is opened
		}
	}
}

// rewatch is the wait before the store of the next cluster is looked at.
const rewatch = 100 * time.Millisecond

// watchMember publishes until this node is no longer in the cluster it is in.
func (s *Server) watchMember(ctx context.Context, ended <-chan struct{}) {
	changes, cancel := state.Watch(s.cfg.Cluster.Store().WatchQueue(),
		api.EventCreateService{}, api.EventUpdateService{}, api.EventDeleteService{}, api.EventCreateTask{}, api.EventUpdateTask{},
		api.EventCreateNode{}, api.EventUpdateNode{}, api.EventDeleteNode{},
		api.EventCreateNetwork{}, api.EventDeleteNetwork{},
		api.EventCreateSecret{}, api.EventUpdateSecret{}, api.EventDeleteSecret{},
		api.EventCreateConfig{}, api.EventUpdateConfig{}, api.EventDeleteConfig{})
	defer cancel()
	said := make(warned)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case change, open := <-changes:
			if !open {
				return
			}
			if m, ok := storeEvent(change); ok {
				s.cfg.Events.Publish(m)
			}
			if c, ok := change.(api.EventCreateTask); ok {
				s.warnOfFlapping(c.Task, said, time.Now())
			}
		}
	}
}

func (s *Server) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			bounded, cancel := context.WithTimeout(ctx, sweepTimeout)
			s.sweepNetworks(bounded)
			cancel()
		}
	}
}

// storeEvent is a change of the store as Docker's events tell it. ok is false
// for a change that shows nothing.
func storeEvent(change goevents.Event) (m events.Message, ok bool) {
	switch c := change.(type) {
	case api.EventCreateService:
		return clusterEvent(events.ServiceEventType, events.ActionCreate, c.Service.ID, c.Service.Meta.CreatedAt, named(c.Service.Spec.Annotations)), true
	case api.EventDeleteService:
		return clusterEvent(events.ServiceEventType, events.ActionRemove, c.Service.ID, nil, named(c.Service.Spec.Annotations)), true
	case api.EventUpdateService:
		attributes := serviceChange(c.Service, c.OldService)
		return clusterEvent(events.ServiceEventType, events.ActionUpdate, c.Service.ID, c.Service.Meta.UpdatedAt, attributes),
			c.OldService == nil || shownVersion(c.Service) != shownVersion(c.OldService) || len(attributes) > 1
	case api.EventUpdateTask:
		return budgetEvent(c.Task, c.OldTask)
	case api.EventCreateNode:
		return clusterEvent(events.NodeEventType, events.ActionCreate, c.Node.ID, c.Node.Meta.CreatedAt, nodeChange(c.Node, nil)), true
	case api.EventDeleteNode:
		return clusterEvent(events.NodeEventType, events.ActionRemove, c.Node.ID, nil, nodeChange(c.Node, nil)), true
	case api.EventUpdateNode:
		attributes := nodeChange(c.Node, c.OldNode)
		return clusterEvent(events.NodeEventType, events.ActionUpdate, c.Node.ID, c.Node.Meta.UpdatedAt, attributes),
			c.OldNode == nil || len(attributes) > 1 || specIndex(c.Node.Spec) != specIndex(c.OldNode.Spec)
	case api.EventCreateNetwork:
		return clusterEvent(events.NetworkEventType, events.ActionCreate, c.Network.ID, c.Network.Meta.CreatedAt, networkNews(c.Network)), !standsIn(c.Network)
	case api.EventDeleteNetwork:
		return clusterEvent(events.NetworkEventType, events.ActionRemove, c.Network.ID, nil, networkNews(c.Network)), !standsIn(c.Network)
	case api.EventCreateSecret:
		return clusterEvent(events.SecretEventType, events.ActionCreate, c.Secret.ID, c.Secret.Meta.CreatedAt, named(c.Secret.Spec.Annotations)), true
	case api.EventUpdateSecret:
		return clusterEvent(events.SecretEventType, events.ActionUpdate, c.Secret.ID, c.Secret.Meta.UpdatedAt, named(c.Secret.Spec.Annotations)), true
	case api.EventDeleteSecret:
		return clusterEvent(events.SecretEventType, events.ActionRemove, c.Secret.ID, nil, named(c.Secret.Spec.Annotations)), true
	case api.EventCreateConfig:
		return clusterEvent(events.ConfigEventType, events.ActionCreate, c.Config.ID, c.Config.Meta.CreatedAt, named(c.Config.Spec.Annotations)), true
	case api.EventUpdateConfig:
		return clusterEvent(events.ConfigEventType, events.ActionUpdate, c.Config.ID, c.Config.Meta.UpdatedAt, named(c.Config.Spec.Annotations)), true
	case api.EventDeleteConfig:
		return clusterEvent(events.ConfigEventType, events.ActionRemove, c.Config.ID, nil, named(c.Config.Spec.Annotations)), true
	}
	return events.Message{}, false
}

// clusterEvent makes an event; without a time it happens now.
func clusterEvent(kind events.Type, action events.Action, id string, at *gogotypes.Timestamp, attributes map[string]string) events.Message {
	m := events.Message{Type: kind, Action: action, Scope: scopeSwarm, Actor: events.Actor{ID: id, Attributes: attributes}}
	if t, err := gogotypes.TimestampFromProto(at); err == nil {
		m.Time, m.TimeNano = t.Unix(), t.UnixNano()
	}
	return m
}

func named(a api.Annotations) map[string]string { return map[string]string{"name": a.Name} }

func networkNews(n *api.Network) map[string]string {
	return map[string]string{"name": n.Spec.Annotations.Name, "type": driverOf(n)}
}

// standsIn tells the networks that only stand for a predefined one.
func standsIn(n *api.Network) bool {
	return n.Spec.Ingress || n.Spec.Annotations.Labels[predefinedLabel] == "true"
}

// serviceChange names what changed of a service, besides its name.
func serviceChange(now, before *api.Service) map[string]string {
	attributes := named(now.Spec.Annotations)
	if before == nil {
		return attributes
	}
	change := changes(attributes)
	if a, b := before.Spec.Task.GetContainer(), now.Spec.Task.GetContainer(); a != nil && b != nil {
		change("image", a.Image, b.Image)
	}
	if a, b := before.Spec.GetReplicated(), now.Spec.GetReplicated(); a != nil && b != nil {
		change("replicas", strconv.FormatUint(a.Replicas, 10), strconv.FormatUint(b.Replicas, 10))
	}
	if now.UpdateStatus != nil {
		old := ""
		if before.UpdateStatus != nil {
			old = lower(before.UpdateStatus.State)
		}
		change("updatestate", old, lower(now.UpdateStatus.State))
	}
	return attributes
}

// nodeChange names what changed of a node, besides its name.
func nodeChange(now, before *api.Node) map[string]string {
	attributes := named(now.Spec.Annotations)
	if attributes["name"] == "" && now.Description != nil {
		attributes["name"] = now.Description.Hostname
	}
	if before == nil {
		return attributes
	}
	change := changes(attributes)
	change("availability", lower(before.Spec.Availability), lower(now.Spec.Availability))
	change("role", lower(before.Role), lower(now.Role))
	change("state", lower(before.Status.State), lower(now.Status.State))
	if a, b := before.ManagerStatus, now.ManagerStatus; a != nil && b != nil {
		change("leader", strconv.FormatBool(a.Leader), strconv.FormatBool(b.Leader))
		change("reachability", lower(a.Reachability), lower(b.Reachability))
	}
	return attributes
}

// changes gives a function that notes an old and a new value where they
// differ; an empty old value is left out, as Docker does.
func changes(attributes map[string]string) func(what, before, now string) {
	return func(what, before, now string) {
		if before == now {
			return
		}
		if before != "" {
			attributes[what+".old"] = before
		}
		attributes[what+".new"] = now
	}
}

func lower(v interface{ String() string }) string { return strings.ToLower(v.String()) }
