// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"
	"regexp"
	"strings"

	"github.com/docker/cli/cli/command"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	// A command line in a help text or a hint: the program's own name, but
	// not a part of a URL, a path or another word.
	commandLine = regexp.MustCompile(`(^|[\s"'(,$])docker ([a-z])`)
	notFound    = regexp.MustCompile(`Cannot connect to the Docker daemon at (\S+)\. Is the docker daemon running\?`)

	helpWords = strings.NewReplacer(
		"Manage Docker", "Manage satld",
		"Show docker disk usage", "Show disk usage",
		"Show the Docker version information", "Show version information",
		"low-level information on Docker objects", "low-level information on objects",
		"the Docker host's", "the host's",
		" Docker images", " images",
	)
	errorWords = strings.NewReplacer(
		"Cannot connect to the Docker daemon.", "Cannot connect to satld.",
		"Is the docker daemon running on this host?", "Is it running on this host?",
		"the Docker daemon socket", "satld's socket",
		"the docker API", "satld's API",
	)
)

// rename has a command's help speak of satl.
func rename(c *cobra.Command) {
	c.Short, c.Long = helpWords.Replace(c.Short), helpWords.Replace(c.Long)
	for _, text := range []*string{&c.Use, &c.Long, &c.Example} {
		*text = commandLine.ReplaceAllString(*text, "${1}satl $2")
	}
	if aliases, ok := c.Annotations["aliases"]; ok {
		c.Annotations["aliases"] = commandLine.ReplaceAllString(aliases, "${1}satl $2")
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage = commandLine.ReplaceAllString(helpWords.Replace(f.Usage), "${1}satl $2")
	})
}

// hinting are the commands whose output names others to run.
var hinting = []string{"swarm init", "swarm join-token"}

// addHints has them name satl's: docker's would go to another daemon.
func addHints(root *cobra.Command, docker *command.DockerCli) {
	for _, path := range hinting {
		c, _, err := root.Find(strings.Fields(path))
		if err != nil || c.RunE == nil {
			continue
		}
		inner := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if err := docker.Apply(command.WithOutputStream(hints{docker.Out()})); err != nil {
				return err
			}
			return inner(cmd, args)
		}
	}
}

// hints is an output in which command lines are satl's.
type hints struct{ io.Writer }

func (h hints) Write(p []byte) (int, error) {
	if _, err := h.Writer.Write(commandLine.ReplaceAll(p, []byte("${1}satl $2"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// inOurWords makes an error of docker's commands speak of satl and satld.
func inOurWords(message string) string {
	if rest, ok := strings.CutPrefix(message, "docker: "); ok {
		message = "satl: " + rest
	}
	message = notFound.ReplaceAllString(message, "Cannot connect to satld at $1. Is it running?")
	message = commandLine.ReplaceAllString(message, "${1}satl $2")
	return errorWords.Replace(message)
}
