// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"satld/executor"
)

// cleanupBound is how long the whole of `satld cleanup` may take.
const cleanupBound = 2 * time.Minute

// cleanup ends every container of a stopped daemon and takes away what it
// made outside its state directory: processes, mounts, interfaces,
// namespaces, rules. The store and the images stay, so that a daemon started
// again makes the services' tasks anew.
func cleanup(ctx context.Context, cfg Config) (err error) {
	if _, err := os.Stat(cfg.StateDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	log, err := newLogger(os.Stderr, cfg.LogLevel, cfg.LogFormat)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupBound)
	defer cancel()
	n := &node{cfg: cfg, log: log, takingDown: true}
	if err := n.open(ctx); err != nil {
		return errors.Join(err, n.close())
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := executor.Purge(ctx, cfg.StateDir, n.runtime, n.images, n.networks); err != nil {
		return fmt.Errorf("end containers: %w", err)
	}
	return errors.Join(n.unreachable, n.redirect.Clear(ctx), n.networks.Destroy(ctx))
}
