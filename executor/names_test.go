// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"slices"
	"testing"

	"github.com/moby/swarmkit/v2/api"

	"satld/network"
)

func TestNetworksOfAName(t *testing.T) {
	networks := map[string]*api.Network{
		"front": {ID: "front"}, "back": {ID: "back"},
		"host": {ID: "host", Spec: api.NetworkSpec{DriverConfig: &api.Driver{Name: "host"}}},
	}
	in := func(ids ...string) (out []*api.NetworkAttachmentConfig) {
		for _, id := range ids {
			out = append(out, &api.NetworkAttachmentConfig{Target: id})
		}
		return out
	}
	for _, c := range []struct {
		name string
		spec api.ServiceSpec
		want []string
	}{
		{"none", api.ServiceSpec{}, []string{network.DefaultID}},
		{"two", api.ServiceSpec{Task: api.TaskSpec{Networks: in("front", "back")}}, []string{"front", "back"}},
		{"where older clients put it", api.ServiceSpec{Networks: in("front")}, []string{"front"}},
		{"the host's", api.ServiceSpec{Task: api.TaskSpec{Networks: in("host")}}, nil},
	} {
		got := NamedIn(&c.spec, func(id string) *api.Network { return networks[id] })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
