// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"satld/jail/shim"
)

// ocijail drives ocijail 0.6. It says what went wrong on stderr, which for a
// container and an exec is theirs.
type ocijail struct {
	path string // of the binary
	root string // ocijail's own state
}

func (o ocijail) base(string) []string {
	return []string{o.path, "--root", o.root, "--log-format", "json"}
}

func (o ocijail) stateDir() string { return o.root }

func (o ocijail) create(id, bundle, pidFile, log string, console bool) []string {
	argv := append(o.base(log), "create", "-b", bundle, "--pid-file", pidFile)
	if console {
		argv = append(argv, "--console-socket", shim.ConsoleArg)
	}
	return append(argv, id)
}

func (o ocijail) start(id string) shim.StartRequest {
	return shim.StartRequest{Argv: append(o.base(""), "start", id)}
}

// remove has no --force: that kills whoever has the first process's pid now.
func (o ocijail) remove(id string) []string { return append(o.base(""), "delete", id) }

// exec without detach runs the command in place of ocijail's own process, and
// then nothing but its pid tells it.
func (o ocijail) exec(id, processFile, pidFile, log, console string, detach bool) []string {
	argv := append(o.base(log), "exec", id, "--process", processFile)
	if detach {
		argv = append(argv, "--pid-file", pidFile, "-d")
	}
	if console != "" {
		argv = append(argv, "-t", "--console-socket", console)
	}
	return argv
}

func (o ocijail) pause(string) []string  { return nil }
func (o ocijail) resume(string) []string { return nil }

func (o ocijail) processFor(container *specs.Process, spec ExecSpec, who *identity) (*specs.Process, error) {
	if spec.Privileged {
		return nil, unsupported("privileged exec: not supported for jails")
	}
	p := *container
	p.Terminal = spec.TTY
	p.Args = spec.Args
	p.Env = mergeEnv(container.Env, spec.Env)
	if spec.Cwd != "" {
		p.Cwd = spec.Cwd
	}
	if who != nil {
		p.User = specs.User{UID: who.uid, GID: who.gid, AdditionalGids: who.groups}
	}
	return &p, nil
}

// failure: a line of JSON is ocijail's own error, and anything else what the
// forked process said of the command that it was to become.
func (o ocijail) failure(words []byte) error {
	if text, ok := jsonText(words); ok {
		return &StartError{ExitCode: 128, Text: text}
	}
	return startError(runtimeText(words))
}

func (o ocijail) wordsOnStderr() bool { return true }
