// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

func instructed(task *api.Task, ready string) *api.Task {
	task = task.Copy()
	task.Annotations.Labels = map[string]string{}
	if ready != "" {
		task.Annotations.Labels[labelReady] = ready
	}
	return task
}

// Out of traffic though healthy, not failing open, over a restart of the
// daemon; lifted by "true" and by the word's removal.
func TestOperatorTakesATaskOut(t *testing.T) {
	for _, lifted := range []string{"true", ""} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer func() { b.close() }()
			task, c := running(t, b, everySecond(3), map[string]string{labelFailOpen: "true"})
			id := taskContainerID("task1")
			if err := c.Update(t.Context(), instructed(task, "false")); err != nil {
				t.Fatal(err)
			}
			out := func(when string) {
				t.Helper()
				if m := b.traffic.member(id); m.Serving || m.Unhealthy || !m.Process {
					t.Errorf("%s: %+v", when, m)
				}
			}
			out("told")
			if text := said(t, c); !strings.HasPrefix(text, "withdrawn: not ready") {
				t.Errorf("said %q", text)
			}
			time.Sleep(5 * time.Second) // it passes all the time
			out("after passes")
			if s := mustGet(t, b, "web"); s.Health.Status.String() != "healthy" {
				t.Errorf("health %v", s.Health.Status)
			}
			b.close()
			b.open()
			out("adopted")
			time.Sleep(5 * time.Second)
			out("adopted, after passes")
			c = controllerOf(t, b, instructed(task, "false"))
			if text := said(t, c); text == "" {
				t.Error("nothing is said of it after the restart")
			}
			if err := c.Update(t.Context(), instructed(task, lifted)); err != nil {
				t.Fatal(err)
			}
			if !b.traffic.serving(id) || said(t, c) != "" {
				t.Errorf("%q: not let in again", lifted)
			}
		})
	}
}

// A task that starts under the word becomes RUNNING and stays out; what the
// node was not told by a message it is told by the task itself.
func TestTaskMadeUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		task := instructed(webTask(everySecond(3)), "false")
		c := prepared(t, b, task)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := taskContainerID("task1")
		if b.traffic.serving(id) {
			t.Error("it serves")
		}
		controllerOf(t, b, instructed(task, "true"))
		synctest.Wait()
		if !b.traffic.serving(id) {
			t.Error("the word was lifted, and it does not serve")
		}
	})
}

func nodeWith(ready string) *api.Node {
	n := &api.Node{ID: "node1"}
	if ready != "" {
		n.Spec.Annotations.Labels = map[string]string{labelReady: ready}
	}
	return n
}

// A node's word takes all its tasks out, those that come later too, and none
// of what was started there by hand.
func TestOperatorTakesANodeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer func() { b.close() }()
		running(t, b, nil, nil)
		byHand := created(t, b, nil)
		if err := b.node.Start(t.Context(), byHand); err != nil {
			t.Fatal(err)
		}
		if err := b.node.Configure(t.Context(), nodeWith("false")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		second := webTask(nil)
		second.ID, second.Slot = "task2", 2
		c := prepared(t, b, second)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		serving := func() [3]bool {
			return [3]bool{b.traffic.serving(taskContainerID("task1")), b.traffic.serving(taskContainerID("task2")), b.traffic.serving(byHand)}
		}
		if got := serving(); got != [3]bool{false, false, true} {
			t.Errorf("serving %v", got)
		}
		if text := said(t, c); !strings.Contains(text, "node") {
			t.Errorf("said %q", text)
		}
		b.close()
		b.open()
		if got := serving(); got != [3]bool{false, false, true} {
			t.Errorf("after a restart of the daemon: serving %v", got)
		}
		if err := b.node.Configure(t.Context(), nodeWith("")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := serving(); got != [3]bool{true, true, true} {
			t.Errorf("lifted: serving %v", got)
		}
	})
}

// Labels of the service that change while its tasks run are heeded by them.
func TestServiceLabelsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		task, c := running(t, b, nil, nil)
		changed := task.Copy()
		changed.ServiceAnnotations.Labels = map[string]string{labelDrain: "7s", labelFailOpen: "true"}
		if err := c.Update(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		if !b.traffic.member(taskContainerID("task1")).FailOpen {
			t.Error("fail-open is not heeded")
		}
		begun := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(begun) != 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}
