// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/docker/docker/api/types/versions"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// supported refuses a command, or a flag that was given, which the daemon is
// too old for or has not: it would be dropped in silence. The daemon is asked
// only where there is something to ask.
func supported(cmd *cobra.Command, docker command.Cli) error {
	for c := cmd; c != nil; c = c.Parent() {
		if err := needs(docker, cmd.CommandPath(), func(kind string) (string, bool) {
			v, ok := c.Annotations[kind]
			return v, ok
		}); err != nil {
			return err
		}
	}
	var errs []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		errs = append(errs, needs(docker, "--"+f.Name, func(kind string) (string, bool) {
			v, ok := f.Annotations[kind]
			return strings.Join(v, ""), ok
		}))
		if why := refused(f.Name); why != "" && runsContainer(cmd) {
			errs = append(errs, cli.StatusError{StatusCode: 125, Status: fmt.Sprintf("satl: %s takes no --%s: %s", cmd.CommandPath(), f.Name, why)})
		}
	})
	return errors.Join(errs...)
}

// needs checks docker's annotations of a command or a flag.
func needs(docker command.Cli, what string, annotation func(kind string) (string, bool)) error {
	if v, ok := annotation("version"); ok && v != "" && versions.LessThan(docker.CurrentVersion(), v) {
		return fmt.Errorf("satl: %s requires API version %s, but the daemon's is %s", what, v, docker.CurrentVersion())
	}
	if v, ok := annotation("ostype"); ok && docker.ServerInfo().OSType != "" && v != docker.ServerInfo().OSType {
		return fmt.Errorf("satl: %s is only for a daemon running on %s, and this one runs on %s", what, v, docker.ServerInfo().OSType)
	}
	if _, ok := annotation("experimental"); ok && !docker.ServerInfo().HasExperimental {
		return fmt.Errorf("satl: %s is not supported by the daemon", what)
	}
	return nil
}

// refused says why a flag of run and create is none of ours, "" where it is.
func refused(flag string) string {
	switch {
	case strings.HasPrefix(flag, "health-"):
		// The container API reads no healthcheck (spec/healthchecks.txt,
		// "satl run -p is always in that state").
		return "only a service has a healthcheck (satl service create --" + flag + ")"
	case flag == "use-api-socket":
		return "it would mount docker's socket"
	}
	return ""
}

// hideRefused keeps what is refused out of the help.
func hideRefused(c *cobra.Command) {
	if !runsContainer(c) {
		return
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if refused(f.Name) != "" || f.Name == "no-healthcheck" {
			f.Hidden = true
		}
	})
}

// runsContainer tells whether a command is run or create, in either form.
func runsContainer(c *cobra.Command) bool {
	if c.Name() != "run" && c.Name() != "create" {
		return false
	}
	parent := c.Parent()
	return parent != nil && (!parent.HasParent() || parent.Name() == "container")
}
