// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"satld/cluster"
	"satld/platform"
)

// restore is `satld restore FILE [flags]`: it makes of a backup the state of
// this node, whose daemon does not run.
func restore(args []string, out, errOut io.Writer) (err error) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return usageError{errors.New("restore needs the backup's file: satld restore FILE [flags]")}
	}
	cfg, err := load(platform.OS, args[1:])
	if err != nil {
		return err
	}
	log, err := newLogger(errOut, "warn", cfg.LogFormat)
	if err != nil {
		return err
	}
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	unlock, err := cluster.LockState(cfg.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	about, err := cluster.Restore(cfg.StateDir, f, log)
	if err != nil {
		return fmt.Errorf("restore %s: %w", args[0], err)
	}
	fmt.Fprintf(out, "cluster %s as of %s: %d services, %d nodes; this is node %s (%s), its only manager\nstart satld to go on\n",
		about.ClusterID, about.Taken.Format("2006-01-02T15:04:05Z"), about.Services, about.Nodes, about.NodeID, about.Hostname)
	return nil
}
