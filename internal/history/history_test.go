// SPDX-License-Identifier: BSD-2-Clause

package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// story writes histories down: each request begins and ends after the one
// before, unless it is said to overlap.
type story struct {
	ops  []Op
	last []Op
	now  time.Duration
}

func (s *story) add(o Op) *story {
	s.now++
	o.Call = s.now
	s.now++
	o.Return = s.now
	if o.Key == "" {
		o.Key = "k"
	}
	s.ops = append(s.ops, o)
	return s
}

// long lets the newest request end only at the very end.
func (s *story) long() *story {
	s.ops[len(s.ops)-1].Return = time.Hour
	return s
}

func (s *story) create(born string, is Outcome) *story {
	return s.add(Op{Kind: Create, Born: born, Outcome: is})
}

func (s *story) swap(born, from, to string, version uint64, is Outcome) *story {
	return s.add(Op{Kind: Swap, Born: born, From: from, To: to, Version: version, Outcome: is})
}

func (s *story) remove(born string, is Outcome) *story {
	return s.add(Op{Kind: Delete, Born: born, Outcome: is})
}

// read is what client 0 reads from manager 0; "" is none.
func (s *story) read(id, born, value string, version uint64) *story {
	o := Op{Kind: Read}
	if born != "" {
		o.Seen = &Seen{ID: id, Born: born, Value: value, Version: version}
	}
	return s.add(o)
}

func (s *story) gone(born string) *story {
	return s.add(Op{Kind: Delete, Born: born, Outcome: Refused, Gone: true})
}

// ends makes the newest read one of the reads at the end.
func (s *story) ends() *story {
	s.last = append(s.last, s.ops[len(s.ops)-1])
	s.ops = s.ops[:len(s.ops)-1]
	return s
}

// Histories that must be accepted, and such as must not: each kind of fault is
// found by the check that is for it, named by words of its error.
func TestChecks(t *testing.T) {
	start := func() *story { return new(story).create("a", Done) }
	for name, c := range map[string]struct {
		s                          *story
		linear, session, accounted string // words of the error; "" is none
	}{
		"plain":                             {s: start().swap("a", "a", "b", 1, Done).swap("a", "b", "c", 2, Done).read("1", "a", "c", 3).ends()},
		"created anew":                      {s: start().remove("a", Done).create("b", Done).read("2", "b", "b", 1).ends()},
		"an unknown write that took place":  {s: start().swap("a", "a", "b", 1, Unknown).read("1", "a", "b", 2).ends()},
		"one that did not":                  {s: start().swap("a", "a", "b", 1, Unknown).read("1", "a", "a", 1).ends()},
		"one that took place late":          {s: start().swap("a", "a", "x", 1, Unknown).read("1", "a", "a", 1).swap("a", "x", "y", 2, Done).read("1", "a", "y", 3).ends()},
		"one that takes place after it all": {s: start().remove("a", Unknown).read("1", "a", "a", 1).ends()},
		"a stale refusal":                   {s: start().swap("a", "a", "b", 1, Refused).read("1", "a", "a", 1).ends()},
		"two at a time, one wins":           {s: start().swap("a", "a", "b", 1, Done).long().swap("a", "a", "c", 1, Refused).read("1", "a", "b", 2).ends()},

		"an acknowledged create is lost": {s: start().read("", "", "", 0).ends(), linear: "no order", accounted: "is lost"},
		"an acknowledged swap is lost":   {s: start().swap("a", "a", "b", 1, Done).read("1", "a", "a", 1).ends(), linear: "no order"},
		"a swap lost under another":      {s: start().swap("a", "a", "b", 1, Done).swap("a", "a", "c", 1, Done).read("1", "a", "c", 3).ends(), linear: "no order", accounted: "swapped twice"},
		"an acknowledged delete is lost": {s: start().remove("a", Done).read("1", "a", "a", 1).ends(), linear: "no order"},
		"a refused create that is there": {s: new(story).create("a", Refused).read("1", "a", "a", 1).ends(), linear: "no order", accounted: "refused write"},
		"a refused swap that took place": {s: start().swap("a", "a", "b", 1, Refused).read("1", "a", "b", 2).ends(), linear: "no order", accounted: "refused write"},
		"a refused swap built upon":      {s: start().swap("a", "a", "b", 1, Refused).swap("a", "b", "c", 2, Done).read("1", "a", "c", 3).ends(), linear: "no order"},
		"a refused delete that was one":  {s: start().remove("a", Refused).create("b", Done).read("2", "b", "b", 1).ends(), linear: "no order", accounted: "is lost"},
		"an unknown write of long ago":   {s: start().swap("a", "a", "x", 1, Unknown).swap("a", "a", "b", 1, Done).read("1", "a", "x", 2).ends(), linear: "no order"},
		"a create done twice":            {s: start().remove("a", Done).read("2", "a", "a", 1).ends(), linear: "no order"},
		"a create that made two":         {s: start().read("1", "a", "a", 1).read("2", "a", "a", 1).ends(), accounted: "two services"},
		"out of nowhere":                 {s: start().read("1", "a", "z", 2).ends(), linear: "no order", accounted: "nobody wrote"},
		"a version with two values":      {s: start().swap("a", "a", "b", 1, Done).read("1", "a", "a", 2).read("1", "a", "b", 2).ends(), accounted: "has the values"},

		"older than read":         {s: start().swap("a", "a", "b", 1, Done).read("1", "a", "b", 2).read("1", "a", "a", 1).read("1", "a", "b", 2).ends(), session: "version 2 was known"},
		"older than written":      {s: start().swap("a", "a", "b", 1, Done).read("1", "a", "a", 1).read("1", "a", "b", 2).ends(), session: "version 2 was known"},
		"not there yet":           {s: start().read("", "", "", 0).read("1", "a", "a", 1).ends(), session: "nobody had asked"},
		"refused as not there":    {s: start().gone("a").read("1", "a", "a", 1).ends(), session: "nobody had asked"},
		"back from the dead":      {s: start().remove("a", Done).read("1", "a", "a", 1).read("", "", "", 0).ends(), session: "is back"},
		"an earlier one":          {s: start().remove("a", Unknown).create("b", Done).read("1", "a", "a", 1).read("2", "b", "b", 1).ends(), session: "is back"},
		"gone, as somebody asked": {s: start().remove("a", Unknown).long().read("1", "a", "a", 1).read("", "", "", 0).read("", "", "", 0).ends()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, x := range []struct {
				check string
				err   error
				want  string
			}{
				{"linearizable", Linearizable(c.s.ops, c.s.last), c.linear},
				{"sessions", Sessions(c.s.ops), c.session},
				{"accounts", Accounts(c.s.ops, c.s.last), c.accounted},
			} {
				if (x.err == nil) != (x.want == "") || x.err != nil && !strings.Contains(x.err.Error(), x.want) {
					t.Errorf("%s: %v, want %q", x.check, x.err, x.want)
				}
			}
		})
	}
}

