// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
)

func (s *Server) eventRoutes(r *routes) {
	r.whileLoading().get("/events", s.eventStream)
}

// eventFilterNames are the filters that Docker has for events. Those of kinds
// of things that do not exist here match nothing.
var eventFilterNames = []string{"config", "container", "daemon", "event", "image", "label", "network", "node",
	"plugin", "scope", "secret", "service", "type", "volume"}

// eventStream sends the events kept since a time, then those to come, until a
// time, or until the client has gone.
func (s *Server) eventStream(w http.ResponseWriter, r *http.Request) error {
	now := time.Now()
	since, err := queryTime(r, "since", now)
	if err != nil {
		return err
	}
	until, err := queryTime(r, "until", now)
	if err != nil {
		return err
	}
	if !until.IsZero() && until.Before(since) {
		return errInvalid("`since` time (%s) cannot be after `until` time (%s)", r.URL.Query().Get("since"), r.URL.Query().Get("until"))
	}
	args, err := parseFilters(r, eventFilterNames...)
	if err != nil {
		return err
	}
	past, live, cancel := s.cfg.Events.Subscribe(since)
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(newFlushWriter(w))
	send := func(m events.Message) error {
		if !eventMatches(args, m) || !until.IsZero() && m.TimeNano > until.UnixNano() {
			return nil
		}
		return enc.Encode(m)
	}
	for _, m := range past {
		if err := send(m); err != nil {
			return err
		}
	}
	var over <-chan time.Time
	if !until.IsZero() {
		if !until.After(now) {
			return nil
		}
		timer := time.NewTimer(until.Sub(now))
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case m, open := <-live:
			if !open {
				return nil // lagged too far behind: the client sees the end, and can ask again with since
			}
			if err := send(m); err != nil {
				return err
			}
		case <-over:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// eventMatches tells whether an event passes the filters: for each filter
// named, one of its values must match.
func eventMatches(args filters.Args, m events.Message) bool {
	for _, kind := range []events.Type{events.ConfigEventType, events.ContainerEventType, events.DaemonEventType,
		events.NetworkEventType, events.NodeEventType, events.PluginEventType, events.SecretEventType,
		events.ServiceEventType, events.VolumeEventType} {
		if args.Contains(string(kind)) && (m.Type != kind ||
			!args.FuzzyMatch(string(kind), m.Actor.ID) && !args.FuzzyMatch(string(kind), m.Actor.Attributes["name"])) {
			return false
		}
	}
	return args.ExactMatch("type", string(m.Type)) && args.ExactMatch("scope", m.Scope) &&
		eventAction(args, m) && eventImage(args, m) && args.MatchKVList("label", m.Actor.Attributes)
}

// eventAction matches the action; health_status, exec_create and exec_start
// match whatever follows their colon.
func eventAction(args filters.Args, m events.Message) bool {
	for _, prefix := range []string{"health_status", "exec_create", "exec_start"} {
		if slices.Contains(args.Get("event"), prefix) {
			return args.FuzzyMatch("event", string(m.Action))
		}
	}
	return args.ExactMatch("event", string(m.Action))
}

// eventImage matches an image's ID or name, with or without its tag, in the
// events of images and of the containers made from them.
func eventImage(args filters.Args, m events.Message) bool {
	if !args.Contains("image") {
		return true
	}
	name := m.Actor.Attributes["image"]
	if m.Type == events.ImageEventType {
		name = m.Actor.Attributes["name"]
	}
	return slices.ContainsFunc([]string{m.Actor.ID, name, withoutTag(m.Actor.ID), withoutTag(name)}, func(s string) bool {
		return s != "" && args.ExactMatch("image", s)
	})
}

func withoutTag(image string) string {
	ref, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return reference.FamiliarName(ref)
}
