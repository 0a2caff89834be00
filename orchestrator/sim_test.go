// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/orchestrator/constraintenforcer"
	"github.com/moby/swarmkit/v2/manager/orchestrator/taskreaper"
	"github.com/moby/swarmkit/v2/manager/scheduler"
	"github.com/moby/swarmkit/v2/manager/state"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/raft"
)

// The simulated cluster: a real store behind a proposer that fails on demand,
// SwarmKit's own scheduler, reaper and enforcer, and agents that do with tasks
// what scripts say. All of it in virtual time.

// script is what becomes of a task.
type script struct {
	prepare  time.Duration // until it is READY
	reject   string        // it is REJECTED then instead, with this error
	start    time.Duration // from STARTING until RUNNING; negative: never
	lives    time.Duration // from RUNNING (or STARTING if it never runs) until it ends; 0: for ever
	complete bool          // it ends with 0
	err      string        // Status.Err of its end
	code     int32
	stop     time.Duration // from the order to stop until its end
}

// good is a task that starts in a second and runs.
func good(*api.Task) script {
	return script{prepare: 100 * time.Millisecond, start: time.Second, stop: 300 * time.Millisecond}
}

// failsAfter is a task that starts and fails.
func failsAfter(d time.Duration) func(*api.Task) script {
	return func(t *api.Task) script {
		s := good(t)
		s.lives, s.err, s.code = d, "task: non-zero exit (3)", 3
		return s
	}
}

// byImage chooses the script by the task's image.
func byImage(scripts map[string]func(*api.Task) script) func(*api.Task) script {
	return func(t *api.Task) script {
		if f := scripts[t.Spec.GetContainer().Image]; f != nil {
			return f(t)
		}
		return good(t)
	}
}

// proposer is a log of one: it commits at once, or fails as raft does.
type proposer struct {
	mu      sync.Mutex
	index   uint64
	store   *store.MemoryStore
	pending int // writes whose outcome is not known yet
	// fault decides over a proposal: 0 commits, 1 refuses, 2 commits later.
	fault  func() int
	later  time.Duration
	commit func() // called after each commit
}

func (p *proposer) ProposeValue(_ context.Context, actions []api.StoreAction, commit func()) error {
	p.mu.Lock()
	fault := 0
	if p.fault != nil {
		fault = p.fault()
	}
	switch {
	case p.pending > 0:
		p.mu.Unlock()
		return &raft.WriteError{Reason: raft.ErrUndecided}
	case fault == 1:
		p.mu.Unlock()
		return &raft.WriteError{Reason: raft.ErrNotLeader}
	case fault == 2:
		p.pending++
		p.mu.Unlock()
		go func() {
			time.Sleep(p.later)
			if err := p.store.ApplyStoreActions(actions); err != nil {
				panic(err) // nothing else was written meanwhile
			}
			p.mu.Lock()
			p.index++
			p.pending--
			p.mu.Unlock()
			if p.commit != nil {
				p.commit()
			}
		}()
		return &raft.WriteError{Reason: raft.ErrUnknown}
	}
	p.index++
	p.mu.Unlock()
	commit()
	if p.commit != nil {
		p.commit()
	}
	return nil
}

func (p *proposer) GetVersion() *api.Version {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &api.Version{Index: p.index}
}

func (p *proposer) ChangesBetween(api.Version, api.Version) ([]state.Change, error) {
	panic("not used")
}

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

// allocate is what takes tasks from NEW to PENDING.
func (s *sim) allocate(ctx context.Context) {
	watch, cancel := state.Watch(s.store.WatchQueue(), api.EventCreateTask{})
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch:
		case <-tick.C:
		}
		var fresh []*api.Task
		s.store.View(func(tx store.ReadTx) { fresh, _ = store.FindTasks(tx, store.ByTaskState(api.TaskStateNew)) })
		for _, t := range fresh {
			s.tryUpdate(func(tx store.Tx) error {
				t := store.GetTask(tx, t.ID)
				if t == nil || t.Status.State != api.TaskStateNew {
					return nil
				}
				if svc := store.GetService(tx, t.ServiceID); svc != nil && svc.Spec.Endpoint != nil {
					t.Endpoint = &api.Endpoint{Spec: svc.Spec.Endpoint.Copy(), Ports: svc.Spec.Endpoint.Copy().Ports}
				}
				t.Status = api.TaskStatus{State: api.TaskStatePending, Timestamp: timestamp(time.Now()), Message: "pending task scheduling"}
				return store.UpdateTask(tx, t)
			})
		}
	}
}

