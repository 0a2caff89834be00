// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"satld/platform/command"
)

// memory is a pf(4) in memory, as far as our calls of pfctl(8) go, behaving as
// was measured on FreeBSD 14.
type memory struct {
	calls   []string
	nat     string // main ruleset
	rules   string
	anchors map[string]*anchor
	states  string
	sysctl  map[string]string
	skip    string
	off     bool
	killed  []string
	fail    func(line string) error
}

type anchor struct {
	text   string
	tables map[string][]string
	stuck  bool // a load was cut short: nothing may touch the Ethernet rules any more
}

func newMemory() *memory {
	return &memory{
		nat: "nat-anchor \"satl/*\" all\nrdr-anchor \"satl/*\" all\n", rules: "anchor \"satl/*\" all\nblock drop in all\n",
		anchors: map[string]*anchor{}, sysctl: map[string]string{},
	}
}

func (m *memory) run(ctx context.Context, c command.Command) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.calls = append(m.calls, c.String())
	if m.fail != nil {
		if err := m.fail(c.String()); err != nil {
			return "", err
		}
	}
	out, said := m.do(c)
	if said != "" {
		return "", &command.Error{Command: c, Status: 1, Stderr: said, Err: errors.New("exit status 1")}
	}
	return out, nil
}

func (m *memory) do(c command.Command) (out, said string) {
	line := c.String()
	if name, ok := strings.CutPrefix(line, "sysctl -n "); ok {
		if v, has := m.sysctl[name]; has {
			return v + "\n", ""
		}
		return "", "sysctl: unknown oid '" + name + "'"
	}
	args := c.Argv[1:]
	if args[0] == "-a" {
		return m.anchor(args[1], args[2:], c.Stdin)
	}
	switch strings.Join(args, " ") {
	case "-s nat":
		return m.nat, ""
	case "-s rules":
		return m.rules, ""
	case "-s info":
		if m.off {
			return "Status: Disabled\n", ""
		}
		return "Status: Enabled for 0 days\n", ""
	case "-s Interfaces -v":
		return "lo0" + m.skip + "\n\tCleared: now\nvtnet0\n", ""
	case "-ss -vv":
		return m.states, ""
	}
	if args[0] == "-k" && args[1] == "id" {
		m.killed = append(m.killed, args[3])
		return "killed 1 states\n", ""
	}
	return "", "pfctl: what is " + line
}

func (m *memory) anchor(name string, args []string, stdin string) (out, said string) {
	a := m.anchors[name]
	load := func(check bool) (string, string) {
		if strings.Contains(stdin, "BAD") {
			return "", "stdin:1: syntax error\npfctl: Syntax error in config file: pf rules not loaded"
		}
		if check {
			return "", ""
		}
		if a == nil {
			a = &anchor{tables: map[string][]string{}}
			m.anchors[name] = a
		}
		a.text = stdin
		for line := range strings.Lines(stdin) { // tables of before stay
			if rest, ok := strings.CutPrefix(line, "table <"); ok {
				table, rest, _ := strings.Cut(rest, ">")
				_, members, _ := strings.Cut(rest, "{")
				a.tables[table] = strings.FieldsFunc(strings.Trim(members, "}\n "), func(c rune) bool { return c == ',' || c == ' ' || c == '}' })
			}
		}
		return "", ""
	}
	only := func(heads ...string) (out string) {
		if a == nil {
			return ""
		}
		for line := range strings.Lines(a.text) {
			if slices.Contains(heads, strings.Fields(line)[0]) {
				out += line
			}
		}
		return out
	}
	switch joined := strings.Join(args, " "); {
	case a != nil && a.stuck && joined == "-f -":
		return "", "pfctl: pfctl_rules"
	case a != nil && a.stuck && joined == "-F all":
		return "", "pfctl: pfctl_clear_eth_rules: Device busy"
	case joined == "-f -", joined == "-N -R -T load -f -":
		return load(false)
	case joined == "-F nat", joined == "-F rules":
		a.text = ""
		return "", ""
	case joined == "-F Tables":
		a.tables = map[string][]string{}
		return "", ""
	case joined == "-nf -":
		return load(true)
	case joined == "-P -s nat":
		return only("nat", "rdr", "no"), ""
	case joined == "-P -s rules":
		return only("block", "pass"), ""
	case joined == "-F all":
		delete(m.anchors, name)
		return "", ""
	case joined == "-s Tables":
		if a != nil {
			for t := range a.tables {
				out += t + "\n"
			}
		}
		return out, ""
	case args[0] == "-t" && args[2] == "-T":
		return m.table(name, args[1], args[3], args[4:])
	}
	return "", "pfctl: what is " + strings.Join(args, " ")
}

func (m *memory) table(anchorName, name, verb string, addrs []string) (out, said string) {
	a := m.anchors[anchorName]
	if a == nil && verb == "replace" {
		a = &anchor{tables: map[string][]string{}}
		m.anchors[anchorName] = a
	}
	if a == nil {
		return "", "pfctl: Unknown error: -1."
	}
	if _, has := a.tables[name]; !has && verb != "replace" {
		return "", "pfctl: Unknown error: -1."
	}
	switch verb {
	case "replace":
		a.tables[name] = slices.Clone(addrs)
	case "show":
		for _, x := range a.tables[name] {
			out += "   " + x + "\n"
		}
	case "kill":
		delete(a.tables, name)
	default:
		return "", "pfctl: what is " + verb
	}
	return out, ""
}

// holds is what the anchors' tables of pools hold, as one text.
func (m *memory) holds(anchorName string) string {
	var out []string
	if a := m.anchors[anchorName]; a != nil {
		for name, addrs := range a.tables {
			if strings.HasPrefix(name, "satl_p") || strings.HasPrefix(name, "satl_c") {
				out = append(out, fmt.Sprintf("%s %v", name, slices.Sorted(slices.Values(addrs))))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
