// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"
	"pgregory.net/rapid"
)

// TestReportsAreKept: one a task, with what its version was, over a restart of
// the daemon, and gone with their service.
func TestReportsAreKept(t *testing.T) {
	dir := stateDir(t)
	n := startNode(t, dir, newFake(), nil)
	web, db := create(t, n, replicas("web", 1)), create(t, n, replicas("db", 1))
	first, other := awaitLive(t, n, web.ID, 1)[0], awaitLive(t, n, db.ID, 1)[0]
	before := time.Now()
	if err := n.KeepReport(t.Context(), first.ID, []byte(`{"state":"failed"}`)); err != nil {
		t.Fatal(err)
	}
	if err := n.KeepReport(t.Context(), first.ID, []byte(`{"state":"again"}`)); err != nil {
		t.Errorf("a second report: %v", err)
	}
	if err := n.KeepReport(t.Context(), other.ID, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	check := func(n *running) {
		t.Helper()
		got, err := n.Reports(web.ID)
		if err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		r := got[0]
		if r.TaskID != first.ID || r.ServiceID != web.ID || r.NodeID != n.NodeID() || r.Slot != 1 || r.Version != specVersion(first) ||
			r.Image != "image" || string(r.Payload) != `{"state":"failed"}` || r.At.Before(before.Add(-time.Second)) || r.At.After(time.Now().Add(time.Second)) {
			t.Errorf("%+v", r)
		}
	}
	check(n)
	for what, c := range map[string]struct {
		task   string
		report string
		is     func(error) bool
	}{
		"no task": {"nobody", `{}`, errdefs.IsNotFound},
		"no JSON": {first.ID, `{`, errdefs.IsInvalidArgument},
		"empty":   {first.ID, ``, errdefs.IsInvalidArgument},
		"large":   {first.ID, `"` + strings.Repeat("x", maxReport) + `"`, errdefs.IsInvalidArgument},
	} {
		if err := n.KeepReport(t.Context(), c.task, []byte(c.report)); !c.is(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	n.stop()

	n = startNode(t, dir, newFake(), nil)
	check(n)
	if _, err := n.Control().RemoveService(t.Context(), &api.RemoveServiceRequest{ServiceID: web.ID}); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Reports(web.ID); err != nil || len(got) != 0 {
		t.Errorf("of a removed service: %+v, %v", got, err)
	}
	if got, err := n.Reports(db.ID); err != nil || len(got) != 1 {
		t.Errorf("of another service: %+v, %v", got, err)
	}
}

// counter is a proposer that commits at once, so that objects get versions and
// times of creation.
type counter struct{ index atomic.Uint64 }

func (c *counter) ProposeValue(_ context.Context, _ []api.StoreAction, commit func()) error {
	c.index.Add(1)
	if commit != nil {
		commit()
	}
	return nil
}

func (c *counter) GetVersion() *api.Version { return &api.Version{Index: c.index.Load()} }

func (c *counter) ChangesBetween(api.Version, api.Version) ([]state.Change, error) {
	return nil, errors.New("no history")
}

// reportStore is a store with one service and a task of each of the versions.
func reportStore(t testing.TB, versions ...uint64) *store.MemoryStore {
	t.Helper()
	s := store.NewMemoryStore(&counter{})
	t.Cleanup(func() { s.Close() })
	err := s.Update(func(tx store.Tx) error {
		if err := store.CreateService(tx, &api.Service{ID: "svc", Spec: *replicas("svc", 1)}); err != nil {
			return err
		}
		for i, v := range versions {
			task := &api.Task{ID: fmt.Sprintf("task%03d", i), ServiceID: "svc", Slot: 1, SpecVersion: &api.Version{Index: v}}
			if err := store.CreateTask(tx, task); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keptReports(t testing.TB, s *store.MemoryStore, service string) (out []Report) {
	t.Helper()
	var err error
	s.View(func(tx store.ReadTx) { out, err = reportsOf(tx, service) })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReportsAreBounded: whatever fails in whatever order, at most ten
// versions and ten reports of each are kept: the newest versions that had one,
// and of each version the first that came.
func TestReportsAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		versions := rapid.SliceOfN(rapid.Uint64Range(0, 14), 1, 180).Draw(rt, "versions")
		s := reportStore(t, versions...)
		defer s.Close()
		arrived := map[uint64][]string{} // what a version was asked to keep, in order, since it was dropped last
		for i, v := range versions {
			id := fmt.Sprintf("task%03d", i)
			if err := keepReport(s, id, json.RawMessage(`{}`)); err != nil {
				rt.Fatal(err)
			}
			arrived[v] = append(arrived[v], id)
			got := map[uint64][]string{}
			for _, r := range keptReports(t, s, "svc") {
				got[r.Version] = append(got[r.Version], r.TaskID)
			}
			if len(got) > maxReportVersions {
				rt.Fatalf("%d versions", len(got))
			}
			for kept, ids := range got {
				if len(ids) > maxReportsPerVersion {
					rt.Fatalf("version %d has %d reports", kept, len(ids))
				}
				slices.Sort(ids)
				if want := arrived[kept][:len(ids)]; !slices.Equal(ids, want) || len(ids) < min(len(arrived[kept]), maxReportsPerVersion) {
					rt.Fatalf("version %d has %q of %q", kept, ids, arrived[kept])
				}
			}
			for old := range arrived {
				if _, ok := got[old]; ok {
					continue
				}
				newer := 0
				for v := range arrived {
					if v > old {
						newer++
					}
				}
				if newer < maxReportVersions {
					rt.Fatalf("version %d was dropped, and only %d newer ones had reports", old, newer)
				}
			}
		}
	})
}

// TestOrphanedReportsAreSwept: reports of a service whose removal was cut
// short go with the next report that is kept.
func TestOrphanedReportsAreSwept(t *testing.T) {
	s := reportStore(t, 0, 1)
	err := s.Update(func(tx store.Tx) error {
		gone := &api.Service{ID: "gone", Spec: *replicas("gone", 1)}
		if err := store.CreateService(tx, gone); err != nil {
			return err
		}
		return store.CreateTask(tx, &api.Task{ID: "orphan", ServiceID: "gone"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := keepReport(s, "orphan", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(tx store.Tx) error { return store.DeleteService(tx, "gone") }); err != nil {
		t.Fatal(err)
	}
	if err := keepReport(s, "task000", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if got := keptReports(t, s, "gone"); len(got) != 0 {
		t.Errorf("left: %+v", got)
	}
	if got := keptReports(t, s, "svc"); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}
