// SPDX-License-Identifier: BSD-2-Clause

package traffic

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"satld/redirect"
)

// fakeFilter is a packet filter in memory.
type fakeFilter struct {
	mu       sync.Mutex
	rules    redirect.Rules
	applies  int
	audits   int
	cuts     []redirect.Flow
	order    []string // "apply", "cut"
	drifted  bool
	takes    time.Duration
	looks    time.Duration     // what an audit takes
	applyErr func(n int) error // of the n-th call, from 1
	auditErr error
	cutErr   func(n int) error
}

func (f *fakeFilter) Apply(ctx context.Context, r redirect.Rules) error {
	if f.takes > 0 {
		select {
		case <-time.After(f.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applies++
	if f.applyErr != nil {
		if err := f.applyErr(f.applies); err != nil {
			return err
		}
	}
	f.order = append(f.order, "apply")
	f.rules, f.drifted = r, false
	return nil
}

func (f *fakeFilter) Audit(ctx context.Context) (bool, error) {
	f.mu.Lock()
	looks := f.looks
	f.mu.Unlock()
	if looks > 0 {
		select {
		case <-time.After(looks):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.audits++
	return !f.drifted, f.auditErr
}

func (f *fakeFilter) Cut(_ context.Context, flows []redirect.Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cutErr != nil {
		if err := f.cutErr(len(f.cuts)); err != nil {
			return err
		}
	}
	f.order = append(f.order, "cut")
	f.cuts = append(f.cuts, flows...)
	return nil
}

func (f *fakeFilter) Clear(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = redirect.Rules{}
	return nil
}

// with changes or reads the fake while the loop may use it.
func (f *fakeFilter) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// members of 8080/tcp as the filter has them.
func (f *fakeFilter) members() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	in, exists := poolOf(f.rules, redirect.MakeKey("tcp", netip.Addr{}, 8080))
	if !exists {
		return "none"
	}
	var s []string
	for _, m := range in {
		s = append(s, m.Addr().String())
	}
	return strings.Join(s, " ")
}

func (f *fakeFilter) count() (applies, audits int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applies, f.audits
}

// bubble runs a Table and its loop in virtual time, past its settling.
func bubble(t *testing.T, f *fakeFilter, body func(t *testing.T, tab *Table), change ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Redirector: f}
		for _, c := range change {
			c(&cfg)
		}
		tab := New(cfg)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tab.Run(ctx) }()
		tab.Settled()
		synctest.Wait()
		body(t, tab)
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