// simulate lets clients write to a register that is right: each request takes
// place at one moment between its call and its return, or is refused, or has an
// outcome that is not told, up to kinds.
func simulate(t *rapid.T, kinds Outcome) (ops, last []Op) {
	var now time.Duration
	var state register
	var version uint64
	for i := range rapid.IntRange(5, 60).Draw(t, "requests") {
		now += 10
		o := Op{Client: i, Key: "k", Born: state.born, From: state.value, Version: version,
			Call: now - time.Duration(rapid.IntRange(0, 40).Draw(t, "earlier")), Return: now + time.Duration(rapid.IntRange(1, 40).Draw(t, "later"))}
		value := fmt.Sprint("v", i)
		switch {
		case state == register{}:
			o.Kind, o.Born = Create, value
		case rapid.IntRange(0, 5).Draw(t, "kind") == 0:
			o.Kind = Delete
		default:
			o.Kind, o.To = Swap, value
		}
		o.Outcome = Outcome(rapid.IntRange(0, int(kinds)).Draw(t, "outcome"))
		if o.Outcome == Done || o.Outcome == Unknown && rapid.Bool().Draw(t, "took place") {
			_, next := step(state, o, Done)
			state, version = next.(register), version+1
		}
		ops = append(ops, o)
	}
	end := Op{Kind: Read, Key: "k", Call: now + 100, Return: now + 101}
	if (state != register{}) {
		end.Seen = &Seen{ID: state.born, Born: state.born, Value: state.value, Version: version}
	}
	return ops, []Op{end}
}

// A right register is always accepted; but not with its last write called
// refused, without which it cannot have come to its end.
func TestRightRegister(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := Linearizable(simulate(t, Unknown)); err != nil {
			t.Fatal(err)
		}
		ops, last := simulate(t, Refused)
		if err := Linearizable(ops, last); err != nil {
			t.Fatal(err)
		}
		for i := len(ops) - 1; i >= 0; i-- {
			if ops[i].Outcome == Done {
				ops[i].Outcome = Refused
				if Linearizable(ops, last) == nil {
					t.Fatalf("accepted with this told as refused: %s", ops[i])
				}
				return
			}
		}
	})
}
