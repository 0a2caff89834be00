// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"

	"github.com/containerd/errdefs"

	"satld/network"
)

// fakeNetworks stubs network.Networks with networks in a slice.
type fakeNetworks struct {
	networks []network.Network
	ensure   func(network.Network) (network.Network, error)
	remove   func(string) error
	attached map[string][]network.Attachment // by container
}

func (f *fakeNetworks) Ensure(_ context.Context, n network.Network) (network.Network, error) {
	if f.ensure != nil {
		return f.ensure(n)
	}
	f.networks = append(f.networks, n)
	return n, nil
}

func (f *fakeNetworks) Remove(_ context.Context, id string) error {
	if f.remove != nil {
		return f.remove(id)
	}
	for i, n := range f.networks {
		if n.ID == id {
			f.networks = append(f.networks[:i], f.networks[i+1:]...)
			return nil
		}
	}
	return errdefs.ErrNotFound.WithMessage("no bridge for network " + id)
}

func (f *fakeNetworks) Get(id string) (network.Network, bool) {
	for _, n := range f.networks {
		if n.ID == id {
			return n, true
		}
	}
	return network.Network{}, false
}

func (f *fakeNetworks) List() []network.Network { return f.networks }

func (f *fakeNetworks) Attach(context.Context, string, []network.Place) (string, []network.Attachment, error) {
	panic("not the API's")
}

func (f *fakeNetworks) Attachments(id string) []network.Attachment { return f.attached[id] }

func (f *fakeNetworks) Detach(context.Context, string) error         { panic("not the API's") }
func (f *fakeNetworks) Sweep(context.Context, map[string]bool) error { panic("not the API's") }
