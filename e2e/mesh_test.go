// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// answers asks a published port n times and counts who answers.
func (s *site) answers(addr string, n int) map[string]int {
	seen := map[string]int{}
	for range n {
		body, err := s.fetch(addr)
		if err != nil {
			body = "error: " + err.Error()
		}
		seen[body]++
	}
	return seen
}

// A published port answers on every manager and reaches serving tasks on any
// node; one that fails is left out everywhere within moments, and names reach
// across nodes.
func TestTrafficAcrossNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	a, b, c := s.nodes[0], s.nodes[1], s.nodes[2]
	s.join(1, "manager")
	s.join(2, "worker")
	a.docker("network", "create", "-d", "overlay", "--attachable", "back")
	a.docker("service", "create", "-q", "--name", "web", "--mode", "global", "-p", "8080:80", "--network", "back",
		"--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "500ms", "--health-timeout", "10s", "--health-retries", "1", "--stop-grace-period", "1s",
		"--update-monitor", "500ms", "app:1", "/app")
	for i := range 3 {
		addr := s.addr(i) + ":8080"
		var seen map[string]int
		eventually(t, 15*time.Second, fmt.Sprintf("all tasks answer on node %d", i), func() bool {
			seen = s.answers(addr, 9)
			return len(seen) == 3 && !strings.Contains(fmt.Sprint(seen), "error")
		})
		t.Logf("%s: %v", addr, seen)
	}
	// A task on the worker fails: out of the pools of the managers.
	container := c.docker("ps", "-q", "--filter", "name=web")
	c.docker("exec", container, "touch", "/tmp/bad")
	broken := time.Now()
	for i := range 2 {
		eventually(t, 30*time.Second, "left out", func() bool { return s.answers(s.addr(i)+":8080", 6)[container] == 0 })
		t.Logf("out of the pool of node %d %v after it broke", i, time.Since(broken))
	}
	eventually(t, 60*time.Second, "replaced", func() bool { return len(s.answers(s.addr(0)+":8080", 9)) == 3 })

	// Names, over the overlay network: from a task on one node to all.
	a.docker("service", "create", "-q", "--name", "client", "--mode", "global", "--network", "back", "app:1", "sh", "-c", "echo here is $HOSTNAME; sleep 1000")
	var said string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last answer by name and what was reached:\n%s", said)
		}
	})
	for i, d := range []*daemon{a, b, c} {
		client := d.docker("ps", "-q", "--filter", "name=client")
		// Each of the three is reached from here, in the network that both are
		// in; one that was replaced meanwhile is asked for anew.
		eventually(t, 30*time.Second, fmt.Sprintf("node %d reaches three addresses by name", i), func() bool {
			out, _, _ := d.try("exec", client, "nslookup", "tasks.web")
			_, answer, _ := strings.Cut(out, "Name:") // what is before it are the server's
			said = out
			reached := 0
			for _, word := range strings.Fields(answer) {
				addr, err := netip.ParseAddr(word)
				if err != nil {
					continue
				}
				out, stderr, err := d.try("exec", client, "/app", "-probe", "http://"+addr.String()+"/")
				if said += out + stderr; err == nil {
					reached++
				}
			}
			return reached == 3
		})
	}
	// What they print is read from any manager.
	for _, d := range []*daemon{a, b, c} {
		says := "here is " + d.docker("ps", "-q", "--filter", "name=client")
		eventually(t, 10*time.Second, says, func() bool {
			out, _, err := b.try("service", "logs", "--raw", "client")
			return err == nil && strings.Contains(out, says)
		})
	}

	// A container that is no task is in the network too, of a worker as well.
	c.docker("run", "-d", "--name", "own", "--network", "back", "app:1", "/app")
	at, _ := path(c.inspect("", "own"), "NetworkSettings", "Networks", "back", "IPAddress").(string)
	eventually(t, 10*time.Second, "it is reached from another node", func() bool {
		_, _, err := a.try("run", "--rm", "--network", "back", "app:1", "/app", "-probe", "http://"+at+"/")
		return err == nil
	})
	c.docker("run", "--rm", "--network", "back", "app:1", "/app", "-probe", "http://web/health")
	a.refused("in use", "network", "rm", "back")
	c.docker("rm", "-f", "own")

	a.docker("service", "rm", "web", "client")
	eventually(t, 20*time.Second, "gone", func() bool { return c.docker("ps", "-aq") == "" })
	eventually(t, 10*time.Second, "the network is free", func() bool { _, _, err := a.try("network", "rm", "back"); return err == nil })
}
