// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/client"
)

// target is one daemon under measurement.
type target struct {
	name    string
	api     *client.Client
	pattern string
	image   string
	network string // "" is the daemon's default
}

// patience bounds every wait.
const patience = 2 * time.Minute

func (t *target) measure(ctx context.Context, tasks int) (f figures, err error) {
	settle()
	f.IdleMemory = memory(t.pattern)

	begun := time.Now()
	if err = t.create(ctx, "one", 1, nil, "sleep", "10000"); err != nil {
		return f, err
	}
	if err = t.await(ctx, "one", swarm.TaskStateRunning, 1); err != nil {
		return f, err
	}
	f.CreateToRunning = time.Since(begun)
	if err = t.remove(ctx, "one"); err != nil {
		return f, err
	}

	settle()
	before, cpu := memory(t.pattern), machineCPU()
	begun = time.Now()
	if err = t.create(ctx, "many", uint64(tasks), nil, "sleep", "10000"); err != nil {
		return f, err
	}
	if err = t.await(ctx, "many", swarm.TaskStateRunning, tasks); err != nil {
		return f, err
	}
	f.Many = time.Since(begun)
	settle()
	f.ManyCPU = (machineCPU() - cpu).Seconds()
	f.TaskMemory = (memory(t.pattern) - before) / float64(tasks)
	if err = t.remove(ctx, "many"); err != nil {
		return f, err
	}

	if f.ProbeCPU, err = t.probeCPU(ctx); err != nil {
		return f, err
	}
	if f.FailToFailed, err = t.failToFailed(ctx); err != nil {
		return f, err
	}
	return f, t.idle(ctx, &f)
}

// probeCPU compares 10 tasks probed each second with the same 10 unprobed.
func (t *target) probeCPU(ctx context.Context) (time.Duration, error) {
	const tasks, span = 10, 20 * time.Second
	busy := func(h *container.HealthConfig) (time.Duration, error) {
		if err := t.create(ctx, "probed", tasks, h, "sleep", "10000"); err != nil {
			return 0, err
		}
		if err := t.await(ctx, "probed", swarm.TaskStateRunning, tasks); err != nil {
			return 0, err
		}
		settle()
		cpu := machineCPU()
		time.Sleep(span)
		cpu = machineCPU() - cpu
		return cpu, t.remove(ctx, "probed")
	}
	without, err := busy(nil)
	if err != nil {
		return 0, err
	}
	with, err := busy(&container.HealthConfig{Test: []string{"CMD", "true"}, Interval: time.Second, Timeout: 5 * time.Second, Retries: 3})
	if err != nil {
		return 0, err
	}
	return (with - without) / time.Duration(tasks*span/time.Second), nil
}

// failToFailed is the time from a probe that begins to fail to FAILED.
func (t *target) failToFailed(ctx context.Context) (time.Duration, error) {
	h := &container.HealthConfig{Test: []string{"CMD-SHELL", "test ! -e /tmp/bad"}, Interval: time.Second, Timeout: time.Second, Retries: 2}
	if err := t.create(ctx, "breaks", 1, h, "sleep", "10000"); err != nil {
		return 0, err
	}
	if err := t.await(ctx, "breaks", swarm.TaskStateRunning, 1); err != nil {
		return 0, err
	}
	list, err := t.api.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("label", "com.docker.swarm.service.name=breaks"))})
	if err != nil || len(list) != 1 {
		return 0, fmt.Errorf("find the task's container: %d, %w", len(list), err)
	}
	exec, err := t.api.ContainerExecCreate(ctx, list[0].ID, container.ExecOptions{Cmd: []string{"touch", "/tmp/bad"}})
	if err != nil {
		return 0, err
	}
	if err := t.api.ContainerExecStart(ctx, exec.ID, container.ExecStartOptions{Detach: true}); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := t.await(ctx, "breaks", swarm.TaskStateFailed, 1); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	return took, t.remove(ctx, "breaks")
}

// idle is the daemon's own cost of 20 tasks probed each 10 s.
func (t *target) idle(ctx context.Context, f *figures) error {
	h := &container.HealthConfig{Test: []string{"CMD", "true"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, Retries: 3}
	if err := t.create(ctx, "idle", 20, h, "sleep", "10000"); err != nil {
		return err
	}
	if err := t.await(ctx, "idle", swarm.TaskStateRunning, 20); err != nil {
		return err
	}
	settle()
	const span = 30 * time.Second
	cpu := processCPU(t.pattern)
	time.Sleep(span)
	f.IdleCPU = float64(processCPU(t.pattern)-cpu) / float64(span) * 100
	f.ProbedMemory = memory(t.pattern)
	return t.remove(ctx, "idle")
}

func (t *target) create(ctx context.Context, name string, replicas uint64, h *container.HealthConfig, args ...string) error {
	grace := time.Second
	none := swarm.RestartPolicyConditionNone
	spec := swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: name},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{Image: t.image, Command: args, Healthcheck: h, StopGracePeriod: &grace},
			RestartPolicy: &swarm.RestartPolicy{Condition: none},
		},
		Mode: swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &replicas}},
	}
	if t.network != "" {
		spec.TaskTemplate.Networks = []swarm.NetworkAttachmentConfig{{Target: t.network}}
	}
	_, err := t.api.ServiceCreate(ctx, spec, swarm.ServiceCreateOptions{})
	if err != nil {
		return fmt.Errorf("create service %s: %w", name, err)
	}
	return nil
}

func (t *target) await(ctx context.Context, service string, state swarm.TaskState, count int) error {
	deadline := time.Now().Add(patience)
	for {
		list, err := t.api.TaskList(ctx, swarm.TaskListOptions{Filters: filters.NewArgs(filters.Arg("service", service))})
		if err != nil {
			return err
		}
		n := 0
		for _, task := range list {
			if task.Status.State == state {
				n++
			}
		}
		if n >= count {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d tasks of %s are %s after %s", n, count, service, state, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (t *target) remove(ctx context.Context, service string) error {
	if err := t.api.ServiceRemove(ctx, service); err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for {
		list, err := t.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "com.docker.swarm.service.name="+service))})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d containers of %s are left after %s", len(list), service, patience)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settle lets the work that follows an answer end.
func settle() { time.Sleep(2 * time.Second) }
