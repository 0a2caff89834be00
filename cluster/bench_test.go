// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// BenchmarkCreateToRunning is the engine's share of the way from `service
// create` to RUNNING: tasks prepare, start and pass at once.
func BenchmarkCreateToRunning(b *testing.B) {
	for _, tasks := range []int{1, 30} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			n := startNode(b, stateDir(b), newFake(), nil)
			eventually(b, 5*time.Second, "node is ready", func() string { return nodeState(n, api.NodeStatus_READY) })
			var total time.Duration
			for i := 0; b.Loop(); i++ {
				begin := time.Now()
				s := create(b, n, replicas(fmt.Sprintf("web%d", i), uint64(tasks)))
				awaitLive(b, n, s.ID, tasks)
				total += time.Since(begin)
			}
			b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ms-to-RUNNING")
		})
	}
}

// BenchmarkIdle is the CPU that a node with 20 running tasks and nothing to do
// takes, in percent of one core.
func BenchmarkIdle(b *testing.B) {
	n := startNode(b, stateDir(b), newFake(), nil)
	s := create(b, n, replicas("web", 20))
	awaitLive(b, n, s.ID, 20)
	time.Sleep(time.Second)
	for b.Loop() {
		before, begin := cpu(b), time.Now()
		time.Sleep(5 * time.Second)
		b.ReportMetric(100*float64(cpu(b)-before)/float64(time.Since(begin)), "%core")
	}
}

// cpu is what this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
