// SPDX-License-Identifier: BSD-2-Clause

// Command satl is the command line of satld: docker/cli's own commands with
// satld's socket as the default host. It looks at no docker context, runs no
// docker plugin or hook, and sends no telemetry.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	dockerversion "github.com/docker/cli/cli/version"
	"github.com/sirupsen/logrus"
)

// version and commit are set by the build (-ldflags -X main.version=...).
var (
	version = "dev"
	commit  = ""
)

func main() {
	forget(os.Unsetenv)
	nameVersion()
	ctx := untilSignal(context.Background())
	err := run(ctx, os.Args[1:])
	if text := said(err); text != "" {
		fmt.Fprintln(os.Stderr, text)
	}
	os.Exit(exitCode(err))
}

// run is one satl command line.
func run(ctx context.Context, args []string) error {
	docker, err := command.NewDockerCli(
		command.WithBaseContext(ctx),
		command.WithUserAgent(fmt.Sprintf("satl/%s (%s)", version, runtime.GOOS)),
	)
	if err != nil {
		return err
	}
	logrus.SetOutput(docker.Err())

	root, options := newRoot(docker)
	top := cli.NewTopLevelCommand(root, docker, options, root.Flags())
	top.SetArgs(args)
	cmd, args, err := top.HandleGlobalFlags()
	if err != nil {
		return err
	}
	host, err := resolveHost(options.Hosts, os.Getenv(EnvHost))
	if err != nil {
		return err
	}
	// A host that is given explicitly goes before DOCKER_HOST and contexts.
	options.Hosts = []string{host}
	if err := top.Initialize(); err != nil {
		return err
	}
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// said is what is printed of an error; nothing of one that is the end by a
// signal, which the user sent, whatever was under way.
func said(err error) string {
	var ended signalled
	if err == nil || errdefs.IsCanceled(err) || errors.As(err, &ended) {
		return ""
	}
	return inOurWords(err.Error())
}

// exitCode is the status that docker would exit with: 125 for a usage error,
// that of the container for run and exec, 128 + the signal when one ended it.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var ended signalled
	if errors.As(err, &ended) {
		return 128 + int(ended.signal)
	}
	if errdefs.IsCanceled(err) {
		return 0
	}
	var status cli.StatusError
	if errors.As(err, &status) && status.StatusCode != 0 {
		return status.StatusCode
	}
	return 1
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ signal syscall.Signal }

func (signalled) Error() string { return "" }

// untilSignal gives a context that the first SIGINT or SIGTERM ends; what does
// not heed it is ended by the third.
func untilSignal(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s, _ := (<-signals).(syscall.Signal)
		cancel(signalled{s})
		<-signals
		<-signals
		fmt.Fprintln(os.Stderr, "\ngot 3 SIGTERM/SIGINTs, forcefully exiting")
		os.Exit(1)
	}()
	return ctx
}

// nameVersion is what `satl version` says of the client.
func nameVersion() {
	dockerversion.PlatformName = "satl"
	dockerversion.Version = version
	dockerversion.GitCommit = orUnknown(commit)
	dockerversion.BuildTime = "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && commit == "":
			dockerversion.GitCommit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.time":
			if _, err := time.Parse(time.RFC3339, s.Value); err == nil {
				dockerversion.BuildTime = s.Value
			}
		}
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
