// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

func TestExecRegistryForgets(t *testing.T) {
	var g execRegistry
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	long := g.add("c", container.ExecOptions{Cmd: []string{"long"}}, nil, now)
	if err := g.begin(long, now); err != nil {
		t.Fatal(err)
	}
	first := g.add("c", container.ExecOptions{Cmd: []string{"x"}}, nil, now.Add(time.Second))
	for i := range 3 * execMax {
		id := g.add("c", container.ExecOptions{Cmd: []string{"x"}}, nil, now.Add(time.Minute))
		if i%2 == 0 {
			if err := g.begin(id, now.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			g.end(id, 0, now.Add(time.Minute))
		}
	}
	if n := len(g.all); n != execMax+1 {
		t.Errorf("%d kept", n)
	}
	if _, ok := g.get(first); ok {
		t.Error("the oldest is kept")
	}
	g.add("c", container.ExecOptions{Cmd: []string{"x"}}, nil, now.Add(time.Hour))
	if n := len(g.all); n != 2 {
		t.Errorf("%d kept after an hour", n)
	}
	if e, ok := g.get(long); !ok || e.state != execRunning {
		t.Error("a running one was forgotten")
	}
	// Of a forgotten one nothing comes back.
	g.runs(first, &fakeProcess{})
	g.end(first, 1, now)
	if _, ok := g.get(first); ok {
		t.Error("it came back")
	}
}
