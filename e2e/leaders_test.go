// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"
)

// unixClient talks HTTP over a socket, with a connection for each request: so
// that nothing is sent twice.
func unixClient(sock string, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", sock)
		},
	}}
}

// electionBound is how soon after a leader's death another must lead: 5 s, but
// where tests share a machine until it starves, leaders are lost for that too.
var electionBound = flag.Duration("election", 20*time.Second, "longest election allowed")

// leader waits for a leader that is not the node given, and returns its node.
func (s *site) leader(not int) (leader int) {
	s.t.Helper()
	leader = -1
	eventually(s.t, time.Minute, "leader", func() bool {
		for i := range s.nodes {
			if i != not && s.leads(i) {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

// leads tells whether a node says, within a second, that it leads.
func (s *site) leads(i int) bool {
	resp, err := unixClient(s.nodes[i].sock, time.Second).Get("http://satl/v1.47/nodes")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var nodes []swarm.Node
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&nodes) == nil &&
		slices.ContainsFunc(nodes, func(n swarm.Node) bool {
			return n.ManagerStatus != nil && n.ManagerStatus.Leader && strings.HasPrefix(n.ManagerStatus.Addr, s.addr(i)+":")
		})
}
