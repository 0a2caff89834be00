// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"slices"
	"strconv"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// resources and actions of rctl(8), and for which the amount may have a unit.
var (
	rctlResources = []string{
		"cputime", "datasize", "stacksize", "coredumpsize", "memoryuse", "memorylocked", "maxproc", "openfiles", "vmemoryuse",
		"pseudoterminals", "swapuse", "nthr", "msgqqueued", "msgqsize", "nmsgq", "nsem", "nsemop", "nshm", "shmsize", "wallclock",
		"pcpu", "readbps", "writebps", "readiops", "writeiops",
	}
	rctlActions = []string{"deny", "log", "devctl", "throttle", "sigkill", "sigterm", "sighup", "sigint", "sigusr1", "sigstop"}
)

// rctl(8): `-a RULE`, `-r FILTER`, `[-h] -u jail:NAME`, `[-l] [FILTER]`. A rule
// of a jail that is not there is kept, and so are those of one that goes.
func rctl(c *call) int {
	verb, arg := "list", ""
	for _, a := range c.args {
		switch {
		case !strings.HasPrefix(a, "-"):
			arg = a
		case strings.Contains(a, "a"):
			verb = "add"
		case strings.Contains(a, "r"):
			verb = "remove"
		case strings.Contains(a, "u"):
			verb = "usage"
		}
	}
	exit := 0
	c.update(func(w *world.World) {
		if w.Sysctls["kern.racct.enable"] != "1" {
			exit = c.fail(1, "RACCT/RCTL present, but disabled; enable using kern.racct.enable=1 tunable")
			return
		}
		filter := strings.TrimSuffix(arg, ":")
		match := func(rule string) bool { return rule == filter || strings.HasPrefix(rule, filter+":") || filter == "" }
		switch verb {
		case "add":
			rule, ok := canonical(arg)
			if !ok {
				exit = c.fail(1, "failed to add rule '%s': Invalid argument", arg)
				return
			}
			if !slices.Contains(w.Rctl, rule) {
				w.Rctl = append(w.Rctl, rule)
			}
		case "remove":
			before := len(w.Rctl)
			w.Rctl = slices.DeleteFunc(w.Rctl, match)
			if len(w.Rctl) == before {
				exit = c.fail(1, "failed to remove rule '%s': No such process", arg)
			}
		case "usage":
			exit = c.usageOf(w, arg)
		default:
			for _, r := range w.Rctl {
				if match(r) {
					c.printf("%s\n", r)
				}
			}
		}
	})
	return exit
}

func (c *call) usageOf(w *world.World, subject string) int {
	name, ok := strings.CutPrefix(subject, "jail:")
	j := w.Jail(name)
	if !ok || j == nil {
		return c.fail(1, "failed to show resource consumption for '%s': No such process", subject)
	}
	for _, r := range rctlResources {
		n := 0
		switch r {
		case "maxproc", "nthr":
			n = len(processes(j))
		case "memoryuse":
			n = len(processes(j)) << 20
		}
		c.printf("%s=%d\n", r, n)
	}
	return 0
}

// canonical writes a rule as the kernel gives it back: plain numbers.
func canonical(rule string) (string, bool) {
	head, amount, ok := strings.Cut(rule, "=")
	parts := strings.Split(head, ":")
	if !ok || len(parts) != 4 || !slices.Contains([]string{"jail", "user", "process", "loginclass"}, parts[0]) ||
		!slices.Contains(rctlResources, parts[2]) || !slices.Contains(rctlActions, parts[3]) {
		return "", false
	}
	amount, per, hasPer := strings.Cut(amount, "/")
	shift := 0
	if i := strings.IndexAny("kmgtKMGT", amount[max(len(amount)-1, 0):]); amount != "" && i >= 0 {
		shift = 10 * (i%4 + 1)
		amount = amount[:len(amount)-1]
	}
	n, err := strconv.ParseUint(amount, 10, 64)
	if err != nil {
		return "", false
	}
	out := head + "=" + strconv.FormatUint(n<<shift, 10)
	if hasPer {
		out += "/" + per
	}
	return out, true
}
