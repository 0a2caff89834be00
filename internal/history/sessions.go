// SPDX-License-Identifier: BSD-2-Clause

package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Sessions tells whether a client that keeps to one manager ever read what is
// older than what it had read or written there: a version before the one it
// knows, a service that it knows to be gone, or none where it knows of one that
// nobody had asked to delete.
func Sessions(ops []Op) error {
	ops = slices.Clone(ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	deleted := map[string]time.Duration{} // when first asked for
	for _, o := range ops {
		if _, ok := deleted[o.Born]; o.Kind == Delete && o.Outcome != Refused && !ok {
			deleted[o.Born] = o.Call
		}
	}
	type at struct {
		client, manager int
		key             string
	}
	sessions := map[at]*session{}
	var errs []error
	for _, o := range ops {
		k := at{o.Client, o.Manager, o.Key}
		if sessions[k] == nil {
			sessions[k] = &session{gone: map[string]bool{}, deleted: deleted}
		}
		if err := sessions[k].take(o); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, o))
		}
	}
	return errors.Join(errs...)
}

// session is what a client knows of a key from one manager.
type session struct {
	born    string // the service that it knows of; "" is none
	version uint64 // at least
	created time.Time
	gone    map[string]bool
	deleted map[string]time.Duration
}

func (s *session) take(o Op) error {
	switch {
	case o.Gone && o.Born == s.born && o.Kind != Create:
		return s.miss(o)
	case o.Kind == Read && o.Outcome == Done:
		return s.read(o)
	case o.Outcome != Done:
	case o.Kind == Create:
		s.know(o.Born, 0)
	case o.Kind == Swap:
		s.know(o.Born, o.Version+1)
	case o.Kind == Delete:
		s.gone[o.Born] = true
		if s.born == o.Born {
			s.born = ""
		}
	}
	return nil
}

// know takes in a write that took place here: the service of before, if it was
// another, is gone.
func (s *session) know(born string, version uint64) {
	if s.born != born {
		if s.born != "" {
			s.gone[s.born] = true
		}
		s.born, s.version, s.created = born, 0, time.Time{}
	}
	s.version = max(s.version, version)
}

func (s *session) read(o Op) error {
	if o.Seen == nil {
		return s.miss(o)
	}
	x := *o.Seen
	switch {
	case s.gone[x.Born]:
		return fmt.Errorf("a service is back that was gone")
	case x.Born == s.born && x.Version < s.version:
		return fmt.Errorf("version %d was known", s.version)
	case x.Born != s.born && s.born != "":
		if x.Created.Before(s.created) {
			return fmt.Errorf("service %s was known, which is younger", s.born)
		}
		if err := s.miss(o); err != nil {
			return err
		}
	}
	s.born, s.version, s.created = x.Born, x.Version, x.Created
	return nil
}

// miss is that the service known is there no more.
func (s *session) miss(o Op) error {
	born := s.born
	if born == "" {
		return nil
	}
	s.born = ""
	s.gone[born] = true
	if asked, ok := s.deleted[born]; !ok || asked > o.Return {
		return fmt.Errorf("service %s was known, and nobody had asked to delete it", born)
	}
	return nil
}
