// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"slices"
	"strings"
	"time"

	"satld/internal/fakefreebsd/world"
)

// Call is one call of a tool: its command line, what it read (pfctl -f -) and
// how it ended; world.Running where it has not, or became what it runs.
type Call = world.Call

// Fault is trouble that a test asks for; see Fail for the usual kinds.
type Fault = world.Fault

// Calls is the log of command lines, in the order in which they began.
func (f *Fake) Calls() []Call {
	f.t.Helper()
	calls, err := world.Calls(f.state)
	if err != nil {
		f.t.Fatal(err)
	}
	return calls
}

// CallsOf are the command lines that contain a text, joined by spaces.
func (f *Fake) CallsOf(match string) (lines []string) {
	f.t.Helper()
	for _, c := range f.Calls() {
		if line := c.String(); strings.Contains(line, match) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Add asks for a fault. Faults are looked at in the order they came.
func (f *Fake) Add(fault Fault) {
	f.t.Helper()
	f.update(func(w *world.World) { w.Faults = append(w.Faults, &fault) })
}

// Fail lets the next calls whose command line contains match exit 1 without
// having done anything; times 0 is all of them until Clear.
func (f *Fake) Fail(match string, times int) {
	f.t.Helper()
	f.Add(Fault{Match: match, Times: times, Exit: 1, Stderr: "the test says no\n"})
}

// Hang lets them wait before they do what they are called for.
func (f *Fake) Hang(match string, times int, d time.Duration) {
	f.t.Helper()
	f.Add(Fault{Match: match, Times: times, Hang: d})
}

// Lie lets them print something and exit 0 without having done anything:
// `ocijail list` that says null, a state that is not so.
func (f *Fake) Lie(match string, times int, stdout string) {
	f.t.Helper()
	f.Add(Fault{Match: match, Times: times, Stdout: stdout})
}

// Clear ends all faults; hits is how many calls each had hit.
func (f *Fake) Clear() (hits []int) {
	f.t.Helper()
	f.update(func(w *world.World) {
		for _, fault := range w.Faults {
			hits = append(hits, fault.Hits)
		}
		w.Faults = nil
	})
	return hits
}

// Hits is how many calls the faults of a match have hit.
func (f *Fake) Hits(match string) (n int) {
	f.t.Helper()
	for _, fault := range f.read().Faults {
		if fault.Match == match {
			n += fault.Hits
		}
	}
	return n
}

// Knobs sets ways in which hosts differ.
func (f *Fake) Knobs(change func(*world.Knobs)) {
	f.t.Helper()
	f.update(func(w *world.World) { change(&w.Knobs) })
}

// Dying lets every jail that is removed from now on stay dying for d; negative
// is until Bury.
func (f *Fake) Dying(d time.Duration) {
	f.t.Helper()
	f.Knobs(func(k *world.Knobs) { k.Dying = d })
}

// Bury lets dying jails be gone: the named ones, or all.
func (f *Fake) Bury(names ...string) {
	f.t.Helper()
	f.update(func(w *world.World) {
		for _, j := range w.Jails {
			if j.Dying && (len(names) == 0 || slices.Contains(names, j.Name)) {
				j.GoneAt = time.Unix(1, 0) // whatever is called next finds it gone
			}
		}
	})
}

// RealNetwork lets interfaces be real; see the package.
func (f *Fake) RealNetwork() {
	f.t.Helper()
	f.update(func(w *world.World) { w.RealNetwork = true })
}

// Sysctl sets an oid, a tunable too; "" takes it away.
func (f *Fake) Sysctl(oid, value string) {
	f.t.Helper()
	f.update(func(w *world.World) {
		if w.Sysctls[oid] = value; value == "" {
			delete(w.Sysctls, oid)
		}
	})
}

// Module loads a kernel module, as linux64.
func (f *Fake) Module(name string) {
	f.t.Helper()
	f.update(func(w *world.World) { w.Modules = append(w.Modules, name) })
}

// World is a copy of everything the host remembers.
func (f *Fake) World() *world.World {
	f.t.Helper()
	return f.read()
}

// Change does to the host what no tool does.
func (f *Fake) Change(change func(*world.World)) {
	f.t.Helper()
	f.update(change)
}

// Forgive takes what Wrongs has, so that the test's end does not fail by it.
func (f *Fake) Forgive() (wrongs []string) {
	f.t.Helper()
	f.update(func(w *world.World) { wrongs, w.Wrongs = w.Wrongs, nil })
	return wrongs
}

// Jails names the jails, the dying ones apart.
func (f *Fake) Jails() (live, dying []string) {
	f.t.Helper()
	for _, j := range f.read().Jails {
		switch {
		case !j.Dying:
			live = append(live, j.Name)
		case j.GoneAt.IsZero() || j.GoneAt.After(time.Now()):
			dying = append(dying, j.Name)
		}
	}
	return live, dying
}

// Table is what a table of an anchor holds ("" for the main ruleset); ok is
// false when there is none.
func (f *Fake) Table(anchor, table string) (addrs []string, ok bool) {
	f.t.Helper()
	addrs, ok = f.read().PF.Tables[world.TableKey(anchor, table)]
	return addrs, ok
}

// Leftovers are what a host that was cleaned up must not have: jails, mounts,
// interfaces, anchors, tables, limits and datasets that were not there when it
// was fresh.
func (f *Fake) Leftovers() (left []string) {
	f.t.Helper()
	w := f.read()
	live, dying := f.Jails()
	for _, j := range live {
		left = append(left, "jail "+j)
	}
	for _, j := range dying {
		left = append(left, "dying jail "+j)
	}
	for _, m := range w.Mounts {
		if m.Real && m.Type != "zfs" {
			left = append(left, "mount "+m.On)
		}
	}
	for _, l := range w.Links {
		if l.Kind == "bridge" || l.Kind == "epair" || l.Kind == "vxlan" {
			left = append(left, "interface "+l.Name)
		}
	}
	for _, a := range w.PF.AnchorNames() {
		left = append(left, "anchor "+a)
	}
	for _, r := range w.Rctl {
		left = append(left, "limit "+r)
	}
	return left
}

func (f *Fake) update(change func(*world.World)) {
	f.t.Helper()
	err := world.Update(f.state, func(w *world.World) error {
		change(w)
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *Fake) read() *world.World {
	f.t.Helper()
	w, err := world.Read(f.state)
	if err != nil {
		f.t.Fatal(err)
	}
	return w
}
