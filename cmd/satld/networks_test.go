// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"satld/mesh"
	"satld/network"
	"satld/traffic"
)

// Whoever brings news of other nodes waits for no tool, and where the tools
// take longer than they should, what is to be done is done in the end.
func TestPeersOnASlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 17 * time.Second
		a := newAnnounced(nil, nil, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
		tries, set := 0, make(map[string][]network.Peer)
		a.set = func(ctx context.Context, local netip.Addr, peers map[string][]network.Peer) error {
			tries++
			select {
			case <-time.After(takes):
				set = peers
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.followPeers(ctx) }()
		entry := mesh.Entry{Host: "192.0.2.2", Member: traffic.Member{
			Endpoints: []traffic.Endpoint{{NetworkID: "n", Addr: netip.MustParseAddr("10.89.0.3")}},
		}}
		for range 3 {
			begun := time.Now()
			a.reach("192.0.2.1", []mesh.Entry{entry})
			if waited := time.Since(begun); waited > 0 {
				t.Errorf("news of other nodes waited %s for this one's tools", waited)
			}
			time.Sleep(20 * time.Second)
		}
		if len(set["n"]) != 1 || tries != 3 {
			t.Errorf("%v after %d tries", set, tries)
		}
		cancel()
		<-done
	})
}
