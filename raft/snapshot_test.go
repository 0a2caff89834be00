// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

type sink struct{ bytes.Buffer }

func (*sink) ID() string    { return "test" }
func (*sink) Cancel() error { return nil }
func (*sink) Close() error  { return nil }

// TestSnapshotRoundTrip: what is restored is what was there at the snapshot,
// not what came after, in chunks and in every kind of object.
func TestSnapshotRoundTrip(t *testing.T) {
	f := newFSM(testLogger())
	f.store = store.NewMemoryStore(nil)
	f.applied = 42
	const tasks = 3*chunkObjects + 7
	err := f.store.Update(func(tx store.Tx) error {
		for _, err := range []error{
			store.CreateCluster(tx, &api.Cluster{ID: "c", Spec: api.ClusterSpec{Annotations: api.Annotations{Name: "default"}}}),
			store.CreateNode(tx, &api.Node{ID: "n"}),
			store.CreateService(tx, service("s", "web")),
			store.CreateNetwork(tx, &api.Network{ID: "net", Spec: api.NetworkSpec{Annotations: api.Annotations{Name: "net"}}}),
			store.CreateSecret(tx, &api.Secret{ID: "sec", Spec: api.SecretSpec{Annotations: api.Annotations{Name: "sec"}}}),
			store.CreateConfig(tx, &api.Config{ID: "cfg", Spec: api.ConfigSpec{Annotations: api.Annotations{Name: "cfg"}}}),
		} {
			if err != nil {
				return err
			}
		}
		for i := range tasks {
			if err := store.CreateTask(tx, &api.Task{ID: fmt.Sprintf("t%05d", i), ServiceID: "s"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want *api.StoreSnapshot
	f.store.View(func(tx store.ReadTx) { want, err = f.store.Save(tx) })
	if err != nil {
		t.Fatal(err)
	}
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.store.Update(func(tx store.Tx) error { return store.DeleteService(tx, "s") }); err != nil {
		t.Fatal(err)
	}
	f.applied = 43
	var out sink
	if err := snap.Persist(&out); err != nil {
		t.Fatal(err)
	}

	g := newFSM(testLogger())
	g.store = store.NewMemoryStore(nil)
	if err := g.store.Update(func(tx store.Tx) error { return store.CreateService(tx, service("old", "old")) }); err != nil {
		t.Fatal(err)
	}
	whole := out.Bytes()
	if err := g.Restore(io.NopCloser(bytes.NewReader(whole))); err != nil {
		t.Fatal(err)
	}
	if g.version() != 42 {
		t.Errorf("version %d, want 42", g.version())
	}
	var got *api.StoreSnapshot
	g.store.View(func(tx store.ReadTx) { got, err = g.store.Save(tx) })
	if err != nil {
		t.Fatal(err)
	}
	a, _ := want.Marshal()
	b, _ := got.Marshal()
	if !bytes.Equal(a, b) {
		t.Errorf("restored something else: %d tasks, services %v", len(got.Tasks), got.Services)
	}
	if len(got.Tasks) != tasks || !reflect.DeepEqual(names(g.store), map[string]string{"s": "web"}) {
		t.Errorf("%d tasks, services %v", len(got.Tasks), names(g.store))
	}

	for _, n := range []int{0, 5, 16, 17, 30, len(whole) / 2, len(whole) - 1} {
		if err := g.Restore(io.NopCloser(bytes.NewReader(whole[:n]))); err == nil {
			t.Errorf("a snapshot cut short at %d of %d bytes was taken", n, len(whole))
		}
	}
	if len(names(g.store)) != 1 {
		t.Error("a bad snapshot changed the store")
	}
}

// What a daemon that was killed left of a snapshot is taken for none, and goes.
func TestUnfinishedSnapshot(t *testing.T) {
	dir := t.TempDir()
	m := solo(t, Config{Dir: dir})
	fill(t, m, 3)
	m.stop()
	half := filepath.Join(dir, "snapshots", "2-9-1700000000000.tmp")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "state.bin"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	m = solo(t, Config{Dir: dir})
	if got := names(m.Store()); len(got) != 3 {
		t.Errorf("services %v", got)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
