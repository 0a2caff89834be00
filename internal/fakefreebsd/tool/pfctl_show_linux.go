// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// show is -s: modifiers may be cut short.
func (f filter) show() int {
	what := ""
	for _, m := range []string{"nat", "queue", "rules", "Anchors", "Sources", "states", "info", "Running", "labels", "timeouts", "memory", "Tables", "Interfaces"} {
		if strings.HasPrefix(m, f.a.show) {
			what = m
			break
		}
	}
	switch what {
	case "nat", "rules", "labels":
		return f.showRules(what)
	case "Anchors":
		return f.showAnchors()
	case "Tables":
		for _, name := range f.pf.TablesOf(f.a.anchor) {
			f.printf("%s\n", name)
		}
	case "states":
		for _, s := range f.pf.States {
			f.printf("%s", stateText(s, f.a.verbose))
		}
	case "Interfaces":
		f.showInterfaces()
	case "info", "Running":
		f.printf("Status: Enabled for 0 days 01:00:00           Debug: Urgent\n\nState Table                          Total             Rate\n  current entries          %15d\n", len(f.pf.States))
	case "":
		fmt.Fprintf(os.Stderr, "pfctl: Unknown show modifier '%s'\n", f.a.show)
		return 1
	}
	return 0
}

func (f filter) showRules(what string) int {
	if !f.pf.AnchorExists(f.a.anchor) {
		if f.w.Knobs.Release >= 15 {
			return f.fail(1, "Anchor does not exist.")
		}
		return f.fail(0, "DIOCGETRULES: Invalid argument")
	}
	for _, r := range f.rules(f.a.anchor).Rules {
		if r.Kind.Translation() == (what == "nat") && what != "labels" {
			f.printf("%s\n", r.Print(f.a.numbers))
		}
	}
	return 0
}

func (f filter) showInterfaces() {
	skipped := f.rules("").Skip
	names := []string{"all"}
	for _, l := range f.w.Links {
		if l.Jail == "" {
			names = append(append(names, l.Groups...), l.Name)
		}
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		if slices.Contains(skipped, n) && f.a.verbose > 0 {
			n += " (skip)"
		}
		f.printf("%s\n", n)
	}
}

func (f filter) showAnchors() int {
	prefix := ""
	if f.a.anchor != "" {
		prefix = f.a.anchor + "/"
		if !f.pf.AnchorExists(f.a.anchor) {
			fmt.Fprintf(os.Stderr, "Anchor '%s' not found.\n", f.a.anchor)
			return 0
		}
	}
	var shown []string
	for _, name := range f.pf.AnchorNames() {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || rest == "" {
			continue
		}
		child, _, _ := strings.Cut(rest, "/")
		if f.a.verbose > 0 && child != rest {
			shown = append(shown, prefix+child)
			child = rest
		}
		shown = append(shown, prefix+child)
	}
	for _, s := range slices.Compact(shown) {
		f.printf("  %s\n", s)
	}
	return 0
}

// stateText is an entry as -ss prints it, with one or two -v more.
func stateText(s world.State, verbose int) string {
	head := fmt.Sprintf("all %s ", s.Proto)
	switch {
	case s.In && s.Backend != "":
		head += fmt.Sprintf("%s (%s) <- %s", s.Backend, s.Dialled, s.Client)
	case s.In:
		head += fmt.Sprintf("%s <- %s", s.Dialled, s.Client)
	default:
		head += fmt.Sprintf("%s -> %s", s.Client, s.Dialled)
	}
	levels := map[bool]string{true: "ESTABLISHED:ESTABLISHED", false: "CLOSED:SYN_SENT"}[!s.HalfOpen]
	if s.Proto == "udp" {
		levels = map[bool]string{true: "MULTIPLE:MULTIPLE", false: "NO_TRAFFIC:SINGLE"}[s.Packets > 1]
	}
	if !s.In {
		left, right, _ := strings.Cut(levels, ":")
		levels = right + ":" + left
	}
	text := head + "       " + levels + "\n"
	if verbose > 0 {
		if s.Proto == "tcp" {
			text += "   [0 + 65536] wscale 6  [0 + 65536] wscale 6\n"
		}
		text += fmt.Sprintf("   age 00:00:01, expires in 00:00:59, %d:%d pkts, %d:%d bytes, rule 0\n", s.Packets, s.Packets, 60*s.Packets, 60*s.Packets)
	}
	if verbose > 1 {
		text += fmt.Sprintf("   id: %s creatorid: 5242698a\n", s.ID)
	}
	return text
}
