// SPDX-License-Identifier: BSD-2-Clause

package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is the state of one key; zero is that there is no such service.
type register struct{ born, value string }

// step is the whole specification of a key. An Unknown write takes place where
// it can and is nothing otherwise; that it never did is to take it for the
// last of all, after everything that could tell.
func step(state, input, output any) (bool, any) {
	now, op := state.(register), input.(Op)
	next, fits := now, false
	switch op.Kind {
	case Create:
		next, fits = register{op.Born, op.Born}, now == register{}
	case Swap:
		next, fits = register{op.Born, op.To}, now == register{op.Born, op.From}
	case Delete:
		next, fits = register{}, now.born == op.Born && op.Born != ""
	case Read:
		want := register{}
		if op.Seen != nil {
			want = register{op.Seen.Born, op.Seen.Value}
		}
		return now == want, now
	}
	switch output.(Outcome) {
	case Done:
		return fits, next
	case Unknown:
		if fits {
			return true, next
		}
	}
	return true, now // refused, or unknown and without effect
}

var model = porcupine.Model{Init: func() any { return register{} }, Step: step}

// bound is how long one key may take: it takes milliseconds.
const bound = time.Minute

// Linearizable tells whether the writes, and the reads in last, can be put in
// an order that explains all answers, key by key. Reads among ops are left out:
// managers answer them from their own copy, which may be behind; see Sessions.
// The reads in last are such that each had to show all writes answered before.
func Linearizable(ops, last []Op) error {
	byKey := map[string][]Op{}
	for _, o := range ops {
		if o.Kind != Read {
			byKey[o.Key] = append(byKey[o.Key], o)
		}
	}
	for _, o := range last {
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		list := byKey[key]
		all := make([]porcupine.Operation, len(list))
		for i, o := range list {
			all[i] = porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Call), Output: o.Outcome, Return: int64(o.Return)}
			if o.Outcome == Unknown {
				all[i].Return = math.MaxInt64
			}
		}
		switch porcupine.CheckOperationsTimeout(model, all, bound) {
		case porcupine.Unknown:
			errs = append(errs, fmt.Errorf("%s: no verdict on %d operations within %v", key, len(all), bound))
		case porcupine.Illegal:
			errs = append(errs, fmt.Errorf("no order of the writes of %s explains their answers and the end:%s", key, listed(list)))
		}
	}
	return errors.Join(errs...)
}

// listed is a history for people, in the order of the requests.
func listed(list []Op) string {
	slices.SortFunc(list, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	for _, o := range list {
		fmt.Fprintf(&text, "\n\t%s", o)
	}
	return text.String()
}
