// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"slices"
	"strings"
	"testing"
	"time"

	gogotypes "github.com/gogo/protobuf/types"
	"github.com/moby/swarmkit/v2/api"
)

// The manager's side of cases/update.md, by name.

func seconds(n int) *gogotypes.Duration {
	return gogotypes.DurationProto(time.Duration(n) * time.Second)
}

// unhealthy is a task whose probe never passes: it is condemned some time
// after its start.
func unhealthy(after time.Duration) func(*api.Task) script {
	return func(t *api.Task) script {
		s := good(t)
		s.start, s.lives, s.code = -1, after, 1
		s.err = "unhealthy: 1 probe failed, last exit code 1: no such page"
		return s
	}
}

// TestUpdate1: a start-first update with a failing check leaves the good tasks
// alone, and so does its rollback (cases/update.md, update-1).
func TestUpdate1(t *testing.T) {
	for _, c := range []struct {
		name string
		v2   func(*api.Task) script
		says string
	}{
		{"check fails", unhealthy(5 * time.Second), "slot 1: unhealthy: 1 probe failed, last exit code 1: no such page (exit code 1)"},
		{"exits at once", failsAfter(time.Millisecond), "slot 1: task: non-zero exit (3)"},
	} {
		for _, parallelism := range []uint64{1, 0} {
			t.Run(c.name, func(t *testing.T) {
				simulate(t, 2, func(s *sim) {
					s.setScript(byImage(map[string]func(*api.Task) script{"v2": c.v2}))
					s.create(simSpec(3, func(spec *api.ServiceSpec) {
						spec.Update.Order, spec.Update.Parallelism = api.UpdateConfig_START_FIRST, parallelism
						spec.Update.FailureAction = api.UpdateConfig_ROLLBACK
						spec.Rollback.Order = api.UpdateConfig_START_FIRST
					}))
					s.awaitServing("v1", 3)
					before := ids(s.serving())
					s.watch.reset()
					s.image("v2")
					s.awaitStatus(api.UpdateStatus_ROLLBACK_COMPLETED)
					if made := s.watch.total(); made != 3+max(1, 3*(1-int(parallelism))) {
						t.Errorf("%d tasks made", made) // by the rollback none: watcher
					}
					s.await(time.Minute, "the failed tasks are gone", func() bool { return len(s.serving()) == 3 })
					time.Sleep(time.Minute)
					if after := ids(s.serving()); !slices.Equal(before, after) {
						t.Errorf("served by %v before, by %v after", before, after)
					}
					if s.watch.fewest() < 3 {
						t.Errorf("%d served at some time", s.watch.fewest())
					}
					if m := s.service().UpdateStatus.Message; !strings.HasPrefix(m, "update rolled back due to failure or early termination of task ") ||
						parallelism == 1 && !strings.HasSuffix(m, ": "+c.says) {
						t.Errorf("message %q", m)
					}
					s.odds()
				})
			})
		}
	}
}

// TestUpdate1StopFirst: an image that cannot be had costs no running task
// either where the old one is to stop first.
func TestUpdate1StopFirst(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(byImage(map[string]func(*api.Task) script{"v2": func(t *api.Task) script {
			return script{prepare: time.Second, reject: "No such image: v2"}
		}}))
		s.create(simSpec(3, func(spec *api.ServiceSpec) { spec.Update.FailureAction = api.UpdateConfig_ROLLBACK }))
		s.awaitServing("v1", 3)
		before := ids(s.serving())
		s.watch.reset()
		s.image("v2")
		s.awaitStatus(api.UpdateStatus_ROLLBACK_COMPLETED)
		if after := ids(s.serving()); !slices.Equal(before, after) || s.watch.fewest() < 3 {
			t.Errorf("%v before, %v after, at least %d served", before, after, s.watch.fewest())
		}
		if message := s.service().UpdateStatus.Message; !strings.Contains(message, "No such image: v2") {
			t.Errorf("message %q", message)
		}
		s.odds()
	})
}

// TestUpdate2: a delay longer than the monitor hides no failure (update-2).
func TestUpdate2(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(byImage(map[string]func(*api.Task) script{"v2": failsAfter(7 * time.Second)}))
		s.create(simSpec(3, func(spec *api.ServiceSpec) {
			spec.Update.Delay = 10 * time.Second
			spec.Update.FailureAction = api.UpdateConfig_ROLLBACK
		}))
		s.awaitServing("v1", 3)
		before := ids(s.serving())
		s.image("v2")
		s.awaitStatus(api.UpdateStatus_ROLLBACK_COMPLETED)
		s.awaitServing("v1", 3)
		same := 0
		for _, id := range ids(s.serving()) {
			if slices.Contains(before, id) {
				same++
			}
		}
		if same != 2 {
			t.Errorf("%d old tasks are left", same)
		}
		s.odds()
	})
}

