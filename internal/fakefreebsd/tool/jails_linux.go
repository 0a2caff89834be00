// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"satld/internal/fakefreebsd/world"
)

// jls(8): `[-dhnNqsv] [-j jail] [parameter ...]` and --libxo json. -d adds
// dying jails to the live ones.
func jls(c *call) int {
	var params []string
	var which string
	flags := map[byte]bool{}
	asJSON := false
	for i := 0; i < len(c.args); i++ {
		switch a := c.args[i]; {
		case strings.HasPrefix(a, "--libxo"):
			if a == "--libxo" {
				i++
			}
			asJSON = true
		case a == "-j" && i+1 < len(c.args):
			i++
			which = c.args[i]
		case strings.HasPrefix(a, "-"):
			for k := 1; k < len(a); k++ {
				if !strings.ContainsRune("dhnNqsv", rune(a[k])) {
					fmt.Fprintf(os.Stderr, "jls: illegal option -- %c\nusage: jls [-dhNnqv] [-j jail] [param ...]\n", a[k])
					return 1
				}
				flags[a[k]] = true
			}
		default:
			params = append(params, a)
		}
	}
	exit := 0
	c.update(func(w *world.World) {
		var found []*world.Jail
		for _, j := range w.Jails {
			if (which == "" || j.Name == which || strconv.Itoa(j.JID) == which) && (!j.Dying || flags['d']) {
				found = append(found, j)
			}
		}
		if which != "" && len(found) == 0 {
			exit = c.fail(1, "jail %q not found", which)
			return
		}
		exit = c.showJails(found, params, flags['h'], flags['n'], asJSON)
	})
	return exit
}

func (c *call) showJails(found []*world.Jail, params []string, head, named, asJSON bool) int {
	table := len(params) == 0
	if table {
		params = []string{"jid", "ip4.addr", "host.hostname", "path"}
	}
	var rows [][]string
	for _, j := range found {
		var row []string
		for _, p := range params {
			v, ok := parameter(j, p)
			if !ok {
				return c.fail(1, "unknown parameter: %s", p)
			}
			row = append(row, v)
		}
		rows = append(rows, row)
	}
	switch {
	case asJSON:
		var jails []string
		for _, row := range rows {
			var fields []string
			for i, p := range params {
				fields = append(fields, fmt.Sprintf("%q:%q", p, row[i]))
			}
			jails = append(jails, "{"+strings.Join(fields, ",")+"}")
		}
		c.printf(`{"__version": "2", "jail-information": {"jail": [%s]}}`+"\n", strings.Join(jails, ","))
	case table:
		c.printf("   JID  IP Address      Hostname                      Path\n")
		for _, row := range rows {
			c.printf("%6s  %-15.15s %-29.29s %.74s\n", row[0], strings.Trim(row[1], `"`), row[2], row[3])
		}
	default:
		if head {
			c.printf("%s\n", strings.Join(params, " "))
		}
		for _, row := range rows {
			for i := range row {
				if row[i] == "" {
					row[i] = `""`
				}
				if named {
					row[i] = params[i] + "=" + row[i]
				}
			}
			c.printf("%s\n", strings.Join(row, " "))
		}
	}
	return 0
}

func parameter(j *world.Jail, name string) (string, bool) {
	switch name {
	case "jid":
		return strconv.Itoa(j.JID), true
	case "name":
		return j.Name, true
	case "path":
		return j.Path, true
	case "dying":
		return strconv.FormatBool(j.Dying), true
	case "host.hostname":
		return j.Hostname, true
	case "persist":
		return "true", true
	case "vnet":
		if j.VNET {
			return "new", true
		}
		return "inherit", true
	case "ip4.addr", "sysvmsg", "sysvsem", "sysvshm":
		for _, p := range j.Params {
			if k, v, ok := strings.Cut(p, "="); ok && k == name {
				return v, true
			}
		}
		return "", true
	}
	if strings.HasPrefix(name, "allow.") {
		return strconv.FormatBool(slices.Contains(j.Params, name)), true
	}
	return "", false
}

// jail(8): -r and -R remove; nothing else is called for.
func jail(c *call) int {
	if len(c.args) < 2 || c.args[0] != "-r" && c.args[0] != "-R" {
		return c.fail(1, "the fake does only jail -r NAME ...")
	}
	exit := 0
	for _, name := range c.args[1:] {
		c.update(func(w *world.World) {
			j := w.LiveJail(name)
			if j == nil {
				exit = c.fail(1, "%q not found", name)
				return
			}
			if err := c.remove(w, j); err != nil {
				exit = c.fail(1, "jail_remove(%s): %v", name, err)
			}
		})
	}
	return exit
}

