// SPDX-License-Identifier: BSD-2-Clause

package pf

import (
	"slices"
	"strings"

	"satld/redirect"
)

// anchors are where a daemon writes.
type anchors struct{ nat, rdr string }

// call is one call of pfctl(8).
type call struct {
	args  []string
	stdin string
}

// state is what the anchors hold, or are to hold.
type state struct {
	rules redirect.Rules
	at    place
}

// calls bring the anchors from what was written last (nil: unknown) to what is
// wanted: a whole anchor where its text changed, which it does with the set of
// published ports and networks only; else the tables whose contents did.
func (a anchors) calls(old *state, now state) (out []call) {
	if old == nil || natText(old.rules, old.at) != natText(now.rules, now.at) {
		out = append(out, a.load(a.nat, natText(now.rules, now.at)))
	}
	if old == nil || rdrText(old.rules, old.at, false) != rdrText(now.rules, now.at, false) {
		return append(out, a.load(a.rdr, rdrText(now.rules, now.at, true)))
	}
	before := make(map[string][]string)
	for _, t := range tablesOf(old.rules) {
		before[t.name] = t.holds
	}
	for _, p := range poolsOf(now.rules) {
		members, closed := table{p.table(), p.addrs}, table{p.closed(), p.shut()}
		// A rule is on only while its table has somebody.
		order := []table{members, closed}
		if len(p.addrs) == 0 {
			order = []table{closed, members}
		}
		for _, t := range order {
			if !slices.Equal(before[t.name], t.holds) {
				out = append(out, a.replace(t))
			}
		}
	}
	return out
}

func (a anchors) load(anchor, text string) call {
	return call{args: []string{"-a", anchor, "-f", "-"}, stdin: text}
}

// replace makes a table hold exactly its addresses, none of them too.
func (a anchors) replace(t table) call {
	return call{args: append([]string{"-a", a.rdr, "-t", t.name, "-T", "replace"}, t.holds...)}
}

// checks are the calls that only look at the syntax of what is wanted.
func (a anchors) checks(now state) []call {
	return []call{
		{args: []string{"-a", a.nat, "-nf", "-"}, stdin: natText(now.rules, now.at)},
		{args: []string{"-a", a.rdr, "-nf", "-"}, stdin: rdrText(now.rules, now.at, true)},
	}
}

// leftovers are the tables of a listing (`pfctl -s Tables`) that no pool of the
// rules has. Loading an anchor leaves the persistent tables of the text before
// in place, with their addresses.
func leftovers(listing string, now redirect.Rules) (names []string) {
	wanted := make(map[string]bool)
	for _, t := range tablesOf(now) {
		wanted[t.name] = true
	}
	for _, name := range strings.Fields(listing) {
		pool := strings.HasPrefix(name, "satl_p") || strings.HasPrefix(name, "satl_c")
		if pool && !wanted[name] {
			names = append(names, name)
		}
	}
	return names
}
