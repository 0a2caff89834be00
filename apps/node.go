// SPDX-License-Identifier: BSD-2-Clause

package apps

import (
	"context"
	"fmt"
	"time"

	"satld/executor"
	"satld/healthcheck"
)

// FromNode is an Options.List of a node's containers: list is the List of
// executor.Containers.
func FromNode(list func() []executor.Snapshot) func(context.Context) []Container {
	return func(ctx context.Context) []Container {
		all := list()
		out := make([]Container, 0, len(all))
		for _, s := range all {
			out = append(out, of(ctx, s))
		}
		return out
	}
}

// fileBound is how long a status file that makes no sense is read again: the
// others wait for it.
const fileBound = 100 * time.Millisecond

// of is a container as a verdict needs it. The status file of one that has any
// is read.
func of(ctx context.Context, s executor.Snapshot) Container {
	c := Container{
		Created: s.Created, Running: s.State.Live(), Ended: s.Finished,
		Probed: s.Settings != nil, Stopping: s.TaskID != "" && s.Stopping,
	}
	if s.Config != nil {
		c.Labels = s.Config.Labels
	}
	if s.Health != nil {
		c.Health = s.Health.Status
	}
	if s.TaskID != "" {
		c.Slot = fmt.Sprintf("%s/%d", s.ServiceID, s.Slot)
	}
	if path := c.Labels[LabelFile]; path != "" && c.Running && len(names(c.Labels)) > 0 {
		ctx, cancel := context.WithTimeout(ctx, fileBound)
		defer cancel()
		_, c.FileProblem = healthcheck.ReadStatus(ctx, s.Root, path)
	}
	return c
}
