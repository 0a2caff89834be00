// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/cli/cli/command"
	"github.com/docker/docker/api/types/swarm"
	"github.com/spf13/cobra"
)

// labelFlag is a flag of satl's that says in one word what a label of satld
// says: the daemon knows labels alone, so that docker's CLI and compose files
// can do all that satl can.
type labelFlag struct {
	name, label string
	service     bool // a label of the service, not of its containers
	boolean     bool
	kind        bool // it says what the probe is; a service has one
	usage       string
}

const labelHTTP = "satl.health.http"

var labelFlags = []labelFlag{
	{name: "health-http", label: labelHTTP, kind: true, usage: "Probe by HTTP: the `path` to GET, such as /health"},
	{name: "health-port", label: labelHTTP + ".port", usage: "`Port` of --health-http (default: the first published target port)"},
	{name: "health-pass", label: labelHTTP + ".pass", usage: "Status `codes` of --health-http that pass, such as 200-399"},
	{name: "health-tcp", label: "satl.health.tcp", kind: true, usage: "Probe by TCP: the `port` that a connection must open to"},
	{name: "health-file", label: "satl.health.file", kind: true, usage: "Probe by status file: its `path` in the container"},
	{name: "health-profile", label: "satl.health.profile", usage: "Preset of all health settings: `automatic|manual|gate|off`"},
	{name: "health-first", label: "satl.health.first", usage: "Time from the start to the first probe (`duration`)"},
	{name: "health-start-limit", label: "satl.health.start-limit", usage: "Longest start from the first probe; then it is replaced (`duration`)"},
	{name: "health-unroute-after", label: "satl.health.unroute-after", usage: "Failures in a row until it leaves traffic (`number or duration`)"},
	{name: "health-replace-after", label: "satl.health.replace-after", usage: "Failures in a row until it is replaced (`number or duration`)"},
	{name: "health-action", label: "satl.health.action", usage: "What an unhealthy verdict does: `replace|unroute|none`"},
	{name: "drain", label: "satl.traffic.drain", service: true, usage: "Wait between leaving traffic and the stop signal (`duration`)"},
	{name: "fail-open", label: "satl.traffic.fail-open", service: true, boolean: true, usage: "If no task passes, send traffic to all that run"},
	{name: "replace-parallelism", label: "satl.health.replace-parallelism", service: true, usage: "Unhealthy tasks that are replaced at a time (`number`; unset: all)"},
}

// shortNames are the other names that the daemon takes for a label; a flag
// replaces what was set under them.
var shortNames = map[string]string{
	labelHTTP + ".port": "satl.health.port",
	labelHTTP + ".pass": "satl.health.pass",
}

// addLabelFlags gives service create and service update the label flags.
func addLabelFlags(root *cobra.Command, docker command.Cli) {
	for _, path := range []string{"service create", "service update"} {
		if c, _, err := root.Find(strings.Fields(path)); err == nil && c.RunE != nil {
			takeLabelFlags(c, docker)
		}
	}
}

// takeLabelFlags gives a command the label flags, and has it turn them into
// docker's own before it runs.
func takeLabelFlags(c *cobra.Command, docker command.Cli) {
	for _, f := range labelFlags {
		if f.boolean {
			c.Flags().Bool(f.name, false, f.usage)
			continue
		}
		usage := f.usage
		if c.Name() == "update" {
			usage += `; "" takes it back`
		}
		c.Flags().String(f.name, "", usage)
	}
	inner := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		turn := turnCreate
		if cmd.Name() == "update" {
			turn = func(cmd *cobra.Command) error { return turnUpdate(cmd, args, docker) }
		}
		if err := turn(cmd); err != nil {
			return err
		}
		return inner(cmd, args)
	}
}

// given are the label flags on the command line, with their values.
func given(cmd *cobra.Command) map[labelFlag]string {
	out := make(map[labelFlag]string)
	for _, f := range labelFlags {
		if flag := cmd.Flags().Lookup(f.name); flag != nil && flag.Changed {
			out[f] = flag.Value.String()
		}
	}
	return out
}

// turnCreate turns the label flags of a create into labels.
func turnCreate(cmd *cobra.Command) error {
	if err := oneKind(cmd); err != nil {
		return err
	}
	for f, value := range given(cmd) {
		if value == "" {
			continue
		}
		flag := "container-label"
		if f.service {
			flag = "label"
		}
		if err := cmd.Flags().Set(flag, f.label+"="+value); err != nil {
			return err
		}
	}
	return nil
}

// oneKind refuses two flags that both say what the probe is.
func oneKind(cmd *cobra.Command) error {
	var kinds []string
	for f, value := range given(cmd) {
		if f.kind && value != "" {
			kinds = append(kinds, "--"+f.name)
		}
	}
	if command, err := cmd.Flags().GetString("health-cmd"); err == nil && command != "" {
		kinds = append(kinds, "--health-cmd")
	}
	if len(kinds) > 1 {
		slices.Sort(kinds)
		return fmt.Errorf("%s: a service has one probe", strings.Join(kinds, " and "))
	}
	return nil
}

// turnUpdate turns the label flags of an update into labels that are added
// and removed. A new kind of probe takes the old one's place, a new profile
// begins from its own timings, and --no-healthcheck ends them all.
func turnUpdate(cmd *cobra.Command, args []string, docker command.Cli) error {
	if err := oneKind(cmd); err != nil {
		return err
	}
	flags := given(cmd)
	off, _ := cmd.Flags().GetBool("no-healthcheck") // it is there
	if len(flags) == 0 && !off || len(args) != 1 {
		return nil
	}
	service, _, err := docker.Client().ServiceInspectWithRaw(cmd.Context(), args[0], swarm.ServiceInspectOptions{})
	if err != nil {
		return err
	}
	var had map[string]string
	if c := service.Spec.TaskTemplate.ContainerSpec; c != nil {
		had = c.Labels
	}
	var errs []error
	set := func(flag, value string) { errs = append(errs, cmd.Flags().Set(flag, value)) }
	unset := func(flag, value string) {
		if !cmd.Flags().Changed(flag) {
			set(flag, value)
		}
	}
	for name := range had {
		if off && strings.HasPrefix(name, "satl.health.") {
			set("container-label-rm", name)
		}
	}
	for f, value := range flags {
		add, remove := "container-label-add", "container-label-rm"
		if f.service {
			add, remove = "label-add", "label-rm"
		}
		set(remove, f.label)
		if other := shortNames[f.label]; other != "" {
			set(remove, other)
		}
		if value != "" {
			set(add, f.label+"="+value)
		}
		if f.kind && value != "" {
			for _, label := range probeLabels(had, f.label) {
				set("container-label-rm", label)
			}
			unset("health-cmd", "")
		}
		if f.name == "health-profile" && value != "" && value != "docker" {
			for _, timing := range []string{"health-interval", "health-timeout", "health-start-period"} {
				unset(timing, "0s")
			}
			unset("health-retries", "0")
		}
	}
	return errors.Join(errs...)
}

// probeLabels are the labels that a probe of another kind leaves behind when
// label is to say what the probe is.
func probeLabels(had map[string]string, label string) []string {
	var out []string
	for name := range had {
		switch {
		case name == label:
		case name == labelHTTP, name == "satl.health.tcp", name == "satl.health.file":
			out = append(out, name)
		case label == labelHTTP:
		case strings.HasPrefix(name, labelHTTP+"."), strings.HasPrefix(name, "satl.health.header."),
			name == "satl.health.port", name == "satl.health.pass":
			out = append(out, name)
		}
	}
	return out
}
