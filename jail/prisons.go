// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"satld/platform/command"
)

// tool runs one of the system's own commands and returns what it printed. An
// error is a *toolError, or says that the command could not be run.
type tool func(ctx context.Context, argv ...string) ([]byte, error)

// toolError is a command that ended with another status than 0.
type toolError struct {
	argv   []string
	code   int
	stderr string
}

func (e *toolError) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", strings.Join(e.argv, " "), e.code, e.stderr)
}

// toolLimit bounds one command: all of them ask or tell the kernel something
// and come back at once.
const toolLimit = 30 * time.Second

func runTool(ctx context.Context, argv ...string) ([]byte, error) {
	out, err := command.Run(ctx, command.Command{Argv: argv, Bound: toolLimit})
	if err == nil {
		return []byte(out), nil
	}
	if failed := new(command.Error); errors.As(err, &failed) && failed.Status > 0 {
		return nil, &toolError{argv: argv, code: failed.Status, stderr: failed.Stderr}
	}
	return nil, fmt.Errorf("run %w", err)
}

// prison is a jail as the kernel lists it.
type prison struct {
	jid   int
	name  string
	dying bool // removed, and still held by something
	path  string
}

var (
	prisonsArgv = []string{"jls", "-d", "-h", "jid", "name", "dying", "path"} // -d adds the dying ones
	prisonForm  = regexp.MustCompile(`^(\d+) (.*?) (true|false) (.*)$`)
)

// parsePrisons reads the output of prisonsArgv. A line of another form is a
// jail with a strange name, and not ours.
func parsePrisons(out []byte) ([]prison, error) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	if !lines.Scan() || strings.Join(strings.Fields(lines.Text()), " ") != "jid name dying path" {
		return nil, fmt.Errorf("%s: unexpected output %q", strings.Join(prisonsArgv, " "), lines.Text())
	}
	var all []prison
	for lines.Scan() {
		f := prisonForm.FindStringSubmatch(lines.Text())
		if f == nil {
			continue
		}
		jid, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		all = append(all, prison{jid: jid, name: f[2], dying: f[3] == "true", path: f[4]})
	}
	return all, lines.Err()
}

func (t tool) prisons(ctx context.Context) ([]prison, error) {
	out, err := t(ctx, prisonsArgv...)
	if err != nil {
		return nil, err
	}
	return parsePrisons(out)
}

// find is the jail of that name. There can be one alive beside dying ones; it
// comes first.
func find(all []prison, name string) (prison, bool) {
	var dying *prison
	for i, p := range all {
		if p.name == name {
			if !p.dying {
				return p, true
			}
			dying = &all[i]
		}
	}
	if dying == nil {
		return prison{}, false
	}
	return *dying, true
}

// processesArgv lists all processes: `ps -J` does not take a dying jail.
var processesArgv = []string{"ps", "-ax", "-o", "jid=", "-o", "pid=", "-o", "stat="}

// parseProcesses picks a jail's processes out of the output of processesArgv.
// What has ended and was not waited for is none.
func parseProcesses(out []byte, jid int) (pids []int) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 || f[0] != strconv.Itoa(jid) || strings.HasPrefix(f[2], "Z") {
			continue
		}
		if pid, err := strconv.Atoi(f[1]); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

func (t tool) processes(ctx context.Context, jid int) ([]int, error) {
	out, err := t(ctx, processesArgv...)
	if err != nil {
		return nil, err
	}
	return parseProcesses(out, jid), nil
}

func (t tool) mounts(ctx context.Context) ([]mountLine, error) {
	out, err := t(ctx, "mount", "-p")
	if err != nil {
		return nil, err
	}
	return parseMounts(out), nil
}
