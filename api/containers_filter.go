// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"

	"satld/executor"
)

// containerQuery selects containers for a list: a value, computed from a
// request once, that looks nothing up while it chooses.
type containerQuery struct {
	all     bool
	limit   int // 0 is no limit
	filters filters.Args
	names   func(string) string // network names
	own     string              // the node's own network as the operator named it

	before, since string          // container IDs; "" is no bound
	ancestors     map[string]bool // image IDs; nil is any
	ids           map[string]bool // container IDs; nil is any
	exited        []int
	task          *bool
	publish       map[nat.Port]bool
	expose        map[nat.Port]bool
}

// containerQuery reads the query of GET /containers/json. An unknown filter,
// or a value that cannot be one, is refused.
func (s *Server) containerQuery(r *http.Request) (*containerQuery, error) {
	args, err := parseFilters(r, "ancestor", "before", "exited", "expose", "health", "id", "is-task", "label",
		"name", "network", "publish", "since", "status", "volume")
	if err != nil {
		return nil, err
	}
	limit, err := queryInt(r, "limit", 0)
	if err != nil {
		return nil, err
	}
	q := &containerQuery{all: queryBool(r, "all"), limit: int(max(0, limit)), filters: args, names: s.networkNames(), own: s.cfg.NetworkName}
	for _, v := range args.Get("exited") {
		code, err := strconv.Atoi(v)
		if err != nil {
			return nil, errInvalid("invalid filter 'exited=%s'", v)
		}
		q.exited = append(q.exited, code)
	}
	for _, v := range args.Get("status") {
		if err := container.ValidateContainerState(v); err != nil {
			return nil, errInvalid("invalid filter 'status=%s': %v", v, err)
		}
		q.all = true
	}
	for _, v := range args.Get("health") {
		if err := container.ValidateHealthStatus(v); err != nil {
			return nil, errInvalid("invalid filter 'health=%s': %v", v, err)
		}
	}
	if args.Contains("is-task") {
		task, err := args.GetBoolOrDefault("is-task", false)
		if err != nil {
			return nil, err
		}
		q.task = &task
	}
	if q.publish, err = portFilter("publish", args.Get("publish")); err != nil {
		return nil, err
	}
	if q.expose, err = portFilter("expose", args.Get("expose")); err != nil {
		return nil, err
	}
	return q, s.resolveContainerQuery(r, q)
}

// resolveContainerQuery looks up what the filters name: containers and images.
func (s *Server) resolveContainerQuery(r *http.Request, q *containerQuery) error {
	bounds := []struct {
		to    *string
		names []string
	}{
		{&q.before, append(q.filters.Get("before"), r.URL.Query().Get("before"))},
		{&q.since, append(q.filters.Get("since"), r.URL.Query().Get("since"))},
	}
	for _, b := range bounds {
		for _, name := range b.names {
			if name == "" {
				continue
			}
			c, err := s.cfg.Containers.Get(name)
			if err != nil {
				return err
			}
			*b.to = c.ID
		}
	}
	if q.filters.Contains("id") {
		q.ids = map[string]bool{}
		for _, prefix := range q.filters.Get("id") {
			for _, c := range s.cfg.Containers.List() {
				if strings.HasPrefix(c.ID, prefix) {
					q.ids[c.ID] = true
				}
			}
		}
	}
	if q.filters.Contains("ancestor") {
		q.ancestors = map[string]bool{}
		for _, ref := range q.filters.Get("ancestor") {
			if img, err := s.cfg.Images.Get(ref); err == nil {
				q.ancestors[img.ID] = true
			}
		}
	}
	return nil
}

// portFilter reads ports as 80, 80/udp or 8000-8010/tcp.
func portFilter(name string, values []string) (map[nat.Port]bool, error) {
	ports := map[nat.Port]bool{}
	for _, v := range values {
		if strings.Contains(v, ":") {
			return nil, errInvalid("filter for '%s' should not contain ':': %s", name, v)
		}
		proto, port := nat.SplitProtoPort(v)
		first, last, err := nat.ParsePortRange(port)
		if err != nil {
			return nil, errInvalid("invalid filter '%s=%s': %v", name, v, err)
		}
		for p := first; p <= last; p++ {
			ports[nat.Port(fmt.Sprintf("%d/%s", p, proto))] = true
		}
	}
	return ports, nil
}

// choose picks from a list that is ordered newest first.
func (q *containerQuery) choose(list []executor.Snapshot) []executor.Snapshot {
	if q.before != "" {
		at := slices.IndexFunc(list, func(c executor.Snapshot) bool { return c.ID == q.before })
		list = list[at+1:]
	}
	if q.since != "" {
		if at := slices.IndexFunc(list, func(c executor.Snapshot) bool { return c.ID == q.since }); at >= 0 {
			list = list[:at]
		}
	}
	var out []executor.Snapshot
	for _, c := range list {
		if q.limit > 0 && len(out) == q.limit {
			break
		}
		if q.matches(c) {
			out = append(out, c)
		}
	}
	return out
}

func (q *containerQuery) matches(c executor.Snapshot) bool {
	if !c.State.Live() && !q.all && q.limit == 0 {
		return false
	}
	if !q.filters.Match("name", c.Name) && !q.filters.Match("name", "/"+c.Name) {
		return false
	}
	if q.ids != nil && !q.ids[c.ID] || q.ancestors != nil && !q.ancestors[c.ImageID] {
		return false
	}
	if q.task != nil && *q.task != (c.TaskID != "") {
		return false
	}
	if !q.filters.MatchKVList("label", shownLabels(c)) || !q.filters.Match("status", c.State.String()) {
		return false
	}
	if len(q.exited) > 0 && (c.State.Live() || c.Started.IsZero() || !slices.Contains(q.exited, c.ExitCode)) {
		return false
	}
	return q.filters.ExactMatch("health", healthName(c)) && q.matchesVolume(c) && q.matchesNetwork(c) && q.matchesPort(c)
}

// healthName is a container's health as the filter names it.
func healthName(c executor.Snapshot) string {
	if c.Health == nil {
		return container.NoHealthcheck
	}
	return c.Health.Status.String()
}

func (q *containerQuery) matchesVolume(c executor.Snapshot) bool {
	values := q.filters.Get("volume")
	return len(values) == 0 || slices.ContainsFunc(values, func(v string) bool {
		for _, m := range c.Mounts {
			if m.Source == v || m.Target == v {
				return true
			}
		}
		return false
	})
}

func (q *containerQuery) matchesNetwork(c executor.Snapshot) bool {
	values := q.filters.Get("network")
	return len(values) == 0 || slices.ContainsFunc(values, func(v string) bool {
		for name, ep := range endpoints(c, q.names) {
			if name == v || v == q.own && name == network.NetworkBridge || ep.NetworkID != "" && strings.HasPrefix(ep.NetworkID, v) {
				return true
			}
		}
		return false
	})
}

func (q *containerQuery) matchesPort(c executor.Snapshot) bool {
	if len(q.publish) == 0 && len(q.expose) == 0 {
		return true
	}
	for _, p := range listedPorts(c) {
		if q.publish[nat.Port(fmt.Sprintf("%d/%s", p.PublicPort, p.Type))] || q.expose[nat.Port(fmt.Sprintf("%d/%s", p.PrivatePort, p.Type))] {
			return true
		}
	}
	return false
}
