// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"testing"

	"satld/raft"
)

func TestBelieved(t *testing.T) {
	members := func(ids ...string) (out []raft.Member) {
		for _, id := range ids {
			out = append(out, raft.Member{ID: id, Voter: true})
		}
		return out
	}
	for _, c := range []struct {
		denied  int
		members []raft.Member
		want    bool
	}{
		{1, nil, true},                        // it was never let in
		{1, members("a", "b"), true},          // it was dropped, and knows it
		{1, members("a", "self"), true},       // the only other one
		{1, members("a", "b", "self"), false}, // a cluster of its own, perhaps
		{2, members("a", "b", "self"), true},  // demoted
		{2, members("a", "b", "c", "d", "self"), false},
		{3, members("a", "b", "c", "d", "self"), true},
	} {
		if got := believed(c.denied, c.members, "self"); got != c.want {
			t.Errorf("%d of %v: %t", c.denied, c.members, got)
		}
	}
}
