// SPDX-License-Identifier: BSD-2-Clause

package raft

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/internal/slowday"
)

// testLogger is silent unless RAFT_LOG is set.
func testLogger() *slog.Logger {
	if os.Getenv("RAFT_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// member is a node under test whose Run is running.
type member struct {
	*Node
	stop func()        // ends Run and closes the node; idempotent
	led  chan struct{} // receives at each start of leading
}

func open(t testing.TB, cfg Config) (*member, error) {
	t.Helper()
	if cfg.ID == "" {
		cfg.ID = "server1"
	}
	if cfg.Addr == "" {
		cfg.Addr = "10.0.0.5:2377"
	}
	cfg.Logger = testLogger()
	n, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Node: n, led: make(chan struct{}, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := n.Run(ctx, func(ctx context.Context) error {
			m.led <- struct{}{}
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	m.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(m.stop)
	return m, nil
}

// solo opens a cluster of one and waits until it leads.
func solo(t testing.TB, cfg Config) *member {
	t.Helper()
	cfg.Bootstrap = true
	m, err := open(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.awaitLeading(t)
	return m
}

func (m *member) awaitLeading(t testing.TB) {
	t.Helper()
	select {
	case <-m.led:
	case <-time.After(slowday.Of(10 * time.Second)):
		t.Fatal("no leader in time")
	}
}

func service(id, name string) *api.Service {
	return &api.Service{ID: id, Spec: api.ServiceSpec{Annotations: api.Annotations{Name: name}}}
}

func (m *member) create(id, name string) error {
	return m.Store().Update(func(tx store.Tx) error { return store.CreateService(tx, service(id, name)) })
}

// names are the services in a store, by ID.
func names(s *store.MemoryStore) map[string]string {
	out := map[string]string{}
	s.View(func(tx store.ReadTx) {
		all, _ := store.FindServices(tx, store.All)
		for _, x := range all {
			out[x.ID] = x.Spec.Annotations.Name
		}
	})
	return out
}

func eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(2 * time.Millisecond) {
		if slowday.Over(begun, within) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

func dbPath(dir string) string { return filepath.Join(dir, "raft.db") }

// fill writes n services and returns how many.
func fill(t testing.TB, m *member, n int) {
	t.Helper()
	for i := range n {
		if err := m.create(fmt.Sprintf("id%05d", i), fmt.Sprintf("name%05d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// memDir is a directory in memory where there is one: the tests that count
// entries are not about the disk.
func memDir(t testing.TB) string {
	if st, err := os.Stat("/dev/shm"); err != nil || !st.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "raft-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