// TestUpdate3: with a monitor that covers what the check needs to fail, a
// failure past the first pass rolls back (update-3).
func TestUpdate3(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(byImage(map[string]func(*api.Task) script{"v2": failsAfter(51 * time.Second)}))
		s.create(simSpec(1, func(spec *api.ServiceSpec) {
			spec.Update.Monitor = seconds(60)
			spec.Update.FailureAction = api.UpdateConfig_ROLLBACK
		}))
		s.awaitServing("v1", 1)
		s.image("v2")
		if took := s.awaitStatus(api.UpdateStatus_ROLLBACK_STARTED); took < 51*time.Second || took > 55*time.Second {
			t.Errorf("rolled back after %v", took)
		}
		s.awaitStatus(api.UpdateStatus_ROLLBACK_COMPLETED)
		s.awaitServing("v1", 1)
		s.odds()
	})
}

// TestUpdate4: restarts of failed new tasks push out no old ones, and a pause
// holds across leaders (update-4).
func TestUpdate4(t *testing.T) {
	for _, order := range []api.UpdateConfig_UpdateOrder{api.UpdateConfig_STOP_FIRST, api.UpdateConfig_START_FIRST} {
		t.Run(order.String(), func(t *testing.T) {
			simulate(t, 2, func(s *sim) {
				s.setScript(byImage(map[string]func(*api.Task) script{"v2": failsAfter(15 * time.Second)}))
				s.create(simSpec(4, func(spec *api.ServiceSpec) {
					spec.Update.Monitor = seconds(20)
					spec.Update.Order = order
				}))
				s.awaitServing("v1", 4)
				s.image("v2")
				want := 3
				if order == api.UpdateConfig_START_FIRST {
					want = 4
				}
				for range 10 {
					s.await(30*time.Second, "old tasks run", func() bool { return s.images("v1") >= want })
					time.Sleep(30 * time.Second)
					s.newLeader()
					if got := s.images("v1"); got < want {
						t.Fatalf("%d old tasks run\n%s", got, s.dump())
					}
				}
				if s.status() != "PAUSED" {
					t.Error(s.dump())
				}
				// Each restart is still part of the update.
				for _, x := range s.tasks() {
					if imageOf(x) == "v2" && label(x, LabelRollout) == "" {
						t.Errorf("task %s lost its mark", x.ID)
					}
				}
				s.odds()
			})
		})
	}
}

// TestUpdate5: a task that never starts has a deadline, its reason is told,
// and a new update supersedes at once (update-5).
func TestUpdate5(t *testing.T) {
	check := func(interval, timeout, startPeriod int) *api.HealthConfig {
		return &api.HealthConfig{
			Test: []string{"CMD", "probe"}, Interval: seconds(interval), Timeout: seconds(timeout), Retries: 2, StartPeriod: seconds(startPeriod),
		}
	}
	for _, c := range []struct {
		name   string
		script func(*api.Task) script
		change func(*api.ServiceSpec)
		within [2]time.Duration
		says   string
	}{
		{
			"image cannot be pulled, and nobody says so",
			func(*api.Task) script { return script{prepare: time.Hour * 24} },
			func(*api.ServiceSpec) {},
			[2]time.Duration{PrepareLimit, PrepareLimit + 5*time.Second},
			"still preparing after 10m",
		},
		{
			"check hangs",
			func(*api.Task) script { return script{start: -1, lives: 0} },
			func(spec *api.ServiceSpec) { spec.Task.GetContainer().Healthcheck = check(5, 3, 3600) },
			[2]time.Duration{time.Hour + 16*time.Second, time.Hour + StartLimit + 25*time.Second},
			"still starting after 1h1m19s",
		},
		{
			"no room",
			good,
			func(spec *api.ServiceSpec) {
				spec.Task.Resources = &api.ResourceRequirements{Reservations: &api.Resources{MemoryBytes: 1 << 50}}
			},
			[2]time.Duration{PendingLimit, PendingLimit + 5*time.Second},
			"no suitable node (insufficient resources on 1 node)",
		},
		{
			"no node",
			good,
			func(spec *api.ServiceSpec) {
				spec.Task.Placement = &api.Placement{Constraints: []string{"node.labels.disk==fast"}}
			},
			[2]time.Duration{PendingLimit, PendingLimit + 5*time.Second},
			"no suitable node (scheduling constraints not satisfied on 1 node)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, 1, func(s *sim) {
				s.setScript(byImage(map[string]func(*api.Task) script{"v2": c.script}))
				s.create(simSpec(2, nil))
				s.awaitServing("v1", 2)
				s.change(func(spec *api.ServiceSpec) {
					spec.Task.GetContainer().Image = "v2"
					c.change(spec)
				})
				took := s.awaitStatus(api.UpdateStatus_PAUSED)
				if took < c.within[0] || took > c.within[1] {
					t.Errorf("paused after %v, want %v", took, c.within)
				}
				if message := s.service().UpdateStatus.Message; !strings.Contains(message, c.says) {
					t.Errorf("message %q", message)
				}
				s.change(func(spec *api.ServiceSpec) {
					*spec = simSpec(2, nil)
					spec.Task.GetContainer().Image = "v3"
				})
				s.awaitServing("v3", 2)
				s.awaitStatus(api.UpdateStatus_COMPLETED)
				s.odds()
			})
		})
	}
}

