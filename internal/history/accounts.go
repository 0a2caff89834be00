// SPDX-License-Identifier: BSD-2-Clause

package history

import (
	"errors"
	"fmt"
)

// Accounts tells whether all that was read, at any time and at the end, was
// written and written once: each creation made one service, no refused write is
// seen, no version has two values, no value was swapped for two others, and
// each service acknowledged is there at the end unless somebody asked to delete
// it.
func Accounts(ops, last []Op) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	wrote := map[string]Op{}   // by the value
	swapped := map[string]Op{} // acknowledged, by the value before
	deleted := map[string]bool{}
	for _, o := range ops {
		switch o.Kind {
		case Create:
			wrote[o.Born] = o
		case Swap:
			wrote[o.To] = o
			if o.Outcome != Done {
				continue
			}
			if other, twice := swapped[o.From]; twice {
				bad("one value was swapped twice:\n\t%s\n\t%s", other, o)
			}
			swapped[o.From] = o
		case Delete:
			deleted[o.Born] = deleted[o.Born] || o.Outcome != Refused
		}
	}
	type version struct {
		id      string
		version uint64
	}
	ids, values := map[string]string{}, map[version]string{}
	ends := map[string]bool{}
	see := func(o Op) {
		if o.Kind != Read || o.Seen == nil {
			return
		}
		x := *o.Seen
		if id, ok := ids[x.Born]; ok && id != x.ID {
			bad("one creation made two services, %s and %s: %s", id, x.ID, o)
		}
		ids[x.Born] = x.ID
		v := version{x.ID, x.Version}
		if value, ok := values[v]; ok && value != x.Value {
			bad("version %d has the values %s and %s: %s", x.Version, value, x.Value, o)
		}
		values[v] = x.Value
		if w, ok := wrote[x.Value]; !ok {
			bad("nobody wrote this: %s", o)
		} else if w.Outcome == Refused {
			bad("a refused write is seen:\n\t%s\n\t%s", w, o)
		} else if w.Born != x.Born || w.Key != o.Key {
			bad("a write of another service is seen:\n\t%s\n\t%s", w, o)
		}
	}
	for _, o := range ops {
		see(o)
	}
	for _, o := range last {
		see(o)
		if o.Seen != nil {
			ends[o.Seen.Born] = true
		}
	}
	for _, o := range ops {
		if o.Kind == Create && o.Outcome == Done && !deleted[o.Born] && !ends[o.Born] {
			bad("an acknowledged service is lost: %s", o)
		}
	}
	return errors.Join(errs...)
}
