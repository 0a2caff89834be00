// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
)

// A jail with its own network stack has no 127.0.0.1, so nothing is told to
// look for it there.
func TestHostsOfAJail(t *testing.T) {
	for _, tc := range []struct{ jail, host, want bool }{
		{false, false, true}, {true, false, false}, {true, true, true},
	} {
		n := &Node{cfg: Config{JailFirst: tc.jail, Networks: &fakeNetworks{}}}
		r := Record{ID: "0123456789abcdef", Host: tc.host, Config: &container.Config{}, HostConfig: &container.HostConfig{ExtraHosts: []string{"db:10.0.0.9"}}}
		hosts := n.hosts(r)
		if got := strings.Contains(hosts, "127.0.0.1\tlocalhost"); got != tc.want {
			t.Errorf("jail %t, host network %t:\n%s", tc.jail, tc.host, hosts)
		}
		for _, line := range []string{"::1\tlocalhost", "10.0.0.9\tdb", "10.0.0.2\t0123456789ab"} {
			if !strings.Contains(hosts, line) {
				t.Errorf("no %q in\n%s", line, hosts)
			}
		}
	}
}
