// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// rdr is the anchor of pools: this daemon's own, by its state directory.
func (r *ring) rdr() string { r.t.Helper(); return r.anchor("rdr") }

func (r *ring) anchor(kind string) string {
	r.t.Helper()
	for _, a := range r.World().PF.AnchorNames() {
		if strings.HasPrefix(a, "satl/"+kind) {
			return a
		}
	}
	r.t.Fatalf("no anchor satl/%s among %v", kind, r.World().PF.AnchorNames())
	return ""
}

// dump is all that pf holds for us: rules and tables, as pfctl prints them.
func (r *ring) dump() string {
	r.t.Helper()
	var b strings.Builder
	show := func(args ...string) {
		out, err := r.Run("pfctl", args...)
		if err != nil {
			r.t.Fatal(err)
		}
		b.WriteString(out)
	}
	pf := r.World().PF
	for _, a := range pf.AnchorNames() {
		if !strings.HasPrefix(a, "satl/") {
			continue
		}
		fmt.Fprintf(&b, "# %s\n", a)
		show("-a", a, "-Ps", "nat")
		show("-a", a, "-Ps", "rules")
		for _, t := range pf.TablesOf(a) {
			fmt.Fprintf(&b, "<%s>\n", t)
			show("-a", a, "-t", t, "-T", "show")
		}
	}
	return b.String()
}

// pool is what the table of a published port holds.
func (r *ring) pool(table string) []string {
	r.t.Helper()
	addrs, ok := r.Table(r.rdr(), table)
	if !ok {
		r.t.Fatalf("no table %s; there are %v", table, r.World().PF.TablesOf(r.rdr()))
	}
	return addrs
}

// awaitPool waits until a table holds exactly these, in any order.
func (r *ring) awaitPool(table string, addrs []string) {
	r.t.Helper()
	want := slices.Clone(addrs)
	sortAddrs(want)
	var have []string
	deadline := time.Now().Add(60 * time.Second)
	for {
		have, _ = r.Table(r.rdr(), table)
		if slices.Equal(have, want) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("table %s holds %v, want %v", table, have, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
