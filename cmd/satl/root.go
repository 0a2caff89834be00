// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/docker/cli/cli/command/commands"
	cliflags "github.com/docker/cli/cli/flags"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// absent are docker's commands that satld has no counterpart for, by path.
var absent = []string{
	"bake", "build", "builder", "checkpoint", "context", "manifest", "plugin", "search", "stats", "trust",
	"container stats", "image build",
}

// replaced are those that satl has its own of.
var replaced = []string{"info", "system info"}

// newRoot is the command tree: docker's, without what is absent, speaking of
// satl. options are filled in when the global flags are parsed.
func newRoot(docker *command.DockerCli) (root *cobra.Command, options *cliflags.ClientOptions) {
	root = &cobra.Command{
		Use:              "satl [OPTIONS] COMMAND [ARG...]",
		Short:            "Run services as containers, proved healthy before they get traffic",
		SilenceUsage:     true,
		SilenceErrors:    true,
		TraverseChildren: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.ShowHelp(docker.Err())(cmd, args)
			}
			return fmt.Errorf("satl: unknown command: satl %s\n\nRun 'satl --help' for more information", args[0])
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return supported(cmd, docker) },
		Version:           fmt.Sprintf("%s, build %s", version, orUnknown(commit)),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetIn(docker.In())
	root.SetOut(docker.Out())
	root.SetErr(docker.Err())

	options, _ = cli.SetupRootCommand(root)
	root.SetVersionTemplate("satl version {{.Version}}\n")
	root.Annotations = nil // docker's further reading
	ourFlags(root, options)

	commands.AddCommands(root, docker)
	for _, path := range slices.Concat(absent, replaced) {
		remove(root, path)
	}
	root.AddCommand(newInfo(docker))
	if system, _, err := root.Find([]string{"system"}); err == nil {
		system.AddCommand(newInfo(docker))
	}
	root.AddCommand(newHealth(docker), newApps(docker), newReady(docker, true), newReady(docker, false))
	if service, _, err := root.Find([]string{"service"}); err == nil {
		service.AddCommand(newVersions(docker))
	}
	if swarm, _, err := root.Find([]string{"swarm"}); err == nil {
		swarm.AddCommand(newBackup(docker))
	}
	addWaiting(root, docker)
	addLabelFlags(root, docker)
	addBounds(root, docker)
	addHints(root, docker)
	visit(root, func(c *cobra.Command) {
		c.DisableFlagsInUseLine = true
		rename(c)
		hideRefused(c)
	})
	return root, options
}

// ourFlags makes docker's global flags ours: none for contexts, nothing taken
// from docker's environment, and -H says what it overrides.
func ourFlags(root *cobra.Command, options *cliflags.ClientOptions) {
	var flags, persistent []*pflag.Flag
	root.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "context" {
			flags = append(flags, f)
		}
	})
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { persistent = append(persistent, f) })
	root.ResetFlags()
	for _, f := range flags {
		root.Flags().AddFlag(f)
	}
	for _, f := range persistent {
		root.PersistentFlags().AddFlag(f)
	}
	root.Flags().BoolP("version", "v", false, "Print version information and quit")
	host := root.Flags().Lookup("host")
	host.Usage, host.DefValue = fmt.Sprintf("Daemon socket to connect to (overrides %s)", EnvHost), DefaultHost
	options.TLS, options.TLSVerify = false, false
	for _, name := range []string{"tls", cliflags.FlagTLSVerify} {
		root.Flags().Lookup(name).DefValue = "false"
	}
}

// remove takes a command out of the tree.
func remove(root *cobra.Command, path string) {
	if c, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 && c.HasParent() {
		c.Parent().RemoveCommand(c)
	}
}

// visit calls do for a command and all below it.
func visit(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		visit(sub, do)
	}
}