// jexec(8): `JAIL COMMAND ...`. The command comes from the jail's root; where
// it is one of the tools that look at the VNET, that one's stand-in is run.
func jexec(c *call) int {
	if len(c.args) < 2 {
		return c.fail(1, "usage: jexec [-l] [-d working-directory] [-u username | -U username] jail [command ...]")
	}
	name, argv := c.args[0], c.args[1:]
	w, err := world.Read(c.dir)
	if err != nil {
		return c.fail(1, "%v", err)
	}
	j := w.LiveJail(name)
	if j == nil {
		return c.fail(1, "jail %q not found", name)
	}
	tool := filepath.Base(argv[0])
	if program := map[string]func(*call) int{"ifconfig": ifconfig, "route": route, "sysctl": sysctl}[tool]; program != nil {
		if !exists(destination(j.Path, argv[0])) {
			return c.fail(1, "execvp: %s: %s", argv[0], words(syscall.ENOENT))
		}
		inner := *c
		inner.name, inner.args = tool, argv[1:]
		inner.inside = j.Name
		exit := program(&inner)
		c.printf("%s", inner.out.String())
		return exit
	}
	in := into(j, &specs.Process{Args: argv, Cwd: "/", Env: os.Environ()})
	if err := in.attach(); err != nil {
		return c.fail(1, "jail_attach(%s): %v", name, err)
	}
	path, err := in.find()
	if err != nil {
		return c.fail(1, "execvp: %s: %s", argv[0], words(syscall.ENOENT))
	}
	return c.fail(1, "execvp: %v", in.become(path))
}

// ps(1): `-ax` or `-J JAIL`, and `-o` with jid, pid, ppid, pgid, sid, stat and
// comm. With nobody to show it exits 1. A process that ended and was not waited
// for is shown without a jail: this system does not tell its root any more.
func ps(c *call) int {
	which, columns, head := "", []string(nil), true
	for i := 0; i < len(c.args); i++ {
		switch a := c.args[i]; {
		case a == "-J" && i+1 < len(c.args):
			i++
			which = c.args[i]
		case a == "-o" && i+1 < len(c.args):
			i++
			for name := range strings.SplitSeq(c.args[i], ",") {
				column, _, blank := strings.Cut(name, "=")
				head = head && !blank
				columns = append(columns, column)
			}
		case strings.HasPrefix(a, "-"): // everybody is shown anyway
		default:
			return c.fail(1, "the fake does only ps [-ax] [-J JAIL] [-o COLUMNS]")
		}
	}
	if columns == nil {
		columns = []string{"pid", "tt", "stat", "time", "command"}
	}
	w, err := world.Read(c.dir)
	if err != nil {
		return c.fail(1, "%v", err)
	}
	if which != "" && w.LiveJail(which) == nil {
		return c.fail(1, "invalid jail ID: %s", which)
	}
	if head {
		c.printf("%s\n", strings.ToUpper(strings.Join(columns, " ")))
	}
	shown := false
	for _, pid := range allProcesses() {
		j := jailOf(w, pid)
		if which != "" && (j == nil || j != w.LiveJail(which)) {
			continue
		}
		var row []string
		for _, column := range columns {
			row = append(row, fact(pid, column, j))
		}
		if !slices.Contains(row, "") { // it ended meanwhile
			shown = true
			c.printf("%s\n", strings.Join(row, " "))
		}
	}
	if !shown {
		fmt.Print(c.out.String())
		c.out.Reset()
		return 1
	}
	return 0
}

// fact is one column of a process, empty when there is none any more.
func fact(pid int, column string, j *world.Jail) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	head, rest, _ := strings.Cut(string(data), ") ")
	_, comm, _ := strings.Cut(head, "(")
	fields := strings.Fields(rest)
	switch column {
	case "pid":
		return strconv.Itoa(pid)
	case "jid":
		if j == nil {
			return "0"
		}
		return strconv.Itoa(j.JID)
	case "comm", "command", "args", "ucomm":
		return comm
	case "ppid":
		return fields[1]
	case "pgid":
		return fields[2]
	case "sid":
		return fields[3]
	case "state", "stat":
		return fields[0]
	}
	return "-"
}
