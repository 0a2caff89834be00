// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"satld/api"
	"satld/apps"
	"satld/cluster"
	"satld/executor"
)

// newApps is the cache of verdicts on applications. Which there are is known
// once the node has joined its cluster.
func newApps(exec *executor.Node, joined *atomic.Pointer[cluster.Node], log *slog.Logger) *apps.Cache {
	return apps.New(apps.Options{
		List: apps.FromNode(exec.List),
		Declared: func() map[string]apps.Declared {
			if member := joined.Load(); member != nil {
				return api.DeclaredApps(member.Store())
			}
			return nil
		},
		Logger: log,
	})
}

// serveApps answers load balancers on addr until ctx ends.
func serveApps(ctx context.Context, addr string, cache *apps.Cache) error {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on --apps-addr %s: %w", addr, err)
	}
	return apps.Serve(ctx, lis, cache.Handler())
}
