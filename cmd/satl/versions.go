// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"satld/api/wire"
)

// newVersions is `satl service versions`.
func newVersions(docker command.Cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "versions [OPTIONS] SERVICE",
		Short: "List the versions of a service that are still known, and why those failed that did",
		Args:  cli.ExactArgs(1),
	}
	quiet := cmd.Flags().BoolP("quiet", "q", false, "Only display version numbers")
	reports := cmd.Flags().Bool("reports", false, "Show the whole record of every failed task")
	format := formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var v wire.Versions
		if err := ask(cmd.Context(), docker, http.MethodGet, named("services", args[0], "/versions"), nil, &v); err != nil {
			return err
		}
		switch {
		case *quiet:
			for _, version := range v.Versions {
				fmt.Fprintln(docker.Out(), version.Version)
			}
			return nil
		case *format != "":
			return formatted(docker.Out(), *format, v)
		}
		return printVersions(docker.Out(), v, *reports, time.Now())
	}
	return cmd
}

// failedRecord is what of a report's record the list shows.
type failedRecord struct {
	State  string `json:"state"`
	Step   string `json:"step"`
	Detail string `json:"detail"`
}

func printVersions(out io.Writer, v wire.Versions, whole bool, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "VERSION\tIMAGE\tSTATE\tRUNNING\tFAILED\tUPDATE")
	for _, version := range v.Versions {
		update := ""
		if u := version.Update; u != nil && u.State != "" {
			update = strings.TrimSuffix(fmt.Sprintf("%s: %s", u.State, u.Message), ": ")
		}
		failed := "-"
		if version.Failed {
			failed = plural(len(version.Reports), "task")
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\n", version.Version, version.Image, version.State, version.Running, failed, update)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, version := range v.Versions {
		for _, r := range version.Reports {
			var record failedRecord
			if err := json.Unmarshal(r.Record, &record); err != nil {
				return fmt.Errorf("the report of task %s: %w", r.TaskID, err)
			}
			name := v.Name
			if r.Slot != 0 {
				name += "." + strconv.FormatUint(r.Slot, 10)
			}
			fmt.Fprintf(out, "\nversion %d, %s (task %s on %s), %s ago:", version.Version, name, r.TaskID, orUnknown(r.Node), units.HumanDuration(now.Sub(r.At)))
			for _, part := range []string{record.State, record.Step} {
				if part != "" {
					fmt.Fprint(out, " ", part)
				}
			}
			fmt.Fprintln(out)
			if record.Detail != "" {
				fmt.Fprintln(out, "  "+printable(record.Detail))
			}
			if whole {
				indented, err := json.MarshalIndent(r.Record, "  ", "  ")
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "  %s\n", indented)
			}
		}
	}
	return nil
}

// plural is a count of things: "1 task", "2 tasks".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
