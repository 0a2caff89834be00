// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/spf13/cobra"
)

// newReady is `satl ready` and `satl unready`.
func newReady(docker command.Cli, ready bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ready [OPTIONS] TASK|NODE [TASK|NODE...]",
		Short: "Let tasks, or all tasks of nodes, have traffic again",
		Long: "Let tasks, or all tasks of nodes, have traffic again.\n" +
			"A task is named by its ID, a prefix of it, or its slot (web.1); a node by its name, its ID or a prefix of it.",
		Args: cli.RequiresMinArgs(1),
	}
	if !ready {
		cmd.Use = "unready [OPTIONS] TASK|NODE [TASK|NODE...]"
		cmd.Short = "Keep tasks, or all tasks of nodes, out of traffic"
		cmd.Long = "Keep tasks, or all tasks of nodes, out of traffic until satl ready.\n" +
			"They go on running and stay reachable by their own addresses. It is an instruction, so it holds also where a\n" +
			"service fails open: with every task unready the service refuses new connections. A task that is replaced is\n" +
			"ready again.\n" +
			"A task is named by its ID, a prefix of it, or its slot (web.1); a node by its name, its ID or a prefix of it."
	}
	node := cmd.Flags().Bool("node", false, "The names are of nodes, never of tasks")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var errs []error
		for _, name := range args {
			if err := setReady(cmd, docker, name, cmd.Name(), *node); err != nil {
				errs = append(errs, err)
				continue
			}
			fmt.Fprintln(docker.Out(), name)
		}
		return errors.Join(errs...)
	}
	return cmd
}

// setReady asks for the task of that name, and where there is none for the node.
func setReady(cmd *cobra.Command, docker command.Cli, name, verb string, node bool) error {
	if !node {
		err := ask(cmd.Context(), docker, http.MethodPost, named("tasks", name, "/"+verb), nil, nil)
		if !errdefs.IsNotFound(err) {
			return err
		}
	}
	err := ask(cmd.Context(), docker, http.MethodPost, named("nodes", name, "/"+verb), nil, nil)
	if errdefs.IsNotFound(err) && !node {
		return fmt.Errorf("there is no task and no node %s", name)
	}
	return err
}
