// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"net/netip"
	"strings"
	"sync"

	"satld/network"
)

type fakeNetworks struct {
	network.Networks
	j *journal // nil: not written

	mu       sync.Mutex
	overlays map[string]network.Network // that this node joined
	places   map[string][]network.Place // asked for, by container
}

// Get knows every network but overlays that were not joined.
func (f *fakeNetworks) Get(id string) (network.Network, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, joined := f.overlays[id]
	return n, joined || !strings.HasPrefix(id, "overlay")
}

func (f *fakeNetworks) Lease(_ context.Context, id string, _ []network.Place) ([]network.Attachment, error) {
	f.j.add("lease")
	return f.Attachments(id), nil
}
func (f *fakeNetworks) Attach(_ context.Context, id string, places []network.Place) (string, []network.Attachment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.places == nil {
		f.places = map[string][]network.Place{}
	}
	f.places[id] = places
	f.j.add("attach %s", id)
	return "/run/netns/x", f.Attachments(id), nil
}
func (*fakeNetworks) List() []network.Network { return nil }
func (*fakeNetworks) Attachments(string) []network.Attachment {
	return []network.Attachment{{NetworkID: "n", Addr: netip.MustParsePrefix("10.0.0.2/24"), Gateway: netip.MustParseAddr("10.0.0.1")}}
}
func (f *fakeNetworks) Detach(_ context.Context, id string) error {
	f.j.add("detach %s", id)
	return nil
}
func (*fakeNetworks) Sweep(context.Context, map[string]bool) error { return nil }
func (f *fakeNetworks) Ensure(_ context.Context, n network.Network) (network.Network, error) {
	if n.VNI != 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.overlays == nil {
			f.overlays = map[string]network.Network{}
		}
		f.overlays[n.ID] = n
	}
	return n, nil
}
