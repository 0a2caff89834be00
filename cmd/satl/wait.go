// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/swarm"
	"github.com/spf13/cobra"
)

// waiting are the commands that return when a service has converged.
var waiting = []string{"service create", "service update", "service scale", "service rollback"}

// errOver ends the wait for a service whose tasks have all ended well and are
// not to be started again: docker's progress bar would wait for ever.
var errOver = errors.New("every task has completed")

// gaveUp ends the wait for a service of which a slot is given up, its restart
// budget being exhausted: that never converges, and docker's progress bar would
// wait for ever.
type gaveUp string

func (g gaveUp) Error() string { return string(g) }

// addWaiting gives the waiting commands --wait-timeout, and exit codes that
// tell the truth: 1 when the wait timed out, the update was rolled back or a
// task is not restarted any more (cases/api.md, api-4).
func addWaiting(root *cobra.Command, docker command.Cli) {
	for _, path := range waiting {
		c, _, err := root.Find(strings.Fields(path))
		if err != nil || c.RunE == nil {
			continue
		}
		limit := c.Flags().Duration("wait-timeout", 0, "Stop waiting for the service to converge after this long (0s: never); the operation goes on")
		inner := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error {
			return wait(cmd, args, docker, *limit, inner)
		}
	}
}

func wait(cmd *cobra.Command, args []string, docker command.Cli, limit time.Duration, inner func(*cobra.Command, []string) error) error {
	outer := cmd.Context()
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	bounded := ctx
	if limit > 0 {
		var stop context.CancelFunc
		bounded, stop = context.WithTimeout(ctx, limit)
		defer stop()
	}
	detached, _ := cmd.Flags().GetBool("detach") // scale, too, has the flag
	names := servicesOf(cmd, args)
	if !detached {
		for _, name := range names {
			go whenOver(bounded, docker, name, cancel)
		}
	}
	cmd.SetContext(bounded)
	err := inner(cmd, args)
	var given gaveUp
	switch {
	case errors.Is(context.Cause(ctx), errOver) && outer.Err() == nil:
		fmt.Fprintln(docker.Err(), "satl: "+errOver.Error())
		return nil
	case err != nil && errors.As(context.Cause(ctx), &given) && outer.Err() == nil:
		return cli.StatusError{StatusCode: 1, Status: given.Error()}
	case err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded):
		return cli.StatusError{StatusCode: 1, Status: fmt.Sprintf("not converged within %s; the operation continues in background, see: satl service ps %s", limit, strings.Join(names, " "))}
	case err != nil || detached:
		return err
	}
	return rolledBack(outer, docker, cmd, names)
}

// servicesOf are the services that the command line names; none where create
// is given no name.
func servicesOf(cmd *cobra.Command, args []string) []string {
	switch cmd.Name() {
	case "create":
		if name, _ := cmd.Flags().GetString("name"); name != "" {
			return []string{name}
		}
		return nil
	case "scale":
		var names []string
		for _, a := range args {
			name, _, _ := strings.Cut(a, "=")
			names = append(names, name)
		}
		return names
	}
	return args
}

// whenOver ends the wait when every current task of the service has completed
// and none is to follow, and when one is given up and the others run. Jobs are
// none of its business: the progress bar knows their end.
func whenOver(ctx context.Context, docker command.Cli, name string, over context.CancelCauseFunc) {
	for {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		service, _, err := docker.Client().ServiceInspectWithRaw(ctx, name, swarm.ServiceInspectOptions{})
		if err != nil || service.Spec.Mode.Replicated == nil {
			continue // not created yet
		}
		tasks, err := docker.Client().TaskList(ctx, swarm.TaskListOptions{Filters: filters.NewArgs(
			filters.Arg("service", service.ID), filters.Arg("_up-to-date", "true"))})
		if err != nil {
			continue
		}
		replicas := service.Spec.Mode.Replicated.Replicas
		policy := service.Spec.TaskTemplate.RestartPolicy
		again := policy == nil || policy.Condition == "" || policy.Condition == swarm.RestartPolicyConditionAny
		if !again && completed(tasks, replicas) {
			over(errOver)
			return
		}
		// The progress bar knows how a rollout ends.
		if s := service.UpdateStatus; s == nil || s.State == swarm.UpdateStateCompleted || s.State == swarm.UpdateStateRollbackCompleted {
			if slot, why := exhausted(tasks, replicas, policy != nil && policy.Condition == swarm.RestartPolicyConditionNone); slot > 0 {
				over(gaveUp(fmt.Sprintf("service %s does not converge: slot %d: %s", name, slot, why)))
				return
			}
		}
	}
}

// exhausted is the first slot whose last task is not replaced any more, and that
// task's error, once every slot has a task and those of the others run; 0 is
// none. never: tasks are not restarted at all.
func exhausted(tasks []swarm.Task, replicas *uint64, never bool) (slot int, why string) {
	last := map[int]swarm.Task{}
	for _, t := range tasks {
		if old, ok := last[t.Slot]; !ok || t.CreatedAt.After(old.CreatedAt) {
			last[t.Slot] = t
		}
	}
	if replicas == nil || uint64(len(last)) < *replicas {
		return 0, ""
	}
	for n, t := range last {
		switch {
		case strings.Contains(t.Status.Err, "(restart budget exhausted"), never && failed(t):
			if slot == 0 || n < slot {
				slot, why = n, t.Status.Err
			}
		case t.Status.State == swarm.TaskStateComplete && never:
		case t.Status.State != swarm.TaskStateRunning || t.DesiredState != swarm.TaskStateRunning:
			return 0, ""
		}
	}
	return slot, why
}

// completed tells whether every replica has a task that ended well, and no
// task is under way.
func completed(tasks []swarm.Task, replicas *uint64) bool {
	done := map[int]bool{}
	for _, t := range tasks {
		switch t.Status.State {
		case swarm.TaskStateComplete:
			done[t.Slot] = true
		case swarm.TaskStateFailed, swarm.TaskStateShutdown, swarm.TaskStateRejected, swarm.TaskStateOrphaned, swarm.TaskStateRemove:
		default:
			return false
		}
	}
	return replicas != nil && len(done) > 0 && uint64(len(done)) >= *replicas
}

func failed(t swarm.Task) bool {
	return t.Status.State == swarm.TaskStateFailed || t.Status.State == swarm.TaskStateRejected
}

// rolledBack is an error when the update that was waited for ended in a
// rollback that nobody asked for.
func rolledBack(ctx context.Context, docker command.Cli, cmd *cobra.Command, names []string) error {
	asked := cmd.Name() == "rollback"
	if flag, err := cmd.Flags().GetBool("rollback"); err == nil {
		asked = asked || flag
	}
	if asked || cmd.Name() == "create" {
		return nil
	}
	for _, name := range names {
		service, _, err := docker.Client().ServiceInspectWithRaw(ctx, name, swarm.ServiceInspectOptions{})
		if err != nil {
			return err
		}
		if s := service.UpdateStatus; s != nil && (s.State == swarm.UpdateStateRollbackCompleted || s.State == swarm.UpdateStateRollbackStarted) {
			return cli.StatusError{StatusCode: 1, Status: fmt.Sprintf("service %s was rolled back: %s", name, s.Message)}
		}
	}
	return nil
}
