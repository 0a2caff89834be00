// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"satld/redirect"
)

// TestChangeGoesBeforeAnAudit: a withdrawal does not wait for an audit that
// takes its time, and audits come to an end all the same.
func TestChangeGoesBeforeAnAudit(t *testing.T) {
	f := &fakeFilter{}
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2, serving)))
		f.with(func() { f.looks = 20 * time.Second })
		time.Sleep(auditEvery + time.Second) // in the middle of one
		start := time.Now()
		must(t, tab.Withdraw(t.Context(), "container000002"))
		if took := time.Since(start); took != 0 || f.members() != "" {
			t.Errorf("the withdrawal took %s, members %q", took, f.members())
		}
		_, before := f.count()
		applied, _ := f.count()
		for i := range 120 {
			must(t, tab.Put(t.Context(), task(byte(3+i), serving)))
			time.Sleep(3 * time.Second)
		}
		if _, after := f.count(); after-before < 5 {
			t.Errorf("%d audits in six minutes of changes", after-before)
		}
		if after, _ := f.count(); after-applied > 140 {
			t.Errorf("%d writes for 120 changes", after-applied)
		}
	})
}

// TestDriftIsRepaired: cases/pool.md, pool-3 and pool-6.
func TestDriftIsRepaired(t *testing.T) {
	f := &fakeFilter{}
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2, serving)))
		for _, broken := range []error{nil, errors.New("cannot list")} {
			f.mu.Lock()
			f.rules, f.drifted, f.auditErr = redirect.Rules{}, true, broken
			f.mu.Unlock()
			time.Sleep(auditEvery)
			synctest.Wait()
			if got := f.members(); got != "10.88.0.2" {
				t.Errorf("after a flush and %s: %q", auditEvery, got)
			}
			f.with(func() { f.auditErr = nil })
		}
		// And when no audit would see it, once a minute.
		f.mu.Lock()
		f.rules = redirect.Rules{}
		f.mu.Unlock()
		time.Sleep(reassertEvery)
		synctest.Wait()
		if got := f.members(); got != "10.88.0.2" {
			t.Errorf("not asserted again: %q", got)
		}
		applies, audits := f.count()
		time.Sleep(10 * time.Minute)
		a, b := f.count()
		if a-applies > 11 || b-audits > 121 || b-audits < 100 {
			t.Errorf("in 10 idle minutes %d writes and %d audits", a-applies, b-audits)
		}
	})
}

// TestUnknownStateIsNotConfirmed: when repairing failed nobody knows what the
// filter holds, so a change that alters no rule is not confirmed either.
func TestUnknownStateIsNotConfirmed(t *testing.T) {
	f := &fakeFilter{}
	bubble(t, f, func(t *testing.T, tab *Table) {
		must(t, tab.Put(t.Context(), task(2, serving)))
		f.with(func() { f.drifted, f.applyErr = true, func(int) error { return errors.New("busy") } })
		time.Sleep(auditEvery)
		synctest.Wait()
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := tab.Put(soon, task(2, serving)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
