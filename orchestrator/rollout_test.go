// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
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
