// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/orchestrator/constraintenforcer"
	"github.com/moby/swarmkit/v2/manager/orchestrator/taskreaper"
	"github.com/moby/swarmkit/v2/manager/scheduler"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/raft"
)

// sim is a cluster in a bubble.
type sim struct {
	t     *testing.T
	store *store.MemoryStore
	prop  *proposer
	rng   *rand.Rand

	mu     sync.Mutex
	script func(*api.Task) script
	begun  map[string]begun // what agents remember of tasks

	stopOrchestrator func()
	warnings         atomic.Int32 // lines of the log for operators to act on
	parts            sync.WaitGroup
	watch            *watcher
}

type begun struct {
	script script
	at     time.Time // of the present step's begin
	told   time.Time // when it was told to stop
}

// simulate runs a test in a bubble with a cluster of some nodes, named n1, n2
// and so on.
func simulate(t *testing.T, nodes int, run func(s *sim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &proposer{later: 300 * time.Millisecond}
		s := &sim{
			t: t, prop: p, script: good, begun: map[string]begun{},
			rng: rand.New(rand.NewPCG(1, 2)),
		}
		s.store = store.NewMemoryStore(p)
		p.store = s.store
		s.watch = newWatcher(s)
		p.commit = s.watch.check
		s.update(func(tx store.Tx) error {
			c := &api.Cluster{ID: "cluster", Spec: api.ClusterSpec{
				Annotations:   api.Annotations{Name: store.DefaultClusterName},
				Orchestration: api.OrchestrationConfig{TaskHistoryRetentionLimit: 5},
			}}
			if err := store.CreateCluster(tx, c); err != nil {
				return err
			}
			for i := range nodes {
				if err := store.CreateNode(tx, simNode(fmt.Sprint("n", i+1))); err != nil {
					return err
				}
			}
			return nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		s.parts.Go(func() { s.allocate(ctx) })
		s.parts.Go(func() { s.agents(ctx) })
		s.startOrchestrator()
		defer func() {
			s.stopOrchestrator()
			cancel()
			s.parts.Wait()
			time.Sleep(time.Second) // writes of unknown outcome
			s.store.Close()
		}()
		synctest.Wait()
		run(s)
	})
}

func simNode(id string) *api.Node {
	return &api.Node{
		ID: id, Spec: api.NodeSpec{Annotations: api.Annotations{Name: id}, Availability: api.NodeAvailabilityActive},
		Status: api.NodeStatus{State: api.NodeStatus_READY},
		Description: &api.NodeDescription{
			Hostname: id, Platform: &api.Platform{Architecture: "x86_64", OS: "linux"},
			Resources: &api.Resources{NanoCPUs: 64e9, MemoryBytes: 64 << 30},
			Engine:    &api.EngineDescription{},
		},
	}
}

// simLogger is silent unless ORCHESTRATOR_LOG is set, and fails the test for
// what should never be logged.
func (s *sim) simLogger() *slog.Logger {
	var to io.Writer = io.Discard
	level := slog.LevelWarn
	if os.Getenv("ORCHESTRATOR_LOG") != "" {
		to, level = os.Stderr, slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.MessageKey && (a.Value.String() == restless || a.Value.String() == unwritten) {
			s.t.Errorf("%s\n%s", a.Value, s.dump())
		}
		if a.Key == slog.LevelKey && a.Value.Any().(slog.Level) >= slog.LevelWarn {
			s.warnings.Add(1)
		}
		return a
	}}))
}

// startOrchestrator begins the term of a new leader, with all its parts.
func (s *sim) startOrchestrator() {
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	sched := scheduler.New(s.store)
	parts.Go(func() { sched.Run(ctx) })
	reaper := taskreaper.New(s.store)
	parts.Go(func() { reaper.Run(ctx) })
	enforcer := constraintenforcer.New(s.store)
	parts.Go(enforcer.Run)
	o := New(s.store, s.simLogger())
	parts.Go(func() { o.Run(ctx) })
	s.stopOrchestrator = sync.OnceFunc(func() {
		cancel()
		sched.Stop()
		reaper.Stop()
		enforcer.Stop()
		parts.Wait()
	})
}

// newLeader ends one term and begins another.
func (s *sim) newLeader() {
	s.stopOrchestrator()
	s.startOrchestrator()
}

// update writes until it took place: clients and agents repeat themselves.
func (s *sim) update(write func(tx store.Tx) error) {
	s.t.Helper()
	for {
		err := s.store.Update(write)
		if err == nil {
			return
		}
		if _, ok := err.(*raft.WriteError); !ok {
			s.t.Fatalf("write: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// tryUpdate writes once. Agents come again.
func (s *sim) tryUpdate(write func(tx store.Tx) error) bool { return s.store.Update(write) == nil }
