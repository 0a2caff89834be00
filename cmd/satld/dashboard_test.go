// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
	"satld/healthcheck"
	"satld/mesh"
)

// listing is containers of which there is a list and nothing else.
type listing struct {
	executor.Containers
	all []executor.Snapshot
}

func (l listing) List() []executor.Snapshot { return l.all }

// TestDashboardRows: tasks by slot, the newest first, under the names that
// other commands take, and with the health of those alone that live.
func TestDashboardRows(t *testing.T) {
	s := store.NewMemoryStore(nil)
	defer s.Close()
	now := time.Unix(1_700_000_000, 0)
	stamp := func(age time.Duration) *gogotypes.Timestamp {
		at, err := gogotypes.TimestampProto(now.Add(-age))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	// Without raft the store sets no times of its own.
	task := func(id string, slot uint64, state api.TaskState, age time.Duration) *api.Task {
		return &api.Task{
			ID: id, ServiceID: "s", Slot: slot, NodeID: "n1", Status: api.TaskStatus{State: state, Timestamp: stamp(age)},
			Meta: api.Meta{CreatedAt: stamp(age)},
		}
	}
	removed := task("gone", 3, api.TaskStateRunning, time.Hour)
	removed.DesiredState = api.TaskStateRemove
	var health []executor.Snapshot
	if err := s.Update(func(tx store.Tx) error {
		if err := store.CreateNode(tx, &api.Node{ID: "n1", Description: &api.NodeDescription{Hostname: "here"}}); err != nil {
			return err
		}
		if err := store.CreateService(tx, &api.Service{ID: "s", Spec: api.ServiceSpec{Annotations: api.Annotations{Name: "web"}}}); err != nil {
			return err
		}
		for _, task := range []*api.Task{
			task("b23456789012345", 10, api.TaskStateRunning, time.Minute), task("c", 2, api.TaskStateFailed, time.Hour),
			task("d", 2, api.TaskStateStarting, time.Second), removed,
		} {
			if err := store.CreateTask(tx, task); err != nil {
				return err
			}
			health = append(health, executor.Snapshot{
				TaskID: task.ID, Config: &container.Config{Healthcheck: &container.HealthConfig{Retries: 3}},
				Health: &healthcheck.Health{Status: healthcheck.Starting},
			})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	d := dashboard{store: func() *store.MemoryStore { return s }, containers: listing{all: health}, observed: func(string) mesh.Verdict { return "" }}
	var got []string
	for _, row := range d.services(now)[0].Tasks {
		got = append(got, fmt.Sprintf("%s %s %s %q", row.Name, row.Node, row.State, row.Verdict))
		if (row.Health == "") != (row.Verdict == "") {
			t.Errorf("%s: health %q of verdict %q", row.Name, row.Health, row.Verdict)
		}
	}
	want := []string{`web.2.d here starting "starting"`, `web.2.c here failed ""`, `web.10.b23456789012 here running "starting"`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
