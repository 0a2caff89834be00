// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"satld/internal/fakefreebsd/pfconf"
	"satld/internal/fakefreebsd/world"
)

// pfArgs are pfctl's options as getopt(3) reads them.
type pfArgs struct {
	anchor, file, table, verb, show, flush string
	kill                                   []string
	dry, numbers, quiet                    bool
	verbose                                int
	rest                                   []string
}

// pfctl(8): -f (with -n and -a), -T, -s, -F, -k, -e, -d and the flags that go
// with them.
func pfctl(c *call) int {
	a, exit := c.readPF()
	if exit != 0 {
		return exit
	}
	w, err := world.Read(c.dir)
	if err != nil {
		return c.fail(1, "%v", err)
	}
	if w.Knobs.NoPF {
		return c.fail(1, "Failed to open netlink: No such file or directory")
	}
	if a.file != "" {
		return c.load(a)
	}
	if a.verbose > 0 {
		fmt.Fprint(os.Stderr, "No ALTQ support in kernel\nALTQ related functions disabled\n")
	}
	c.update(func(w *world.World) {
		f := filter{c, w, &w.PF, a}
		switch {
		case a.verb != "":
			exit = f.tables()
		case a.flush != "":
			exit = f.flush()
		case len(a.kill) > 0:
			exit = f.kill()
		case a.show != "":
			exit = f.show()
		}
	})
	return exit
}

func (c *call) readPF() (a pfArgs, exit int) {
	const takes = "aDfFikKopsStTx"
	for i := 0; i < len(c.args); i++ {
		arg := c.args[i]
		if !strings.HasPrefix(arg, "-") || len(arg) == 1 {
			a.rest = append(a.rest, c.args[i:]...)
			break
		}
		for k := 1; k < len(arg); k++ {
			value := ""
			if letter := arg[k]; strings.IndexByte(takes, letter) >= 0 {
				if value = arg[k+1:]; value == "" {
					if i++; i == len(c.args) {
						return a, c.fail(1, "option requires an argument -- %c", letter)
					}
					value = c.args[i]
				}
			}
			switch arg[k] {
			case 'a':
				a.anchor = value
			case 'f':
				a.file = value
			case 't':
				a.table = value
			case 'T':
				a.verb = value
			case 's':
				a.show = value
			case 'F':
				a.flush = value
			case 'k':
				a.kill = append(a.kill, value)
			case 'n':
				a.dry = true
			case 'P':
				a.numbers = true
			case 'q':
				a.quiet = true
			case 'v':
				a.verbose++
			case 'e', 'd', 'A', 'N', 'O', 'R', 'r', 'm', 'M', 'g', 'h', 'i':
			default:
				fmt.Fprintf(os.Stderr, "pfctl: illegal option -- %c\nusage: pfctl [-AdeghMmNnOPqRrSvz] ...\n", arg[k])
				return a, 1
			}
			if value != "" {
				break
			}
		}
	}
	return a, 0
}

// say is xprintf: what was done, on stderr.
func (a pfArgs) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(os.Stderr, format+".\n", args...)
	}
}

// load is -f: the whole anchor in one step, or nothing.
func (c *call) load(a pfArgs) int {
	text := c.stdin
	if a.file != "-" {
		b, err := os.ReadFile(a.file)
		if err != nil {
			return c.fail(1, "%s: %s", a.file, words(err))
		}
		text = string(b)
	}
	rules, err := pfconf.Parse(text)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\npfctl: Syntax error in config file: pf rules not loaded\n", err)
		return 1
	}
	if a.dry {
		return 0
	}
	c.update(func(w *world.World) { install(&w.PF, a.anchor, text, rules) })
	return 0
}

// install is the commit of a transaction. Declared tables get what was
// declared; others stay when they were to persist, or while a rule uses them.
func install(pf *world.PF, anchor, text string, rules pfconf.Ruleset) {
	if anchor == "" {
		pf.Main = text
	} else if len(rules.Rules) == 0 {
		delete(pf.Anchors, anchor)
	} else {
		pf.Anchors[anchor] = text
	}
	for _, t := range rules.Tables {
		key := world.TableKey(anchor, t.Name)
		pf.Tables[key] = slices.Clone(t.Addrs)
		if pf.Tables[key] == nil {
			pf.Tables[key] = []string{}
		}
		sortAddrs(pf.Tables[key])
		pf.Rotates[key] = 0
		pf.Persist[key] = t.Persist
	}
	pf.Sweep(anchor, rules.Uses())
}

func sortAddrs(list []string) {
	slices.SortFunc(list, func(x, y string) int {
		a, _, _ := strings.Cut(x, "/")
		b, _, _ := strings.Cut(y, "/")
		p, err1 := netip.ParseAddr(a)
		q, err2 := netip.ParseAddr(b)
		if err1 != nil || err2 != nil {
			return strings.Compare(x, y)
		}
		return p.Compare(q)
	})
}

// filter is one look at the packet filter.
type filter struct {
	*call
	w  *world.World
	pf *world.PF
	a  pfArgs
}

func (f filter) rules(anchor string) pfconf.Ruleset {
	text := f.pf.Main
	if anchor != "" {
		text = f.pf.Anchors[anchor]
	}
	rules, err := pfconf.Parse(text)
	if err != nil {
		f.w.Wrong("the fake's own ruleset of anchor %q: %v", anchor, err)
	}
	return rules
}

