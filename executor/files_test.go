// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"os"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
)

// A jail with its own network stack has no 127.0.0.1, so nothing is told to
// look for it there.
func TestHostsOfAJail(t *testing.T) {
	for _, jail := range []bool{false, true} {
		n := &Node{cfg: Config{JailFirst: jail, Networks: &fakeNetworks{}}}
		hosts := hostsOf(t, n, Record{ID: "0123456789abcdef", Config: &container.Config{}})
		if got := strings.Contains(hosts, "127.0.0.1\tlocalhost"); got == jail {
			t.Errorf("jail %t:\n%s", jail, hosts)
		}
		for _, line := range []string{"::1\tlocalhost", "10.0.0.9\tdb", "10.0.0.2\t0123456789ab"} {
			if !strings.Contains(hosts, line) {
				t.Errorf("no %q in\n%s", line, hosts)
			}
		}
	}
}

// A container in the host's network has the host's name and knows the names
// that the host knows, as in Docker, unless it is given a name of its own.
func TestNamesInTheHostsNetwork(t *testing.T) {
	own, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Skip("this machine has no /etc/hosts: ", err)
	}
	n := &Node{cfg: Config{Hostname: "vm", Networks: &fakeNetworks{}}}
	r := Record{ID: "0123456789abcdef", Host: true, Config: &container.Config{}}
	if hosts := hostsOf(t, n, r); !strings.HasPrefix(hosts, string(own)) || !strings.Contains(hosts, "\n10.0.0.9\tdb\n") {
		t.Errorf("not this machine's:\n%s", hosts)
	}
	for given, want := range map[string]string{"": "vm", "own": "own"} {
		r.Config.Hostname = given
		n.nameHost(&r)
		if got := r.hostname(); got != want || r.shownConfig().Hostname != want {
			t.Errorf("given %q it is called %s, shown as %s", given, got, r.shownConfig().Hostname)
		}
	}
	r.Config.Hostname, r.Host = "", false
	if n.nameHost(&r); r.hostname() != "0123456789ab" {
		t.Errorf("one in a network of its own is called %s", r.hostname())
	}
}

func hostsOf(t *testing.T, n *Node, r Record) string {
	t.Helper()
	r.HostConfig = &container.HostConfig{ExtraHosts: []string{"db:10.0.0.9"}}
	hosts, err := n.hosts(r)
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}
