// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
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
	group   group
	image   string
	network string // "" is the daemon's default
}

const (
	patience = 2 * time.Minute // bounds every wait
	// How often the API is asked: the asking itself costs CPU time, which the
	// measurement of many tasks is to be free of.
	often, seldom = 5 * time.Millisecond, 50 * time.Millisecond
)

// serviceOf is a service whose tasks are not replaced.
func (t *target) serviceOf(name string, replicas uint64, h *container.HealthConfig, args ...string) swarm.ServiceSpec {
	grace := time.Second
	spec := swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: name},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{Image: t.image, Command: args, Healthcheck: h, StopGracePeriod: &grace},
			RestartPolicy: &swarm.RestartPolicy{Condition: swarm.RestartPolicyConditionNone},
		},
		Mode: swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &replicas}},
	}
	if t.network != "" {
		spec.TaskTemplate.Networks = []swarm.NetworkAttachmentConfig{{Target: t.network}}
	}
	return spec
}

// start creates a service and waits until all of its tasks are RUNNING.
func (t *target) start(ctx context.Context, spec swarm.ServiceSpec, poll time.Duration) error {
	if _, err := t.api.ServiceCreate(ctx, spec, swarm.ServiceCreateOptions{}); err != nil {
		return fmt.Errorf("create service %s: %w", spec.Name, err)
	}
	return t.await(ctx, spec.Name, swarm.TaskStateRunning, int(*spec.Mode.Replicated.Replicas), poll)
}

// await waits for so many tasks of the service to be in the state.
func (t *target) await(ctx context.Context, service string, state swarm.TaskState, count int, poll time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		list, err := t.api.TaskList(ctx, swarm.TaskListOptions{Filters: filters.NewArgs(filters.Arg("service", service))})
		if err != nil {
			return fmt.Errorf("list tasks of %s: %w", service, err)
		}
		n := 0
		var others []string
		for _, task := range list {
			if task.Status.State == state {
				n++
			} else {
				others = append(others, fmt.Sprintf("%s %s", task.Status.State, task.Status.Err))
			}
		}
		if n >= count {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d tasks of %s are %s after %s; the others: %s", n, count, service, state, patience, strings.Join(others, ", "))
		}
		time.Sleep(poll)
	}
}

// containers are those of a service, ended ones included.
func (t *target) containers(ctx context.Context, service string) ([]container.Summary, error) {
	list, err := t.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "com.docker.swarm.service.name="+service))})
	if err != nil {
		return nil, fmt.Errorf("list containers of %s: %w", service, err)
	}
	return list, nil
}

// remove takes a service away and waits until none of its containers is left.
func (t *target) remove(ctx context.Context, service string) error {
	if err := t.api.ServiceRemove(ctx, service); err != nil {
		return fmt.Errorf("remove service %s: %w", service, err)
	}
	deadline := time.Now().Add(patience)
	for {
		list, err := t.containers(ctx, service)
		if err != nil || len(list) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d containers of %s are left after %s", len(list), service, patience)
		}
		time.Sleep(seldom)
	}
}

// exec runs a command in a container to its end.
func (t *target) exec(ctx context.Context, id string, argv ...string) error {
	exec, err := t.api.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return fmt.Errorf("make an exec of %q: %w", argv, err)
	}
	conn, err := t.api.ContainerExecAttach(ctx, exec.ID, container.ExecAttachOptions{})
	if err != nil {
		return fmt.Errorf("exec %q: %w", argv, err)
	}
	defer conn.Close()
	out, err := io.ReadAll(conn.Reader)
	if err != nil {
		return fmt.Errorf("read the output of %q: %w", argv, err)
	}
	state, err := t.api.ContainerExecInspect(ctx, exec.ID)
	if err == nil && (state.Running || state.ExitCode != 0) {
		err = fmt.Errorf("exit code %d, %q", state.ExitCode, out)
	}
	if err != nil {
		return fmt.Errorf("exec %q: %w", argv, err)
	}
	return nil
}

// hybrid and unified are where cgroup v2 is mounted beside v1, and alone.
const hybrid, unified = "/sys/fs/cgroup/unified", "/sys/fs/cgroup"

// cpu is the CPU time of the daemon, of all that it ever started, and of the
// services' containers, which must be there.
func (t *target) cpu(ctx context.Context, services ...string) (time.Duration, error) {
	total, err := t.group.usage()
	if err != nil {
		return 0, err
	}
	root := unified
	if strings.HasPrefix(string(t.group), hybrid) {
		root = hybrid
	}
	counted := map[group]bool{t.group: true}
	for _, s := range services {
		list, err := t.containers(ctx, s)
		if err != nil {
			return 0, err
		}
		for _, c := range list {
			state, err := t.api.ContainerInspect(ctx, c.ID)
			if err != nil {
				return 0, err
			}
			g, err := groupOf(root, state.State.Pid)
			if err != nil {
				return 0, fmt.Errorf("find the cgroup of container %.12s: %w", c.ID, err)
			}
			if counted[g] {
				continue // the runtime left it in the daemon's
			}
			counted[g] = true
			used, err := g.usage()
			if err != nil {
				return 0, err
			}
			total += used
		}
	}
	return total, nil
}

// settle lets the work that follows an answer end.
func settle() { time.Sleep(2 * time.Second) }
