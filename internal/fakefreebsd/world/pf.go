// SPDX-License-Identifier: BSD-2-Clause

package world

import (
	"fmt"
	"slices"
	"strings"
)

// PF is the packet filter.
type PF struct {
	// Main is the text of the host's own ruleset, Anchors those of the others
	// by their full names, as they were loaded.
	Main    string
	Anchors map[string]string
	// Tables are by the anchor's name ("" for the main ruleset), a slash that
	// anchors never begin with, and the table's: see TableKey.
	Tables  map[string][]string
	Persist map[string]bool // by table key
	States  []State
	NextID  int
	Rotates map[string]int // round-robin, by table key
}

// State is one of the two entries of a redirected flow, or the one of another.
type State struct {
	ID       string
	Iface    string
	Proto    string
	In       bool   // made by an arriving packet
	Client   string // address:port
	Dialled  string
	Backend  string // "" when nothing was translated
	Packets  int
	HalfOpen bool
}

// Redirected tells whether it is the entry of a flow that names the published
// address.
func (s State) Redirected() bool { return s.In && s.Backend != "" && s.Backend != s.Dialled }

// TableKey is where PF.Tables has a table.
func TableKey(anchor, table string) string { return anchor + "//" + table }

// TablesOf names the tables of an anchor, in order.
func (p *PF) TablesOf(anchor string) (names []string) {
	for key := range p.Tables {
		if name, ok := strings.CutPrefix(key, anchor+"//"); ok && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Sweep drops the tables of an anchor that were not to persist and that no rule
// of those names.
func (p *PF) Sweep(anchor string, used []string) {
	for _, name := range p.TablesOf(anchor) {
		if key := TableKey(anchor, name); !p.Persist[key] && !slices.Contains(used, name) {
			delete(p.Tables, key)
			delete(p.Persist, key)
		}
	}
}

// AnchorExists tells whether the kernel has the anchor: it goes when neither
// rules nor tables are left in it.
func (p *PF) AnchorExists(anchor string) bool {
	if anchor == "" {
		return true
	}
	if _, ok := p.Anchors[anchor]; ok || len(p.TablesOf(anchor)) > 0 {
		return true
	}
	return slices.ContainsFunc(p.AnchorNames(), func(n string) bool { return strings.HasPrefix(n, anchor+"/") })
}

// AnchorNames are all anchors with rules or tables, in order.
func (p *PF) AnchorNames() (names []string) {
	for n := range p.Anchors {
		names = append(names, n)
	}
	for key := range p.Tables {
		if n, _, _ := strings.Cut(key, "//"); n != "" {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AddState gives a state its ID and keeps it.
func (p *PF) AddState(s State) State {
	p.NextID++
	s.ID = fmt.Sprintf("a48e0c6b%08x", p.NextID)
	p.States = append(p.States, s)
	return s
}

// KillStates drops the states that match and returns how many did.
func (p *PF) KillStates(match func(State) bool) int {
	before := len(p.States)
	p.States = slices.DeleteFunc(p.States, match)
	return before - len(p.States)
}
