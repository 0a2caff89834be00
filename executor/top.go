// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"satld/platform"
)

// dockerPsArgs is what Docker's clients ask for where their user does not.
const dockerPsArgs = "-ef"

// defaultPsArgs are the same columns of every process, in each system's words:
// FreeBSD's ps takes -e and -f for other things.
var defaultPsArgs = map[string]string{
	"linux":   dockerPsArgs,
	"freebsd": "-ax -o user,pid,ppid,%cpu,start,tt,time,command",
}

// Top lists the container's processes by the host's ps(1), as Docker does.
func (n *Node) Top(ctx context.Context, ref, psArgs string) (titles []string, rows [][]string, err error) {
	c, err := n.live(ref)
	if err != nil {
		return nil, nil, err
	}
	pids, err := n.cfg.Runtime.Pids(ctx, c.runtimeID())
	if err != nil {
		return nil, nil, err
	}
	if psArgs == "" || psArgs == dockerPsArgs {
		psArgs = defaultPsArgs[platform.OS]
	}
	args := strings.Fields(psArgs)
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--") || strings.ContainsAny(a, "/;|&") }) {
		return nil, nil, invalid("ps arguments %q are not supported", psArgs)
	}
	out, err := exec.CommandContext(ctx, "ps", args...).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("ps %s: %w", psArgs, err)
	}
	return selectProcesses(string(out), pids)
}

// selectProcesses keeps of ps's table the rows of the given processes.
func selectProcesses(table string, pids []int) (titles []string, rows [][]string, err error) {
	lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
	titles = strings.Fields(lines[0])
	column := slices.Index(titles, "PID")
	if column < 0 {
		return nil, nil, invalid("the ps arguments print no PID column")
	}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) < len(titles) {
			continue
		}
		// The last column may hold spaces.
		row := append(fields[:len(titles)-1:len(titles)-1], strings.Join(fields[len(titles)-1:], " "))
		if pid, err := strconv.Atoi(row[column]); err == nil && slices.Contains(pids, pid) {
			rows = append(rows, row)
		}
	}
	return titles, rows, nil
}
