// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/command"
	"github.com/docker/cli/cli/command/service"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/client"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"satld/api/wire"
)

// capture is a client to which a service is given for creation and which
// keeps its spec instead.
type capture struct {
	client.APIClient
	spec *swarm.ServiceSpec
}

var errCaptured = errors.New("captured")

func (c capture) ServiceCreate(_ context.Context, spec swarm.ServiceSpec, _ swarm.ServiceCreateOptions) (swarm.ServiceCreateResponse, error) {
	*c.spec = spec
	return swarm.ServiceCreateResponse{}, errCaptured
}

// capturing is docker's command line with such a client.
type capturing struct {
	command.Cli
	spec swarm.ServiceSpec
}

func (c *capturing) Client() client.APIClient { return capture{c.Cli.Client(), &c.spec} }

// notExplained are flags of service create that say nothing of the spec.
var notExplained = []string{"detach", "quiet", "with-registry-auth", "no-resolve-image"}

// newExplain is `satl health explain`: service create with all its flags, but
// for the creation.
func newExplain(docker command.Cli) *cobra.Command {
	captured := &capturing{Cli: docker}
	cmd, _, err := service.NewServiceCommand(captured).Find([]string{"create"})
	if err != nil {
		panic(err) // it is docker's own
	}
	cmd.Parent().RemoveCommand(cmd)
	takeLabelFlags(cmd, docker)
	cmd.Use = "explain SERVICE | OPTIONS IMAGE [COMMAND] [ARG...]"
	cmd.Short = "Compute how fast a probe finds a task dead, and what other settings would make of it"
	cmd.Long = cmd.Short + ".\n" +
		"Of a service that is there, or with the options of satl service create of one that is not, and is not created."
	format := formatFlag(cmd)
	for _, name := range notExplained {
		if f := cmd.Flags().Lookup(name); f != nil {
			f.Hidden = true
		}
	}
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var e wire.Explanation
		if existing, ok := serviceNamed(cmd, args); ok {
			var s wire.Service
			err := ask(cmd.Context(), docker, http.MethodGet, named("services", existing, ""), nil, &s)
			if errdefs.IsNotFound(err) {
				return fmt.Errorf("%w\nof a service that is not there yet, give the options of its probe as for satl service create, and its image", err)
			}
			if err != nil {
				return err
			}
			e = s.Explain
		} else {
			if err := inner(cmd, args); !errors.Is(err, errCaptured) {
				return err
			}
			if err := ask(cmd.Context(), docker, http.MethodPost, "/health/explain", captured.spec, &e); err != nil {
				return err
			}
		}
		if *format != "" {
			return formatted(docker.Out(), *format, e)
		}
		return printExplanation(docker.Out(), docker.Err(), e)
	}
	return cmd
}

// serviceNamed is the service that a command line without any flag of a spec
// names.
func serviceNamed(cmd *cobra.Command, args []string) (string, bool) {
	spec := false
	cmd.Flags().Visit(func(f *pflag.Flag) { spec = spec || f.Name != "format" })
	if spec || len(args) != 1 {
		return "", false
	}
	return args[0], true
}

// printExplanation prints what a probe amounts to; warnings go to errs.
func printExplanation(out, errs io.Writer, e wire.Explanation) error {
	for _, warning := range e.Warnings {
		fmt.Fprintln(errs, "WARNING: "+warning)
	}
	p, b := e.Probe, e.Bounds
	if p == nil || b == nil {
		fmt.Fprintln(out, "No probe: a task gets traffic as soon as its process runs, and keeps it until that ends.")
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(w, what+"\t"+format+"\n", args...) }
	line("Probe", "%s", printable(p.Text))
	if p.Profile != "docker" {
		line("Profile", "%s", p.Profile)
	}
	line("Runs", "every %v, timeout %v; first after %v, then every %v until the first pass", p.Interval, p.Timeout, p.First, p.StartInterval)
	switch {
	case p.Action == "none":
		line("Unhealthy", "is only shown")
	case p.ReplaceAfter == 0:
		line("Unhealthy", "after %d failures in a row: out of traffic until it passes, never replaced", p.UnrouteAfter)
	case p.ReplaceAfter > p.UnrouteAfter:
		line("Unhealthy", "after %d failures in a row: out of traffic until it passes; after %d: replaced", p.UnrouteAfter, p.ReplaceAfter)
	default:
		line("Unhealthy", "after %d failures in a row: out of traffic and replaced", p.UnrouteAfter)
	}
	if p.Action != "none" {
		line("Traffic at the earliest", "%v after the start", b.FirstPass)
		line("A start that never passes", "%s", givenUp(b.StartFailed))
		line("Failure needed", "%v without a break", b.Sustained)
	}
	line("Worst case out of the pool", "%s", b.OutOfPoolText)
	line("Worst case stopped", "%s", b.ReplacedText)
	if b.Drain > 0 {
		line("Drain", "%v between leaving traffic and a planned stop", b.Drain)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(e.Table) < 2 {
		return nil
	}
	fmt.Fprintln(out)
	fmt.Fprintln(w, "SETTINGS\tINTERVAL\tTIMEOUT\tRETRIES\tSUSTAINED FAILURE NEEDED\tWORST CASE OUT OF THE POOL")
	for _, r := range e.Table {
		fmt.Fprintf(w, "%s\t%v\t%v\t%d\t%v\t%s\n", r.Setting, r.Interval, r.Timeout, r.Retries, r.Sustained, r.Text)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nMore retries protect a slow task; a shorter interval finds a dead one sooner.")
	return nil
}

// givenUp is in words when a start is, at the latest; 0 is never.
func givenUp(d time.Duration) string {
	if d == 0 {
		return "is waited for, however long it takes"
	}
	return fmt.Sprintf("is given up after %v at most", d)
}