// TestSupersedeAtOnce: a new update does not wait for the one before.
func TestSupersedeAtOnce(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(byImage(map[string]func(*api.Task) script{"v2": func(*api.Task) script { return script{prepare: time.Hour} }}))
		s.create(simSpec(2, nil))
		s.awaitServing("v1", 2)
		s.image("v2")
		time.Sleep(3 * time.Second)
		s.image("v3")
		if took := s.awaitServing("v3", 2); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
		s.awaitStatus(api.UpdateStatus_COMPLETED)
		s.odds()
	})
}

// TestUpdate7: start-first with a host-mode port falls back to stop-first
// where the port is taken (update-7).
func TestUpdate7(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(1, func(spec *api.ServiceSpec) {
			spec.Update.Order = api.UpdateConfig_START_FIRST
			spec.Endpoint = &api.EndpointSpec{Ports: []*api.PortConfig{
				{Protocol: api.ProtocolTCP, TargetPort: 80, PublishedPort: 8080, PublishMode: api.PublishModeHost},
			}}
		}))
		s.awaitServing("v1", 1)
		s.image("v2")
		if took := s.awaitServing("v2", 1); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		s.awaitStatus(api.UpdateStatus_COMPLETED)
	})
}

// TestManualRollback: the previous spec comes back, under the rollback's own
// settings.
func TestManualRollback(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		s.create(simSpec(3, func(spec *api.ServiceSpec) { spec.Rollback.Parallelism = 0 }))
		s.awaitServing("v1", 3)
		s.image("v2")
		s.awaitStatus(api.UpdateStatus_COMPLETED)
		if !s.rollback() {
			t.Fatal("no previous spec")
		}
		took := s.awaitStatus(api.UpdateStatus_ROLLBACK_COMPLETED)
		if took > 8*time.Second || s.images("v1") != 3 {
			t.Errorf("after %v: %s", took, s.dump())
		}
		if m := s.service().UpdateStatus.Message; m != "rollback completed" {
			t.Errorf("message %q", m)
		}
		s.odds()
	})
}

// TestManualRollbackMidway touches only what was changed.
func TestManualRollbackMidway(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		s.create(simSpec(4, nil))
		s.awaitServing("v1", 4)
		before := ids(s.serving())
		s.image("v2")
		s.awaitServing("v2", 2)
		s.rollback()
		s.awaitStatus(api.UpdateStatus_ROLLBACK_COMPLETED)
		s.awaitServing("v1", 4)
		same := 0
		for _, id := range ids(s.serving()) {
			if slices.Contains(before, id) {
				same++
			}
		}
		if same != 2 {
			t.Errorf("%d tasks were left alone", same)
		}
		s.odds()
	})
}

// TestFailedRollbackPauses: a rollback is never rolled back.
func TestFailedRollbackPauses(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(2, func(spec *api.ServiceSpec) {
			spec.Update.FailureAction = api.UpdateConfig_ROLLBACK
			spec.Rollback.FailureAction = api.UpdateConfig_ROLLBACK
		}))
		s.awaitServing("v1", 2)
		s.setScript(failsAfter(time.Second))
		s.image("v2")
		s.awaitStatus(api.UpdateStatus_ROLLBACK_PAUSED)
		if m := s.service().UpdateStatus.Message; !strings.Contains(m, "rollback paused due to failure or early termination of task ") {
			t.Errorf("message %q", m)
		}
		s.odds()
	})
}

