// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"slices"
	"testing"

	"github.com/moby/swarmkit/v2/api"
)

func TestNamed(t *testing.T) {
	a, b := api.Peer{NodeID: "a", Addr: "192.0.2.1:2377"}, api.Peer{NodeID: "b", Addr: "192.0.2.2:2377"}
	joined := api.Peer{Addr: a.Addr}
	for _, c := range []struct{ in, want []api.Peer }{
		{[]api.Peer{joined}, []api.Peer{joined}},
		{[]api.Peer{joined, b}, []api.Peer{joined, b}},
		{[]api.Peer{joined, a, b}, []api.Peer{a, b}},
		{[]api.Peer{a, joined}, []api.Peer{a}},
		{nil, nil},
	} {
		if got := named(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
}