// agents are the agents of all nodes and the dispatcher between.
func (s *sim) agents(ctx context.Context) {
	watch, cancel := state.Watch(s.store.WatchQueue(), api.EventUpdateTask{}, api.EventUpdateNode{})
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch:
			for more := true; more; {
				select {
				case <-watch:
				default:
					more = false
				}
			}
		case <-timer.C:
		}
		timer.Reset(s.stepAll())
	}
}

// stepAll moves all tasks on that are due, and tells when the next one is.
func (s *sim) stepAll() time.Duration {
	var tasks []*api.Task
	up := map[string]bool{}
	s.store.View(func(tx store.ReadTx) {
		tasks, _ = store.FindTasks(tx, store.All)
		nodes, _ := store.FindNodes(tx, store.All)
		for _, n := range nodes {
			up[n.ID] = n.Status.State == api.NodeStatus_READY
		}
	})
	slices.SortFunc(tasks, func(a, b *api.Task) int { return newestFirst(b, a) })
	next := time.Hour
	for _, t := range tasks {
		if !up[t.NodeID] || t.Status.State < api.TaskStateAssigned || ended(t) {
			continue
		}
		if d := s.step(t); d < next {
			next = d
		}
	}
	return max(next, time.Millisecond)
}

// step moves one task on if it is due; else it tells how long that takes.
func (s *sim) step(t *api.Task) time.Duration {
	now := time.Now()
	s.mu.Lock()
	b, ok := s.begun[t.ID]
	if !ok {
		b = begun{script: s.script(t), at: now}
	}
	if t.DesiredState > api.TaskStateRunning && b.told.IsZero() {
		b.told = now
	}
	s.begun[t.ID] = b
	s.mu.Unlock()

	status := t.Status.Copy()
	status.Err = ""
	var due time.Time
	fail := func(state api.TaskState, text string) {
		status.State, status.Err = state, text
		status.RuntimeStatus = &api.TaskStatus_Container{Container: &api.ContainerStatus{ExitCode: b.script.code}}
	}
	switch {
	case !b.told.IsZero():
		due = b.told
		if t.Status.State >= api.TaskStateStarting {
			due = due.Add(b.script.stop)
		}
		status.State, status.Message = api.TaskStateShutdown, "shutdown"
	case t.Status.State < api.TaskStatePreparing:
		due = now
		status.State, status.Message = api.TaskStatePreparing, "preparing"
	case t.Status.State == api.TaskStatePreparing:
		due = b.at.Add(b.script.prepare)
		status.State, status.Message = api.TaskStateReady, "prepared"
		if b.script.reject != "" {
			fail(api.TaskStateRejected, b.script.reject)
		}
	case t.Status.State == api.TaskStateReady:
		if t.DesiredState < api.TaskStateRunning {
			return time.Hour
		}
		due = now
		status.State, status.Message = api.TaskStateStarting, "starting"
	case t.Status.State == api.TaskStateStarting && b.script.start >= 0:
		due = b.at.Add(b.script.start)
		status.State, status.Message = api.TaskStateRunning, "started"
	case b.script.lives == 0:
		return time.Hour
	default:
		due = b.at.Add(b.script.lives)
		if b.script.complete {
			status.State, status.Message = api.TaskStateCompleted, "finished"
		} else {
			fail(api.TaskStateFailed, b.script.err)
		}
	}
	if wait := due.Sub(now); wait > 0 {
		return wait
	}
	status.Timestamp, status.AppliedAt = timestamp(now), timestamp(now)
	written := s.tryUpdate(func(tx store.Tx) error {
		t := store.GetTask(tx, t.ID)
		if t == nil || t.Status.State >= status.State {
			return nil
		}
		t.Status = *status
		return store.UpdateTask(tx, t)
	})
	if !written {
		return 50 * time.Millisecond
	}
	s.mu.Lock()
	b.at = now
	s.begun[t.ID] = b
	s.mu.Unlock()
	return time.Millisecond
}

