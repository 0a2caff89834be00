// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// faults puts rules into a node's namespace that lose packets that come in;
// no rules take them away.
func (s *site) faults(i int, rules ...string) {
	s.t.Helper()
	script := "add table inet faults\ndelete table inet faults\n"
	if len(rules) > 0 {
		script += "table inet faults {\nchain in {\ntype filter hook input priority -300;\n" + strings.Join(rules, "\n") + "\n}\n}\n"
	}
	cmd := exec.Command("ip", "netns", "exec", s.host(i), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("faults of node %d: %v: %s", i, err, out)
	}
}

// deaf makes a node hear nothing of others.
func (s *site) deaf(i int, to ...int) {
	s.t.Helper()
	var rules []string
	for _, j := range to {
		rules = append(rules, "ip saddr "+s.addr(j)+" drop")
	}
	s.faults(i, rules...)
}

// Five managers. The leader and one more are parted from the other three: those
// go on, these only read. Then the leader hears nothing of one of the others,
// and then a fifth of all packets is lost: the cluster goes on.
func TestPartition(t *testing.T) {
	t.Parallel()
	s := newSite(t, 5)
	for i := 1; i < 5; i++ {
		s.join(i, "manager")
	}
	old := s.leader(-1)
	s.nodes[old].watched("web", "--replicas", "5")
	eventually(t, 60*time.Second, "a task on each", func() bool { return len(s.nodes[old].placement("web")) == 5 })
	minority, majority := []int{old, (old + 1) % 5}, []int{(old + 2) % 5, (old + 3) % 5, (old + 4) % 5}
	for _, i := range minority {
		eventually(t, 20*time.Second, "known to all", func() bool { return len(s.nodes[i].running("web")) == 5 })
	}
	held := map[int]container.InspectResponse{}
	for _, i := range minority {
		held[i] = s.nodes[i].held("web")
	}

	parted := time.Now()
	for _, i := range minority {
		s.deaf(i, majority...)
	}
	for _, j := range majority {
		s.deaf(j, minority...)
	}
	var now int
	eventually(t, 30*time.Second, "another leads", func() bool {
		for _, j := range majority {
			if s.leads(j) {
				now = j
				return true
			}
		}
		return false
	})
	t.Logf("a new leader %v after the partition", time.Since(parted))
	s.nodes[now].docker("service", "create", "-d", "--name", "meanwhile", "--replicas", "0", "app:1", "/app")
	for _, i := range minority {
		s.nodes[i].leaderless()
		s.nodes[i].onlyReads("web")
		s.nodes[i].stillProbed(held[i])
	}
	for i := range s.nodes {
		s.faults(i)
	}
	for i, d := range s.nodes {
		eventually(t, 60*time.Second, fmt.Sprintf("node %d has what was written", i), func() bool {
			out, _, err := d.try("service", "ls", "--format", "{{.Name}}")
			return err == nil && strings.Contains(out, "meanwhile") && !strings.Contains(out, "no\n")
		})
	}

	// One pair cannot speak, and every packet is lost one time in five.
	now = s.leader(-1)
	s.deaf(now, (now+1)%5)
	write := func(what string, through int, replicas int) {
		t.Helper()
		eventually(t, 60*time.Second, what, func() bool {
			_, _, err := s.nodes[through].try("service", "scale", "-d", fmt.Sprintf("meanwhile=%d", replicas))
			return err == nil
		})
	}
	write("a change while the leader does not hear one", now, 1)
	write("a change through one that the leader hears", (now+2)%5, 2)
	for i := range s.nodes {
		s.faults(i, "ip saddr 10.77.0.0/24 numgen random mod 5 < 1 drop")
	}
	for i := range s.nodes {
		write(fmt.Sprintf("a change through node %d", i), i, i)
	}
	for i := range s.nodes {
		s.faults(i)
	}
	for i, d := range s.nodes {
		eventually(t, 60*time.Second, fmt.Sprintf("node %d has the last change", i), func() bool {
			out, _, err := d.try("service", "ls", "--format", "{{.Name}} {{.Replicas}}")
			return err == nil && strings.Contains(out, "meanwhile 4/4")
		})
	}
}
