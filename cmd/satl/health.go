// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/spf13/cobra"

	"satld/api/wire"
)

// watchEvery is how often `satl health --watch` looks.
const watchEvery = time.Second

// newHealth is `satl health`.
func newHealth(docker command.Cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health [OPTIONS] SERVICE",
		Short: "Show the health of a service's tasks, and why one is not serving",
		Long: "Show the health of a service's tasks, and why one is not serving.\n" +
			"The exit code is 0 where as many tasks serve as are wanted, and 1 where fewer do.",
		Args: cli.ExactArgs(1),
	}
	watch := cmd.Flags().BoolP("watch", "w", false, "Go on showing it, once a second")
	quiet := cmd.Flags().BoolP("quiet", "q", false, "Only display IDs of tasks")
	noTrunc := cmd.Flags().Bool("no-trunc", false, "Don't truncate output")
	format := formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		show := func(h wire.Health) error {
			switch {
			case *quiet:
				for _, t := range h.Tasks {
					fmt.Fprintln(docker.Out(), t.ID)
				}
				return nil
			case *format != "":
				return formatted(docker.Out(), *format, h)
			}
			return printHealth(docker.Out(), h, *noTrunc, time.Now())
		}
		look := func(ctx context.Context) (h wire.Health, err error) {
			err = ask(ctx, docker, http.MethodGet, named("services", args[0], "/health"), nil, &h)
			return h, err
		}
		if *watch {
			return watchHealth(cmd.Context(), docker, look, show)
		}
		h, err := look(cmd.Context())
		if err != nil {
			return err
		}
		if err := show(h); err != nil {
			return err
		}
		if h.Serving < h.Desired {
			return cli.StatusError{StatusCode: 1}
		}
		return nil
	}
	cmd.AddCommand(newExplain(docker))
	return cmd
}

// watchHealth shows the table until the command is ended, on a terminal in
// place of the one before.
func watchHealth(ctx context.Context, docker command.Cli, look func(context.Context) (wire.Health, error), show func(wire.Health) error) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		h, err := look(ctx)
		if err != nil {
			return err
		}
		if docker.Out().IsTerminal() {
			fmt.Fprint(docker.Out(), "\x1b[H\x1b[2J")
		}
		if err := show(h); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !docker.Out().IsTerminal() {
			fmt.Fprintln(docker.Out())
		}
	}
}

// printHealth prints the live table.
func printHealth(out io.Writer, h wire.Health, whole bool, now time.Time) error {
	fmt.Fprintf(out, "%s: %d of %s serving", h.Name, h.Serving, plural(int(h.Desired), "task"))
	if h.FailingOpen {
		fmt.Fprint(out, ", failing open: no task passes, so all that run are sent traffic")
	}
	fmt.Fprintln(out)
	if h.Budget.Text != "" {
		fmt.Fprintln(out, "restarts: "+h.Budget.Text)
	}
	if !h.Probed {
		fmt.Fprintln(out, "it has no probe: a task serves as soon as it runs")
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "TASK\tNAME\tNODE\tSTATE\tHEALTH\tSTREAK\tLAST PROBE\tNEXT\tSERVING")
	for _, t := range h.Tasks {
		id, serving := short(t.ID), "yes"
		if whole {
			id = t.ID
		}
		if !t.Serving {
			serving = "no: " + clip(t.Why, 60, whole)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %s\t%s\t%s\t%s\t%s\t%s\n", id, t.Name, cmp.Or(t.Node, "-"), t.State, brief(now.Sub(t.Since)),
			t.Verdict, streak(t), clip(lastProbe(t, now), 40, whole), nextProbe(t, now), serving)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range h.Tasks {
		if t.Flapping != "" {
			fmt.Fprintf(out, "%s: %s\n", t.Name, t.Flapping)
		}
	}
	return nil
}

// streak is a task's failures in a row, of those that have a consequence.
func streak(t wire.TaskHealth) string {
	if t.Verdict == "none" || strings.HasPrefix(t.Verdict, "unknown") {
		return "-"
	}
	of := []string{}
	for _, n := range []int{t.UnrouteAfter, t.ReplaceAfter} {
		if n > 0 && (len(of) == 0 || strconv.Itoa(n) != of[0]) {
			of = append(of, strconv.Itoa(n))
		}
	}
	return strings.Join(append([]string{strconv.Itoa(t.FailingStreak)}, of...), "/")
}

func lastProbe(t wire.TaskHealth, now time.Time) string {
	if len(t.Log) == 0 {
		return "-"
	}
	last := t.Log[len(t.Log)-1]
	ago := brief(now.Sub(last.End)) + " ago"
	if last.ExitCode == 0 {
		return "passed " + ago
	}
	return strings.TrimSuffix("failed "+ago+": "+printable(last.Output), ": ")
}

func nextProbe(t wire.TaskHealth, now time.Time) string {
	switch {
	case t.NextProbe != nil:
		return brief(t.NextProbe.Sub(now))
	case t.Verdict == "none", strings.HasPrefix(t.Verdict, "unknown"), len(t.Log) == 0, strings.HasPrefix(t.Why, "stopping"):
		return "-"
	}
	return "running"
}

// clip cuts a text for a column.
func clip(text string, width int, whole bool) string {
	text = printable(text)
	if runes := []rune(text); !whole && len(runes) > width {
		return string(runes[:width-3]) + "..."
	}
	return text
}
