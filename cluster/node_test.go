// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"testing"
	"time"
)

func TestServiceRuns(t *testing.T) {
	f := newFake()
	n := startNode(t, stateDir(t), f, nil)
	start := time.Now()
	s := create(t, n, replicas("web", 1))
	awaitLive(t, n, s.ID, 1)
	t.Log("create to RUNNING", time.Since(start))
	begin := time.Now()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("stopping took %v", d)
	}
	if c := f.called("shutdown"); c != 0 {
		t.Errorf("%d tasks were shut down with the daemon", c)
	}
}