// TestPauseIsLiftedByTheNextUpdate, even by one of the same spec: it waits
// for what had not proved itself before it goes on.
func TestPauseIsLiftedByTheNextUpdate(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.setScript(byImage(map[string]func(*api.Task) script{"v2": failsAfter(2 * time.Second)}))
		s.create(simSpec(3, nil))
		s.awaitServing("v1", 3)
		s.image("v2")
		s.awaitStatus(api.UpdateStatus_PAUSED)
		s.change(func(*api.ServiceSpec) {})
		s.awaitStatus(api.UpdateStatus_UPDATING)
		s.awaitStatus(api.UpdateStatus_PAUSED)
		if s.images("v1") != 2 {
			t.Errorf("the second attempt took another slot down\n%s", s.dump())
		}
		s.setScript(good)
		time.Sleep(10 * time.Second) // those begun before still fail
		s.change(func(*api.ServiceSpec) {})
		s.awaitStatus(api.UpdateStatus_COMPLETED)
		if s.images("v2") != 3 {
			t.Error(s.dump())
		}
		s.odds()
	})
}

// TestFailureRatioAndContinue: failures below the ratio, and all of them where
// the action is to continue, stop no rollout.
func TestFailureRatioAndContinue(t *testing.T) {
	firstFails := func(t *api.Task) script {
		if imageOf(t) == "v2" && t.Slot == 1 {
			return failsAfter(time.Second)(t)
		}
		return good(t)
	}
	for name, change := range map[string]func(*api.UpdateConfig){
		"ratio":    func(c *api.UpdateConfig) { c.MaxFailureRatio = 0.25 },
		"continue": func(c *api.UpdateConfig) { c.FailureAction = api.UpdateConfig_CONTINUE },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 1, func(s *sim) {
				s.setScript(firstFails)
				s.create(simSpec(4, func(spec *api.ServiceSpec) { change(spec.Update) }))
				s.awaitServing("v1", 4)
				s.image("v2")
				s.awaitStatus(api.UpdateStatus_COMPLETED)
				if m := s.service().UpdateStatus.Message; m != "update completed; 1 of 4 slots failed" {
					t.Errorf("message %q", m)
				}
				if s.images("v1") != 0 || s.images("v2") < 3 {
					t.Error(s.dump())
				}
				s.odds()
			})
		})
	}
}

// TestForce replaces tasks of the same spec, and a change of what tasks are
// not made of replaces none.
func TestForce(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(2, nil))
		s.awaitServing("v1", 2)
		before := ids(s.serving())
		s.change(func(spec *api.ServiceSpec) { spec.Update.Parallelism = 2 })
		time.Sleep(time.Minute)
		if s.status() != "none" || !slices.Equal(before, ids(s.serving())) {
			t.Error("tasks were replaced for a change of the update's settings")
		}
		s.change(func(spec *api.ServiceSpec) { spec.Task.ForceUpdate++ })
		s.awaitStatus(api.UpdateStatus_COMPLETED)
		for _, id := range ids(s.serving()) {
			if slices.Contains(before, id) {
				t.Errorf("task %s was not replaced", id)
			}
		}
		s.odds()
	})
}

// TestScaleDuringUpdate: both take place.
func TestScaleDuringUpdate(t *testing.T) {
	simulate(t, 2, func(s *sim) {
		s.create(simSpec(4, nil))
		s.awaitServing("v1", 4)
		s.change(func(spec *api.ServiceSpec) {
			spec.Task.GetContainer().Image = "v2"
			spec.GetReplicated().Replicas = 6
		})
		time.Sleep(8 * time.Second)
		s.change(func(spec *api.ServiceSpec) { spec.GetReplicated().Replicas = 2 })
		s.awaitServing("v2", 2)
		s.await(time.Minute, "two are left", func() bool { return len(s.serving()) == 2 })
		s.odds()
	})
}

// TestOldTaskFailsDuringUpdate: it is restarted as it was, as the new spec has
// not proved itself in its slot.
func TestOldTaskFailsDuringUpdate(t *testing.T) {
	simulate(t, 1, func(s *sim) {
		s.create(simSpec(3, func(spec *api.ServiceSpec) { spec.Update.Monitor = seconds(60) }))
		s.awaitServing("v1", 3)
		s.image("v2")
		s.awaitServing("v2", 1)
		s.fail(s.serving()[0])
		s.await(10*time.Second, "three serve again", func() bool { return s.images("v1") == 2 && s.images("v2") == 1 })
		s.awaitStatus(api.UpdateStatus_COMPLETED)
		s.odds()
	})
}
