// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/swarm"
)

var sleeps = []string{"sleep", "10000"}

// measure does the work that is compared, from an idle daemon on.
func (t *target) measure(ctx context.Context, tasks, rounds int) (f figures, err error) {
	settle()
	f.Idle = t.group.memory()
	for range rounds {
		begun := time.Now()
		if err := t.start(ctx, t.serviceOf("one", 1, nil, sleeps...), often); err != nil {
			return f, err
		}
		f.Create = append(f.Create, time.Since(begun))
		if err := t.remove(ctx, "one"); err != nil {
			return f, err
		}
	}
	for _, step := range []func() error{
		func() error { return t.many(ctx, tasks, &f) },
		func() error { return t.probes(ctx, &f) },
		func() error { return t.failures(ctx, rounds, &f) },
		func() error { return t.idle(ctx, &f) },
	} {
		if err := step(); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (t *target) many(ctx context.Context, tasks int, f *figures) error {
	settle()
	before := t.group.memory()
	cpu, err := t.cpu(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := t.start(ctx, t.serviceOf("many", uint64(tasks), nil, sleeps...), seldom); err != nil {
		return err
	}
	f.Many = time.Since(begun)
	settle()
	used, err := t.cpu(ctx, "many")
	if err != nil {
		return err
	}
	f.ManyCPU = used - cpu
	after := t.group.memory()
	f.Task = memory{(after.RSS - before.RSS) / float64(tasks), (after.PSS - before.PSS) / float64(tasks)}
	return t.remove(ctx, "many")
}

// probes compares 10 tasks probed each second with the same 10 unprobed.
func (t *target) probes(ctx context.Context, f *figures) error {
	const tasks, span = 10, 20 * time.Second
	busy := func(h *container.HealthConfig) (used, period time.Duration, err error) {
		if err := t.start(ctx, t.serviceOf("probed", tasks, h, sleeps...), seldom); err != nil {
			return 0, 0, err
		}
		settle()
		before, err := t.cpu(ctx, "probed")
		if err != nil {
			return 0, 0, err
		}
		time.Sleep(span)
		after, err := t.cpu(ctx, "probed")
		if err != nil {
			return 0, 0, err
		}
		if h != nil {
			if period, err = t.period(ctx, "probed"); err != nil {
				return 0, 0, err
			}
		}
		return after - before, period, t.remove(ctx, "probed")
	}
	without, _, err := busy(nil)
	if err != nil {
		return err
	}
	with, period, err := busy(&container.HealthConfig{Test: []string{"CMD", "true"}, Interval: time.Second, Timeout: 5 * time.Second, Retries: 3})
	if err != nil {
		return err
	}
	f.ProbeCPU = time.Duration(float64(with-without) * float64(period) / float64(tasks*span))
	return nil
}

// period is the mean time between two probes of a service's tasks: the interval
// and what a probe takes, as the next is due an interval after the last one's end.
func (t *target) period(ctx context.Context, service string) (time.Duration, error) {
	list, err := t.containers(ctx, service)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	n := 0
	for _, c := range list {
		state, err := t.api.ContainerInspect(ctx, c.ID)
		if err != nil {
			return 0, err
		}
		if h := state.State.Health; h != nil && len(h.Log) > 1 {
			last := len(h.Log) - 1
			total, n = total+h.Log[last].Start.Sub(h.Log[0].Start), n+last
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("no results of probes are shown for %s", service)
	}
	return total / time.Duration(n), nil
}

// failure is how long one broken task took.
type failure struct {
	verdict time.Duration // from the failure to the verdict
	end     time.Duration // on to the end of its process: stop signal and grace
	failed  time.Duration // on to FAILED in the store
}

func (f failure) total() time.Duration { return f.verdict + f.end + f.failed }

// failures breaks tasks at phases spread over the interval between two probes.
func (t *target) failures(ctx context.Context, rounds int, f *figures) error {
	const interval = time.Second
	h := &container.HealthConfig{Test: []string{"CMD-SHELL", "test ! -e /tmp/bad"}, Interval: interval, Timeout: time.Second, Retries: 2}
	for i := range rounds {
		if err := t.start(ctx, t.serviceOf("breaks", 1, h, sleeps...), often); err != nil {
			return err
		}
		list, err := t.containers(ctx, "breaks")
		if err != nil {
			return err
		}
		watching, stop := context.WithCancel(ctx)
		messages, _ := t.api.Events(watching, events.ListOptions{Filters: filters.NewArgs(filters.Arg("type", "container"), filters.Arg("container", list[0].ID))})
		time.Sleep(interval * time.Duration(i) / time.Duration(rounds))
		if err := t.exec(ctx, list[0].ID, "touch", "/tmp/bad"); err != nil {
			stop()
			return err
		}
		begun := time.Now()
		if err := t.await(ctx, "breaks", swarm.TaskStateFailed, 1, often); err != nil {
			stop()
			return err
		}
		failed := time.Now()
		verdict, end := timesOf(messages)
		stop()
		f.Failures = append(f.Failures, failure{verdict.Sub(begun), end.Sub(verdict), failed.Sub(end)})
		if err := t.remove(ctx, "breaks"); err != nil {
			return err
		}
	}
	return nil
}

// timesOf takes the verdict and the end of a container out of its events,
// which are there.
func timesOf(messages <-chan events.Message) (verdict, end time.Time) {
	for end.IsZero() {
		select {
		case m := <-messages:
			switch m.Action {
			case "health_status: unhealthy":
				verdict = time.Unix(0, m.TimeNano)
			case events.ActionDie:
				end = time.Unix(0, m.TimeNano)
			}
		case <-time.After(time.Second):
			return verdict, end
		}
	}
	return verdict, end
}

// over is the median of one part of all failures, in seconds.
func over(all []failure, part func(failure) time.Duration) float64 {
	var v []time.Duration
	for _, f := range all {
		v = append(v, part(f))
	}
	return median(v).Seconds()
}

// idle is the daemon's own cost of 20 tasks probed each 10 s.
func (t *target) idle(ctx context.Context, f *figures) error {
	h := &container.HealthConfig{Test: []string{"CMD", "true"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, Retries: 3}
	if err := t.start(ctx, t.serviceOf("idle", 20, h, sleeps...), seldom); err != nil {
		return err
	}
	settle()
	const span = 30 * time.Second
	cpu := t.group.daemonCPU()
	time.Sleep(span)
	f.IdleCPU = float64(t.group.daemonCPU()-cpu) / float64(span) * 100
	f.Probed = t.group.memory()
	return t.remove(ctx, "idle")
}
