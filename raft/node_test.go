// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

func TestSoloLeadsAtOnce(t *testing.T) {
	begin := time.Now()
	m := solo(t, Config{Dir: memDir(t)})
	t.Logf("leading after %v", time.Since(begin))
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("a leader after %v", d)
	}
	if !m.Leads() {
		t.Error("does not lead")
	}
	if err := m.create("a", "web"); err != nil {
		t.Fatal(err)
	}
	if id, addr := m.Leader(); id != "server1" || addr != "10.0.0.5:2377" {
		t.Errorf("leader %s at %s", id, addr)
	}
}

// TestRestart is case store-3: restarts, each with a new address.
func TestRestart(t *testing.T) {
	dir := memDir(t)
	for i := range 4 {
		addr := fmt.Sprintf("10.0.0.%d:2377", 5+i)
		m := solo(t, Config{Dir: dir, Addr: addr})
		if got := len(names(m.Store())); got != i {
			t.Errorf("start %d: %d services", i, got)
		}
		if err := m.create(fmt.Sprint(i), fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
		if ms := m.Members(); len(ms) != 1 || ms[0] != (Member{ID: "server1", Addr: addr, Leader: true, Voter: true}) {
			t.Errorf("start %d: members %+v", i, ms)
		}
		m.stop()
	}
	if _, err := open(t, Config{Dir: dir, ID: "another", Bootstrap: true}); !errors.Is(err, ErrNotMember) || !strings.Contains(err.Error(), dir) {
		t.Errorf("another server on the same state: %v", err)
	}
	m := solo(t, Config{Dir: dir, ID: "another", ForceNewCluster: true})
	if got := names(m.Store()); len(got) != 4 {
		t.Errorf("forced: services %v", got)
	}
	if ms := m.Members(); len(ms) != 1 || ms[0].ID != "another" {
		t.Errorf("forced: members %+v", ms)
	}
}

// TestCrashDuringBootstrap leaves a term but no configuration.
func TestCrashDuringBootstrap(t *testing.T) {
	dir := memDir(t)
	db, err := openDB(dbPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if exists, err := HasState(dir, false); exists || err != nil {
		t.Errorf("state: %v, %v", exists, err)
	}
	m := solo(t, Config{Dir: dir})
	if err := m.create("a", "web"); err != nil {
		t.Fatal(err)
	}
	m.stop()
	if exists, err := HasState(dir, false); !exists || err != nil {
		t.Errorf("state: %v, %v", exists, err)
	}
}

// TestVersions: each update of an object moves its version, also over a
// snapshot and a restart, and an update of an old version is refused.
func TestVersions(t *testing.T) {
	dir := memDir(t)
	m := solo(t, Config{Dir: dir})
	if err := m.create("a", "web"); err != nil {
		t.Fatal(err)
	}
	var last uint64
	update := func() {
		t.Helper()
		err := m.Store().Update(func(tx store.Tx) error {
			s := store.GetService(tx, "a")
			if s.Meta.Version.Index < last {
				t.Errorf("version went from %d to %d", last, s.Meta.Version.Index)
			}
			return store.UpdateService(tx, s)
		})
		if err != nil {
			t.Fatal(err)
		}
		var v uint64
		m.Store().View(func(tx store.ReadTx) { v = store.GetService(tx, "a").Meta.Version.Index })
		if v <= last {
			t.Errorf("version %d after %d", v, last)
		}
		last = v
	}
	update()
	update()
	if err := m.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	update()
	m.stop()
	m = solo(t, Config{Dir: dir})
	update()
	stale := service("a", "web")
	stale.Meta.Version = api.Version{Index: last - 1}
	err := m.Store().Update(func(tx store.Tx) error { return store.UpdateService(tx, stale) })
	if !errors.Is(err, store.ErrSequenceConflict) {
		t.Errorf("an update of an old version: %v", err)
	}
}

// TestLogStaysBounded is case store-5 (and the previous generation of store-4) with fewer entries: the file stops
// growing, and commits are not slower once entries are deleted all the time.
// (BenchmarkLog does it with 100,000.)
func TestLogStaysBounded(t *testing.T) {
	dir := memDir(t)
	m := solo(t, Config{Dir: dir, SnapshotThreshold: 256, TrailingLogs: 64, SnapshotInterval: 20 * time.Millisecond})
	size := writeLoad(t, m, 3000)
	if size > 8<<20 {
		t.Errorf("raft.db has %d bytes after 3000 entries of 1 KiB", size)
	}
	list, err := m.snaps.List()
	if err != nil || len(list) != snapshotsKept {
		t.Errorf("%d snapshots (%v), want this generation and the previous one", len(list), err)
	}
}

func writeLoad(t testing.TB, m *member, n int) (size int64) {
	t.Helper()
	pad := strings.Repeat("x", 1024)
	var took []time.Duration
	err := m.create("a", "web")
	for i := 0; err == nil && i < n; i++ {
		begin := time.Now()
		err = m.Store().Update(func(tx store.Tx) error {
			s := store.GetService(tx, "a")
			s.Spec.Annotations.Labels = map[string]string{"pad": pad}
			return store.UpdateService(tx, s)
		})
		took = append(took, time.Since(begin))
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(m.cfg.Dir, "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries: raft.db %.1f MiB; p99 commit of the first tenth %v, of the last %v",
		n, float64(st.Size())/(1<<20), p99(took[:n/10]), p99(took[n-n/10:]))
	return st.Size()
}

func p99(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)*99/100]
}

// BenchmarkLog writes 100,000 entries with the default policy (cases/store.md, store-5).
func BenchmarkLog(b *testing.B) {
	for b.Loop() {
		m := solo(b, Config{Dir: memDir(b)})
		size := writeLoad(b, m, 100_000)
		b.ReportMetric(float64(size)/(1<<20), "MiB")
		m.stop()
	}
}
