// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
	"satld/mesh"
)

// dashboard is a read-only page of services, their tasks and their health: for
// other nodes' tasks what this node makes of them. It has no scripts and changes nothing.
type dashboard struct {
	store      func() *store.MemoryStore // of the cluster that this node is in now
	containers executor.Containers
	observed   func(taskID string) mesh.Verdict // of tasks of other nodes
}

type dashboardTask struct {
	Name, Node, State, Since, Verdict, Health, Err string
}

type dashboardService struct {
	Name  string
	Tasks []dashboardTask
}

var dashboardPage = template.Must(template.New("dashboard").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5"><title>satld</title>
<style>body{font-family:sans-serif;margin:2em}table{border-collapse:collapse;margin-bottom:1.5em}
td,th{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid #ddd}.healthy{color:#060}.unhealthy,.failed{color:#a00}</style>
</head><body><h1>satld</h1>
{{range .}}<h2>{{.Name}}</h2>
<table><tr><th>task<th>node<th>state<th>since<th>health<th>error</tr>
{{range .Tasks}}<tr><td>{{.Name}}<td>{{.Node}}<td class="{{.State}}">{{.State}}<td>{{.Since}}<td class="{{.Verdict}}">{{.Health}}<td>{{.Err}}</tr>
{{end}}</table>
{{else}}<p>No services.</p>
{{end}}</body></html>
`))

// ServeHTTP renders the page.
func (d dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "read only", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	var page bytes.Buffer
	if err := dashboardPage.Execute(&page, d.services(time.Now())); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(page.Bytes()) // the client is gone if this fails
}

func (d dashboard) services(now time.Time) []dashboardService {
	verdict, health := map[string]string{}, map[string]string{}
	verdictOf := func(t *api.Task) string {
		if t.Status.State > api.TaskStateRunning {
			return "" // what it was last is no news
		}
		if v, here := verdict[t.ID]; here || t.Status.State != api.TaskStateRunning {
			return v
		}
		return string(d.observed(t.ID))
	}
	for _, c := range d.containers.List() {
		if c.Health != nil {
			verdict[c.TaskID] = c.Health.Status.String()
			health[c.TaskID] = c.Health.Progress(c.Config.Healthcheck.Retries)
		}
	}
	var services []*api.Service
	var tasks []*api.Task
	hosts := map[string]string{}
	var err error
	d.store().View(func(tx store.ReadTx) {
		if services, err = store.FindServices(tx, store.All); err != nil {
			return
		}
		if tasks, err = store.FindTasks(tx, store.All); err != nil {
			return
		}
		var nodes []*api.Node
		if nodes, err = store.FindNodes(tx, store.All); err != nil {
			return
		}
		for _, n := range nodes {
			if n.Description != nil {
				hosts[n.ID] = n.Description.Hostname
			}
		}
	})
	if err != nil { // of unknown selectors only, and All is known
		return nil
	}
	slices.SortFunc(tasks, func(a, b *api.Task) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), strings.Compare(a.NodeID, b.NodeID),
			b.Meta.CreatedAt.Compare(a.Meta.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	var out []dashboardService
	for _, s := range services {
		row := dashboardService{Name: s.Spec.Annotations.Name}
		for _, t := range tasks {
			if t.ServiceID != s.ID || t.DesiredState == api.TaskStateRemove {
				continue
			}
			verdict := verdictOf(t)
			shown := dashboardTask{
				Name: nameOf(s, t), Node: hosts[t.NodeID], State: strings.ToLower(t.Status.State.String()),
				Since: since(t, now), Verdict: verdict, Err: t.Status.Err,
			}
			if verdict != "" {
				shown.Health = cmp.Or(health[t.ID], verdict)
			}
			row.Tasks = append(row.Tasks, shown)
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b dashboardService) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// nameOf is a task's name as its container has it, and no longer than the ID's
// first 12 characters make it.
func nameOf(s *api.Service, t *api.Task) string {
	place := t.NodeID
	if t.Slot != 0 {
		place = strconv.FormatUint(t.Slot, 10)
	}
	return s.Spec.Annotations.Name + "." + place + "." + t.ID[:min(len(t.ID), 12)]
}

func since(t *api.Task, now time.Time) string {
	if t.Status.Timestamp == nil {
		return ""
	}
	at := time.Unix(t.Status.Timestamp.Seconds, int64(t.Status.Timestamp.Nanos))
	return now.Sub(at).Round(time.Second).String()
}
