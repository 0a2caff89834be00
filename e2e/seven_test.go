// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"testing"
	"time"
)

// As many managers as there may be: three of seven are lost at once, their
// leader among them, and the rest goes on; then they are back.
func TestSevenManagers(t *testing.T) {
	t.Parallel()
	s := newSite(t, 7)
	for i := 1; i < 7; i++ {
		s.join(i, "manager")
	}
	s.nodes[0].docker("service", "create", "-q", "-d", "--no-resolve-image", "--name", "web", "--mode", "global", "-p", "8080:80", "app:1")
	// answers are the tasks that a node's port leads to.
	answers := func(i, want int) {
		t.Helper()
		seen := map[string]bool{}
		eventually(t, time.Minute, fmt.Sprintf("node %d leads to %d tasks", i, want), func() bool {
			if name, err := s.fetch(s.addr(i) + ":8080"); err == nil {
				seen[name] = true
			}
			return len(seen) >= want
		})
	}
	for i := range 7 {
		answers(i, 7)
	}
	first := s.leader(-1)
	lost := []int{first, (first + 1) % 7, (first + 2) % 7}
	for _, i := range lost {
		s.nodes[i].kill()
	}
	next := s.leader(first)
	s.nodes[next].docker("service", "update", "-q", "-d", "--label-add", "a=b", "web")
	for _, i := range lost {
		s.nodes[i].start()
	}
	eventually(t, time.Minute, "all are reachable", func() bool {
		reachable := 0
		for _, n := range s.nodes[next].clusterNodes() {
			if n.Status == "Ready" && n.ManagerStatus != "" && n.ManagerStatus != "Unreachable" {
				reachable++
			}
		}
		return reachable == 7
	})
	answers(first, 7)
	if got := len(s.nodes[next].tasks("web")); got != 7 {
		t.Errorf("there were %d tasks, of which none had to be made anew", got)
	}
}
