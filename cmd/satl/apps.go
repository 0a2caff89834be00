// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/spf13/cobra"

	"satld/api/wire"
)

// newApps is `satl apps`.
func newApps(docker command.Cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apps [OPTIONS] [NAME]",
		Short: "Show the verdict on applications (stacks and compose projects)",
		Long: "Show the verdict on applications (stacks and compose projects).\n" +
			"Of one application the exit code is 0 where it is healthy, and 1 where it is not.",
		Args: cli.RequiresMaxArgs(1),
	}
	quiet := cmd.Flags().BoolP("quiet", "q", false, "Only display names, or of one application nothing")
	format := formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return showApp(cmd, docker, args[0], *quiet, *format)
		}
		var apps []wire.App
		if err := ask(cmd.Context(), docker, http.MethodGet, "/apps", nil, &apps); err != nil {
			return err
		}
		switch {
		case *quiet:
			for _, a := range apps {
				fmt.Fprintln(docker.Out(), a.Name)
			}
			return nil
		case *format != "":
			return formatted(docker.Out(), *format, apps)
		}
		w := tabwriter.NewWriter(docker.Out(), 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "NAME\tHEALTHY\tGATED\tCHECKED\tWHY")
		for _, a := range apps {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.Name, yes(a.Healthy), yes(a.Gated), checked(a, time.Now()), printable(a.Rule))
		}
		return w.Flush()
	}
	return cmd
}

func showApp(cmd *cobra.Command, docker command.Cli, name string, quiet bool, format string) error {
	var a wire.App
	if err := ask(cmd.Context(), docker, http.MethodGet, named("apps", name, ""), nil, &a); err != nil {
		return err
	}
	switch {
	case quiet:
	case format != "":
		if err := formatted(docker.Out(), format, a); err != nil {
			return err
		}
	default:
		verdict := "healthy"
		if !a.Healthy {
			verdict = "not healthy"
		}
		fmt.Fprintf(docker.Out(), "%s: %s (%s), checked %s\n", a.Name, verdict, printable(a.Rule), checked(a, time.Now()))
	}
	if !a.Healthy {
		return cli.StatusError{StatusCode: 1}
	}
	return nil
}

func checked(a wire.App, now time.Time) string {
	if a.Checked.IsZero() {
		return "not yet"
	}
	return brief(now.Sub(a.Checked)) + " ago"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
