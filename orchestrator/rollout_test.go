// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// odds fails the test for what the watcher saw.
func (s *sim) odds() {
	s.t.Helper()
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for _, o := range s.watch.oddity {
		s.t.Error(o)
	}
}

func TestRollingUpdate(t *testing.T) {
	for _, order := range []api.UpdateConfig_UpdateOrder{api.UpdateConfig_STOP_FIRST, api.UpdateConfig_START_FIRST} {
		t.Run(order.String(), func(t *testing.T) {
			simulate(t, 2, func(s *sim) {
				s.create(simSpec(4, func(spec *api.ServiceSpec) { spec.Update.Order = order }))
				s.awaitServing("v1", 4)
				s.watch.reset()
				s.image("v2")
				took := s.awaitStatus(api.UpdateStatus_COMPLETED)
				if s.images("v2") != 4 {
					t.Error(s.dump())
				}
				// Four times: prepare, start, and five seconds of proof.
				if took < 24*time.Second || took > 40*time.Second {
					t.Errorf("took %v", took)
				}
				promised := 3
				if order == api.UpdateConfig_START_FIRST {
					promised = 4
				}
				if got := s.watch.fewest(); got < promised {
					t.Errorf("%d served at some time, want %d", got, promised)
				}
				if made := s.watch.total(); made != 8 {
					t.Errorf("%d tasks made", made)
				}
				s.odds()
			})
		})
	}
}

// TestWithdrawnIsNoProof: a task that is out of traffic proves nothing. One that
// stays so for its health counts as failed in the end, though nothing replaces
// it; one that an operator took out is waited for.
func TestWithdrawnIsNoProof(t *testing.T) {
	const health, word = "withdrawn: unhealthy: 2/2 probes failed", "withdrawn: not ready, by the operator's word on the task"
	for _, c := range []struct {
		says  string
		back  time.Duration // until it is in traffic again; 0: never
		state api.UpdateStatus_UpdateState
	}{
		{health, time.Minute, api.UpdateStatus_COMPLETED},
		{health, 0, api.UpdateStatus_PAUSED},
		{word, time.Hour, api.UpdateStatus_COMPLETED},
		{word, 0, api.UpdateStatus_UPDATING},
	} {
		t.Run(c.says, func(t *testing.T) {
			simulate(t, 1, func(s *sim) {
				s.create(simSpec(2, func(spec *api.ServiceSpec) { spec.Update.Order = api.UpdateConfig_START_FIRST }))
				s.awaitServing("v1", 2)
				s.image("v2")
				s.awaitServing("v2", 1)
				i := slices.IndexFunc(s.serving(), func(t *api.Task) bool { return imageOf(t) == "v2" })
				x := s.serving()[i]
				s.say(x, c.says)
				time.Sleep(cmp.Or(c.back, 2*time.Hour))
				s.newLeader()
				if c.back > 0 {
					if s.status() != api.UpdateStatus_UPDATING.String() || s.images("v1") != 2 {
						t.Errorf("while it is withdrawn:\n%s", s.dump())
					}
					s.say(x, "")
					if took := s.awaitStatus(c.state); took < 10*time.Second || took > 20*time.Second { // twice proof
						t.Errorf("took %v", took)
					}
					return
				}
				if s.status() != c.state.String() || s.images("v1") != 2 {
					t.Errorf("it stays withdrawn:\n%s", s.dump())
				}
				if m := s.service().UpdateStatus.Message; c.state == api.UpdateStatus_PAUSED && !strings.HasSuffix(m, "slot 1: still running after 10m: "+c.says) {
					t.Errorf("message %q", m)
				}
			})
		})
	}
}
