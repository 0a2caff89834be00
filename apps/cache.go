// SPDX-License-Identifier: BSD-2-Clause

package apps

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// Every is how often the verdicts are computed anew.
	Every = 5 * time.Second
	// Stale is how old a verdict may get before it is none: a check that
	// hangs must not leave the last one standing.
	Stale = 4 * Every
)

// Options are what a Cache works with.
type Options struct {
	// List gives all containers of this node, with what their status files
	// say; it is called once in Every.
	List func(ctx context.Context) []Container
	// Declared gives the applications that services of the cluster make up,
	// and whether they opt in; nil where nobody knows.
	Declared func() map[string]Declared
	Logger   *slog.Logger // nil is slog.Default()
}

// Cache holds the verdict on each application of this node. Run is its one
// goroutine; readers never wait for it.
type Cache struct {
	Options
	now atomic.Pointer[verdicts]
}

// verdicts is what one pass found.
type verdicts struct {
	at  time.Time
	all map[string]Verdict
}

// New makes a cache that knows nothing yet: until the first pass of Run every
// application is not healthy.
func New(o Options) *Cache {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &Cache{Options: o}
}

// Run computes the verdicts at once and then every Every, until ctx is done.
func (c *Cache) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		c.refresh(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// refresh computes every verdict anew. It is as of now, the begin of the pass.
func (c *Cache) refresh(ctx context.Context, now time.Time) {
	containers := c.List(ctx)
	declared := make(map[string]Declared)
	for _, each := range containers {
		for _, name := range names(each.Labels) {
			declared[name] = Unheard
		}
	}
	if c.Declared != nil {
		maps.Copy(declared, c.Declared())
	}
	next := &verdicts{at: now, all: make(map[string]Verdict, len(declared))}
	for name, d := range declared {
		next.all[name] = Judge(name, d, containers, now)
	}
	c.tell(c.now.Swap(next), next)
}

// tell logs each change of a verdict that gates, once.
func (c *Cache) tell(was, is *verdicts) {
	for _, name := range slices.Sorted(maps.Keys(is.all)) {
		v := is.all[name]
		known := false
		before := Verdict{}
		if was != nil {
			before, known = was.all[name]
		}
		if !v.Gated || known && before.Healthy == v.Healthy && before.Rule == v.Rule {
			continue
		}
		level := slog.LevelInfo
		if !v.Healthy {
			level = slog.LevelWarn
		}
		c.Logger.Log(context.Background(), level, "health of an application changed", "app", name, "healthy", v.Healthy, "rule", v.Rule)
	}
}

// Get is the verdict on an application, as of the last pass. One that nobody
// has heard of is not healthy: it has no containers here.
func (c *Cache) Get(name string) Verdict {
	found, ok := c.fresh()
	if !ok {
		return notChecked(name, age(found))
	}
	if v, ok := found.all[name]; ok {
		return v
	}
	return Judge(name, Unheard, nil, found.at)
}

// All are the verdicts on all applications that are known, by name.
func (c *Cache) All() []Verdict {
	found, ok := c.fresh()
	if found == nil {
		return []Verdict{}
	}
	all := make([]Verdict, 0, len(found.all))
	for _, name := range slices.Sorted(maps.Keys(found.all)) {
		if !ok {
			all = append(all, notChecked(name, age(found)))
			continue
		}
		all = append(all, found.all[name])
	}
	return all
}

// fresh is what the last pass found, nil before the first, and whether that
// still stands.
func (c *Cache) fresh() (found *verdicts, ok bool) {
	found = c.now.Load()
	return found, found != nil && time.Since(found.at) <= Stale
}

// age is how long ago a pass began, 0 where there was none.
func age(v *verdicts) time.Duration {
	if v == nil {
		return 0
	}
	return time.Since(v.at)
}