// tables is -T.
func (f filter) tables() int {
	a := f.a
	if len(a.table) > pfconf.MaxTable || a.table == "" {
		fmt.Fprintln(os.Stderr, "usage: pfctl [-AdeghMmNnOPqRrSvz] ...")
		return 1
	}
	key := world.TableKey(a.anchor, a.table)
	old, there := f.pf.Tables[key]
	if !there && a.verb != "add" && a.verb != "replace" {
		return f.fail(1, "Table does not exist.")
	}
	for _, addr := range a.rest {
		if _, err := netip.ParseAddr(addr); err != nil {
			if _, err := netip.ParsePrefix(addr); err != nil {
				return f.fail(1, "cannot decode %s: no such address", addr)
			}
		}
	}
	if !there {
		f.pf.Persist[key] = true
		a.say("1 table created")
	}
	switch a.verb {
	case "show":
		for _, addr := range old {
			if !strings.HasPrefix(addr, "!") {
				addr = " " + addr
			}
			f.printf("  %s\n", addr)
		}
		return 0
	case "kill":
		delete(f.pf.Tables, key)
		delete(f.pf.Persist, key)
		a.say("1 table deleted")
		return 0
	case "flush":
		f.pf.Tables[key] = []string{}
		a.say("%d addresses deleted", len(old))
		return 0
	case "add", "delete", "replace", "test":
	default:
		return f.fail(0, "pfctl_table: unknown command '%s'", a.verb)
	}
	next := slices.Clone(a.rest)
	switch a.verb {
	case "add":
		next = append(slices.Clone(old), next...)
	case "delete":
		next = slices.DeleteFunc(slices.Clone(old), func(o string) bool { return slices.Contains(a.rest, o) })
	case "test":
		for _, addr := range a.rest {
			if !slices.Contains(old, addr) {
				return 2
			}
		}
		return 0
	}
	sortAddrs(next)
	next = slices.Compact(next)
	if next == nil {
		next = []string{}
	}
	added, deleted := missing(next, old), missing(old, next)
	f.pf.Tables[key] = next
	switch {
	case a.verb == "replace" && added+deleted == 0:
		a.say("no changes")
	default:
		if added > 0 {
			a.say("%d addresses added", added)
		}
		if deleted > 0 {
			a.say("%d addresses deleted", deleted)
		}
	}
	return 0
}

func missing(in, from []string) (n int) {
	for _, a := range in {
		if !slices.Contains(from, a) {
			n++
		}
	}
	return n
}

// kill is -k: `-k id -k ID`, or hosts. By hosts only the entry whose own
// addresses match goes: of a redirected flow by the member's address the
// outbound one, and by the published address the flows of every member.
func (f filter) kill() int {
	k := f.a.kill
	n := 0
	switch {
	case k[0] == "id" && len(k) == 2:
		id, _, _ := strings.Cut(k[1], "/")
		n = f.pf.KillStates(func(s world.State) bool { return s.ID == id })
	case k[0] == "id" || k[0] == "label" || k[0] == "gateway":
		return f.fail(1, "no %s specified", k[0])
	default:
		match := func(which, endpoint string) bool {
			addr, err := netip.ParseAddrPort(endpoint)
			p, perr := netip.ParsePrefix(which)
			if perr != nil {
				a, aerr := netip.ParseAddr(which)
				if aerr != nil {
					return false
				}
				p = netip.PrefixFrom(a, a.BitLen())
			}
			return err == nil && p.Contains(addr.Addr())
		}
		n = f.pf.KillStates(func(s world.State) bool {
			return match(k[0], s.Client) && (len(k) == 1 || match(k[1], s.Dialled))
		})
	}
	f.a.quietly("killed %d states", n)
	return 0
}

// quietly is what -k says, which has no full stop.
func (a pfArgs) quietly(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// flush is -F, of one anchor or of the main ruleset.
func (f filter) flush() int {
	what := ""
	for _, m := range []string{"nat", "rules", "all", "states", "Tables", "Sources", "info", "Reset"} {
		if strings.HasPrefix(m, f.a.flush) {
			what = m
			break
		}
	}
	if what == "" {
		fmt.Fprintf(os.Stderr, "pfctl: Unknown flush modifier '%s'\n", f.a.flush)
		return 1
	}
	anchor := f.a.anchor
	keep := func(kinds func(pfconf.Kind) bool) {
		var text strings.Builder
		rules := f.rules(anchor)
		for _, r := range rules.Rules {
			if kinds(r.Kind) {
				text.WriteString(r.Print(true) + "\n")
			}
		}
		left, err := pfconf.Parse(text.String())
		if err != nil {
			f.w.Wrong("the fake cannot read what it printed of anchor %q: %v", anchor, err)
		}
		install(f.pf, anchor, text.String(), left)
	}
	switch what {
	case "all":
		keep(func(pfconf.Kind) bool { return false })
		f.a.quietly("rules cleared")
		f.a.quietly("nat cleared")
		f.dropTables(anchor)
		if anchor == "" {
			f.a.quietly("%d states cleared", f.pf.KillStates(func(world.State) bool { return true }))
		}
	case "rules":
		keep(pfconf.Kind.Translation)
		f.a.quietly("rules cleared")
	case "nat":
		keep(func(k pfconf.Kind) bool { return !k.Translation() })
		f.a.quietly("nat cleared")
	case "Tables":
		f.dropTables(anchor)
	case "states":
		f.a.quietly("%d states cleared", f.pf.KillStates(func(world.State) bool { return true }))
	}
	return 0
}

func (f filter) dropTables(anchor string) {
	names := f.pf.TablesOf(anchor)
	for _, t := range names {
		delete(f.pf.Tables, world.TableKey(anchor, t))
		delete(f.pf.Persist, world.TableKey(anchor, t))
	}
	f.a.say("%d tables deleted", len(names))
}
