// SPDX-License-Identifier: BSD-2-Clause

package cluster

import "testing"

// TestMayReplace: the leader lets a service's tasks be replaced in turn, where
// it asks for that (cases/budget.md, budget-7).
func TestMayReplace(t *testing.T) {
	n := startNode(t, stateDir(t), newFake(), nil)
	spec := replicas("web", 2)
	spec.Annotations.Labels = map[string]string{"satl.health.replace-parallelism": "1"}
	inTurn, atOnce := create(t, n, spec), create(t, n, replicas("db", 2))
	ask := func(what, task string, want bool) {
		t.Helper()
		if may, err := n.MayReplace(t.Context(), task); err != nil || may != want {
			t.Errorf("%s: %t, %v", what, may, err)
		}
	}
	web, db := awaitLive(t, n, inTurn.ID, 2), awaitLive(t, n, atOnce.ID, 2)
	ask("the first", web[0].ID, true)
	ask("the first again", web[0].ID, true)
	ask("the second meanwhile", web[1].ID, false)
	ask("of a service without a limit", db[0].ID, true)
	ask("and another", db[1].ID, true)
	ask("a task that is nobody's any more", "nobody", true)
}