func (s *sim) setScript(f func(*api.Task) script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = f
}

// simSpec is a service of some replicas; change alters it.
func simSpec(replicas uint64, change func(*api.ServiceSpec)) api.ServiceSpec {
	spec := api.ServiceSpec{
		Annotations: api.Annotations{Name: "web"},
		Task: api.TaskSpec{
			Runtime: &api.TaskSpec_Container{Container: &api.ContainerSpec{Image: "v1"}},
			Restart: &api.RestartPolicy{Condition: api.RestartOnAny, Delay: gogotypes.DurationProto(time.Second)},
		},
		Mode: &api.ServiceSpec_Replicated{Replicated: &api.ReplicatedService{Replicas: replicas}},
		Update: &api.UpdateConfig{
			Parallelism: 1, Monitor: gogotypes.DurationProto(5 * time.Second), FailureAction: api.UpdateConfig_PAUSE,
		},
		Rollback: &api.UpdateConfig{Parallelism: 1, Monitor: gogotypes.DurationProto(2 * time.Second)},
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

func (s *sim) create(spec api.ServiceSpec) {
	s.update(func(tx store.Tx) error {
		return store.CreateService(tx, &api.Service{ID: "web", Spec: *spec.Copy(), SpecVersion: &api.Version{}})
	})
}

// change updates the service as the control API does.
func (s *sim) change(change func(*api.ServiceSpec)) {
	s.update(func(tx store.Tx) error {
		svc := store.GetService(tx, "web")
		svc.PreviousSpec, svc.PreviousSpecVersion = svc.Spec.Copy(), svc.SpecVersion
		change(&svc.Spec)
		svc.SpecVersion = svc.Meta.Version.Copy()
		svc.UpdateStatus = nil
		return store.UpdateService(tx, svc)
	})
}

// image updates the service's image.
func (s *sim) image(name string) {
	s.change(func(spec *api.ServiceSpec) { spec.Task.GetContainer().Image = name })
}

// rollback asks for the previous spec as the control API does.
func (s *sim) rollback() (possible bool) {
	s.update(func(tx store.Tx) error {
		svc := store.GetService(tx, "web")
		if possible = svc.PreviousSpec != nil; !possible {
			return nil
		}
		spec, version := svc.Spec.Copy(), svc.SpecVersion
		svc.Spec, svc.SpecVersion = *svc.PreviousSpec.Copy(), svc.PreviousSpecVersion
		svc.PreviousSpec, svc.PreviousSpecVersion = spec, version
		svc.UpdateStatus = &api.UpdateStatus{
			State: api.UpdateStatus_ROLLBACK_STARTED, Message: "manually requested rollback", StartedAt: timestamp(time.Now()),
		}
		return store.UpdateService(tx, svc)
	})
	return possible
}

// node changes a node as the dispatcher and operators do.
func (s *sim) node(id string, change func(n *api.Node)) {
	s.update(func(tx store.Tx) error {
		n := store.GetNode(tx, id)
		change(n)
		return store.UpdateNode(tx, n)
	})
}

func (s *sim) down(id string) {
	s.node(id, func(n *api.Node) { n.Status.State = api.NodeStatus_DOWN })
}
func (s *sim) up(id string) {
	s.node(id, func(n *api.Node) { n.Status.State = api.NodeStatus_READY })
}
func (s *sim) availability(id string, a api.NodeSpec_Availability) {
	s.node(id, func(n *api.Node) { n.Spec.Availability = a })
}

func (s *sim) service() (svc *api.Service) {
	s.store.View(func(tx store.ReadTx) { svc = store.GetService(tx, "web") })
	return svc
}

// tasks are the service's, oldest first.
func (s *sim) tasks() (out []*api.Task) {
	s.store.View(func(tx store.ReadTx) { out, _ = store.FindTasks(tx, store.ByServiceID("web")) })
	slices.SortFunc(out, func(a, b *api.Task) int { return newestFirst(b, a) })
	return out
}

// serving are the tasks that run and are to run.
func (s *sim) serving() (out []*api.Task) {
	for _, t := range s.tasks() {
		if t.Status.State == api.TaskStateRunning && t.DesiredState == api.TaskStateRunning {
			out = append(out, t)
		}
	}
	return out
}

func imageOf(t *api.Task) string { return t.Spec.GetContainer().Image }

// images counts the serving tasks of an image.
func (s *sim) images(name string) (n int) {
	for _, t := range s.serving() {
		if imageOf(t) == name {
			n++
		}
	}
	return n
}

func (s *sim) status() string {
	u := s.service().UpdateStatus
	if u == nil {
		return "none"
	}
	return u.State.String()
}

// ids are the sorted IDs of tasks.
func ids(tasks []*api.Task) (out []string) {
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	slices.Sort(out)
	return out
}

// await lets virtual time pass until a condition holds.
func (s *sim) await(within time.Duration, what string, holds func() bool) time.Duration {
	s.t.Helper()
	begin := time.Now()
	for {
		synctest.Wait()
		if holds() {
			return time.Since(begin)
		}
		if time.Since(begin) > within {
			s.t.Fatalf("%s: not within %v\n%s", what, within, s.dump())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *sim) awaitServing(image string, n int) time.Duration {
	s.t.Helper()
	return s.await(5*time.Minute, fmt.Sprintf("%d tasks of %s serve", n, image), func() bool { return s.images(image) == n })
}

func (s *sim) awaitStatus(want api.UpdateStatus_UpdateState) time.Duration {
	s.t.Helper()
	return s.await(3*time.Hour, "status "+want.String(), func() bool { return s.status() == want.String() })
}

func (s *sim) dump() string {
	out := fmt.Sprintf("status %s", s.status())
	if u := s.service().UpdateStatus; u != nil {
		out += ": " + u.Message
	}
	for _, t := range s.tasks() {
		out += fmt.Sprintf("\n  %s slot %d on %q %s v%v %s/%s %s %q %v", t.ID[:5], t.Slot, t.NodeID, imageOf(t), versionOf(t),
			t.Status.State, t.DesiredState, t.Status.Err, t.Status.Message, t.Annotations.Labels)
	}
	return out
}

func versionOf(t *api.Task) uint64 {
	if t.SpecVersion == nil {
		return 0
	}
	return t.SpecVersion.Index
}

// fail ends a task by itself, now.
func (s *sim) fail(x *api.Task) { s.t.Helper(); s.failWith(x, "task: non-zero exit (137)") }

func (s *sim) failWith(x *api.Task, text string) {
	s.t.Helper()
	s.update(func(tx store.Tx) error {
		t := store.GetTask(tx, x.ID)
		t.Status = api.TaskStatus{
			State: api.TaskStateFailed, Err: text, Message: "started",
			Timestamp: timestamp(time.Now()), AppliedAt: timestamp(time.Now()),
		}
		return store.UpdateTask(tx, t)
	})
}

// say has a task's node say something of it while it runs, as executor does of
// one that is out of traffic.
func (s *sim) say(x *api.Task, text string) {
	s.t.Helper()
	s.update(func(tx store.Tx) error {
		t := store.GetTask(tx, x.ID)
		t.Status.Err = text
		t.Status.Timestamp, t.Status.AppliedAt = timestamp(time.Now()), timestamp(time.Now())
		return store.UpdateTask(tx, t)
	})
}

func (s *sim) view() (v View) {
	s.t.Helper()
	var err error
	s.store.View(func(tx store.ReadTx) { v, err = viewOf(tx, "web") })
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}
