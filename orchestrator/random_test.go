// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/log"
	"github.com/moby/swarmkit/v2/api"
)

var (
	schedules = flag.Int("schedules", 200, "how many random schedules to simulate")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first of them")
)

// TestRandomSchedules lets hundreds of clusters go through updates, rollbacks,
// scaling, failures, lost nodes, lost writes and changes of leader, and checks
// after each single commit what must always hold (watcher), and at the end
// that the service is at its spec with nothing left to plan.
func TestRandomSchedules(t *testing.T) {
	log.L.Logger.SetOutput(io.Discard)
	n := *schedules
	if testing.Short() {
		n = min(n, 30)
	}
	for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
		ok := t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			simulate(t, 3, func(s *sim) { s.randomSchedule(rand.New(rand.NewPCG(seed, 11))) })
		})
		if !ok {
			t.Logf("again with: go test ./orchestrator -run TestRandomSchedules -schedules 1 -seed %d", seed)
			return
		}
	}
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func randomConfig(rng *rand.Rand, order api.UpdateConfig_UpdateOrder) *api.UpdateConfig {
	return &api.UpdateConfig{
		Parallelism:     pick(rng, uint64(0), 1, 1, 2),
		Delay:           pick(rng, 0, 0, 3*time.Second),
		Monitor:         pick(rng, nil, seconds(0), seconds(2), seconds(8)),
		FailureAction:   pick(rng, api.UpdateConfig_PAUSE, api.UpdateConfig_ROLLBACK, api.UpdateConfig_ROLLBACK, api.UpdateConfig_CONTINUE),
		MaxFailureRatio: pick(rng, float32(0), 0, 0.3),
		Order:           order,
	}
}

func randomSpec(rng *rand.Rand) api.ServiceSpec {
	return simSpec(uint64(1+rng.IntN(6)), func(spec *api.ServiceSpec) {
		order := pick(rng, api.UpdateConfig_STOP_FIRST, api.UpdateConfig_START_FIRST)
		spec.Update, spec.Rollback = randomConfig(rng, order), randomConfig(rng, order)
		restart(pick(rng, uint64(0), 0, 1, 3), rng.IntN(4), pick(rng, 0, 0, 30))(spec)
		spec.Task.Restart.Condition = pick(rng, api.RestartOnAny, api.RestartOnAny, api.RestartOnFailure)
		if rng.IntN(4) == 0 {
			global(spec)
		}
	})
}

// randomScript is what becomes of a task of an image of some quality: 0 is
// good, 1 fails now and then, 2 fails always.
func randomScript(rng *rand.Rand, quality int) script {
	s := script{
		prepare: time.Duration(rng.IntN(3000)) * time.Millisecond, start: time.Duration(rng.IntN(4000)) * time.Millisecond,
		stop: time.Duration(rng.IntN(5000)) * time.Millisecond, err: "task: non-zero exit (1)", code: 1,
	}
	if quality == 0 || quality == 1 && rng.IntN(3) > 0 {
		return s
	}
	switch rng.IntN(5) {
	case 0:
		s.reject = "No such image"
	case 1:
		s.start, s.lives = -1, time.Duration(1+rng.IntN(10))*time.Second
	case 2:
		s.start = -1 // for ever
	case 3:
		s.lives, s.complete = time.Duration(rng.IntN(20))*time.Second, true
	default:
		s.lives = time.Duration(1+rng.IntN(20)) * time.Second
	}
	return s
}

func (s *sim) randomSchedule(rng *rand.Rand) {
	quality := map[string]int{}
	var agents, faults = rand.New(rand.NewPCG(rng.Uint64(), 1)), rand.New(rand.NewPCG(rng.Uint64(), 2))
	s.setScript(func(t *api.Task) script { return randomScript(agents, quality[imageOf(t)]) })
	s.create(randomSpec(rng))
	s.prop.mu.Lock()
	s.prop.fault = func() int {
		switch n := faults.IntN(100); {
		case n < 2:
			return 1
		case n < 4:
			return 2
		}
		return 0
	}
	s.prop.mu.Unlock()
	nodes := []string{"n1", "n2", "n3"}
	images := 1
	for range 5 + rng.IntN(15) {
		time.Sleep(time.Duration(rng.IntN(15000)) * time.Millisecond)
		switch rng.IntN(12) {
		case 0, 1, 2:
			images++
			name := fmt.Sprint("v", images)
			s.mu.Lock()
			quality[name] = rng.IntN(3)
			s.mu.Unlock()
			s.image(name)
		case 3:
			s.change(func(spec *api.ServiceSpec) { spec.Task.ForceUpdate++ })
		case 4:
			s.rollback()
		case 5:
			s.change(func(spec *api.ServiceSpec) {
				if r := spec.GetReplicated(); r != nil {
					r.Replicas = uint64(rng.IntN(7))
				}
			})
		case 6:
			if serving := s.serving(); len(serving) > 0 {
				s.fail(pick(rng, serving...))
			}
		case 7:
			s.down(pick(rng, nodes...))
		case 8:
			s.up(pick(rng, nodes...))
		case 9:
			s.availability(pick(rng, nodes...), pick(rng, api.NodeAvailabilityActive, api.NodeAvailabilityDrain, api.NodeAvailabilityPause))
		case 10:
			s.newLeader()
		case 11:
			s.stopOrchestrator()
			time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
			s.startOrchestrator()
		}
	}
	s.prop.mu.Lock()
	s.prop.fault = nil
	s.prop.mu.Unlock()
	for _, n := range nodes {
		s.up(n)
		s.availability(n, api.NodeAvailabilityActive)
	}
	// It comes to rest by itself: paused, or at its spec with what can run.
	s.await(2*time.Hour, "rest", func() bool { return s.status() != "UPDATING" && s.status() != "ROLLBACK_STARTED" })
	s.image("final")
	wanted := 3
	s.await(30*time.Minute, "the last update is complete", func() bool {
		if r := s.service().Spec.GetReplicated(); r != nil {
			wanted = int(r.Replicas)
		}
		return s.images("final") == wanted && len(s.serving()) == wanted && (wanted == 0 || s.status() == "COMPLETED")
	})
	time.Sleep(time.Minute)
	synctest.Wait()
	if v := s.view(); len(s.serving()) != wanted {
		s.t.Errorf("%d serve, want %d\n%s", len(s.serving()), wanted, s.dump())
	} else if changes, _ := Plan(v, time.Now()); len(changes) > 0 {
		s.t.Errorf("left to plan: %+v\n%s", changes, s.dump())
	}
	s.odds()
	if s.t.Failed() {
		s.t.Log(s.dump())
	}
}
