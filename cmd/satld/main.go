// SPDX-License-Identifier: BSD-2-Clause

// Command satld is the daemon: it runs services as FreeBSD jails, or as
// containers on Linux, driven by Docker clients over a unix socket.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"satld/jail"
	"satld/platform"
)

// version is set by the build (-ldflags -X main.version=...).
var version = "dev"

// commit is set by the build.
var commit = ""

// Exit codes (DESIGN.md section 8).
const (
	exitStopped = 0
	exitFailed  = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the command line: the daemon itself, or one of its few verbs.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "shim":
			// One helper process a node holds output and exit statuses.
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			defer stop()
			return exitOf(jail.ShimMain(ctx, args[1:]), stderr)
		case "validate":
			_, err := load(platform.OS, args[1:])
			if err == nil {
				fmt.Fprintln(stdout, "configuration is valid")
			}
			return exitOf(err, stderr)
		case "ping":
			cfg, err := load(platform.OS, args[1:])
			if err == nil {
				err = ping(cfg.Socket)
			}
			return exitOf(err, stderr)
		case "cleanup":
			cfg, err := load(platform.OS, args[1:])
			if err == nil {
				err = cleanup(context.Background(), cfg)
			}
			return exitOf(err, stderr)
		case "restore":
			return exitOf(restore(args[1:], stdout, stderr), stderr)
		case "version", "--version", "-v":
			fmt.Fprintf(stdout, "satld version %s, build %s\n", version, orUnknown(commit))
			return exitStopped
		case "help", "--help", "-h":
			usage(stdout)
			return exitStopped
		}
	}
	read := func() (Config, error) { return load(platform.OS, args) }
	cfg, err := read()
	if err != nil {
		return exitOf(err, stderr)
	}
	hup := make(chan os.Signal, 1) // from here on SIGHUP does not end the daemon
	signal.Notify(hup, syscall.SIGHUP)
	// SIGTERM stops the daemon and leaves every task running.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log, err := openLogs(cfg, os.Stderr)
	if err != nil {
		return exitOf(err, stderr)
	}
	defer log.flush()
	err = daemon(ctx, cfg, log.Logger, func(ctx context.Context) error { return reloads(ctx, hup, cfg, read, log) })
	if err != nil && cfg.LogOutput == outputSyslog && !isPipe(os.Stderr) {
		log.Error("satld ends", "err", err) // nobody may read its stderr, unless it is a pipe
	}
	return exitOf(err, stderr)
}

// exitOf says an error in one line and returns its exit code.
func exitOf(err error, stderr io.Writer) int {
	if errors.Is(err, pflag.ErrHelp) {
		usage(stderr)
		return exitStopped
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return exitStopped
	}
	fmt.Fprintln(stderr, "satld:", err)
	if errors.As(err, new(usageError)) {
		fmt.Fprintln(stderr, "See 'satld --help'.")
		return exitUsage
	}
	return exitFailed
}

func usage(w io.Writer) {
	fmt.Fprint(w, `Usage: satld [flags]
       satld validate [flags]   check flags and configuration, start nothing
       satld ping [flags]       status 0 if a daemon answers on the socket
       satld cleanup [flags]    of a stopped daemon: end its containers, take away
                                its interfaces and rules; store and images stay
       satld restore FILE [flags]  of a stopped daemon: make its state of a backup
                                that satl swarm backup has saved
       satld version

Runs services as jails, driven by Docker clients over a unix socket.
A fresh daemon is a cluster of one: there is nothing to initialise.

Flags (each is also a key of the configuration file, with _ for -, those of
node-health in its table node_health; flags win):
`)
	c := defaults(platform.OS)
	flags := pflag.NewFlagSet("satld", pflag.ContinueOnError)
	flags.String("config", defaultConfigFile(platform.OS), "`file` to read, in TOML")
	c.register(flags)
	fmt.Fprint(w, flags.FlagUsages())
	fmt.Fprint(w, `
SIGTERM stops it and leaves every task running; SIGHUP reads the configuration
file again and takes up its log level.
Exit status: 0 stopped, 1 failed, 2 wrong usage.
Example:
  satld --socket /tmp/satl.sock --state-dir /tmp/satl --network-pool 10.99.0.0/17 --overlay-pool 10.99.128.0/17
  docker -H unix:///tmp/satl.sock service ls
`)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
