// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/docker/cli/cli/command"
	"github.com/spf13/cobra"

	"satld/api/wire"
)

// addBounds has `satl service inspect --pretty` show, below what docker shows,
// how fast a dead task is found and what is left of the restart budget.
func addBounds(root *cobra.Command, docker command.Cli) {
	c, _, err := root.Find([]string{"service", "inspect"})
	if err != nil || c.RunE == nil {
		return
	}
	inner := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		pretty, _ := cmd.Flags().GetBool("pretty") // it is there
		if format, _ := cmd.Flags().GetString("format"); format == "pretty" {
			pretty = true
		}
		if !pretty {
			return inner(cmd, args)
		}
		for _, name := range args {
			if err := inner(cmd, []string{name}); err != nil {
				return err
			}
			var s wire.Service
			if err := ask(cmd.Context(), docker, http.MethodGet, named("services", name, ""), nil, &s); err != nil {
				return err
			}
			prettyHealth(docker.Out(), s)
		}
		return nil
	}
}

// prettyHealth prints in the manner of docker's template.
func prettyHealth(out io.Writer, s wire.Service) {
	if p, b := s.Explain.Probe, s.Explain.Bounds; p != nil && b != nil {
		fmt.Fprintln(out, "Health:")
		fmt.Fprintf(out, " Probe:\t\t%s\n", printable(p.Text))
		fmt.Fprintf(out, " Sustained failure needed:   %v\n", b.Sustained)
		fmt.Fprintf(out, " Worst case out of the pool: %s\n", b.OutOfPoolText)
		fmt.Fprintf(out, " Worst case stopped:         %s\n", b.ReplacedText)
	}
	fmt.Fprintln(out, "Restart Budget:")
	fmt.Fprintf(out, " State:\t\t%s\n", s.Budget.Text)
	for _, slot := range s.Budget.Slots {
		if slot.Used == 0 && !slot.Exhausted {
			continue
		}
		of := ""
		if s.Budget.MaxAttempts > 0 {
			of = fmt.Sprintf(" of %d", s.Budget.MaxAttempts)
		}
		where := fmt.Sprintf("slot %d", slot.Slot)
		if slot.NodeID != "" {
			where = "node " + short(slot.NodeID)
		}
		fmt.Fprintf(out, " %s:\t%d%s attempts used%s\n", strings.ToUpper(where[:1])+where[1:], slot.Used, of, map[bool]string{true: ", exhausted"}[slot.Exhausted])
	}
}
