// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/spf13/cobra"

	"satld/platform/atomicfile"
)

// newBackup is `satl swarm backup`.
func newBackup(docker command.Cli) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Save the whole state of the cluster to a file (- is the standard output)",
		Long: "Save the whole state of the cluster to a file: services, networks, secrets, nodes, tokens and the key of its\n" +
			"certificate authority. Keep it as secret as that. It can be taken on any manager, also while there is no leader.\n" +
			"`satld restore FILE` makes a cluster of one manager from it.",
		Args: cli.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" {
				return saveBackup(cmd.Context(), docker, docker.Out())
			}
			return backupTo(cmd.Context(), docker, args[0])
		},
	}
}

// backupTo leaves a backup in a file, or the file as it was. The unfinished one
// has a name that nobody can foretell: the directory may be anybody's.
func backupTo(ctx context.Context, docker command.Cli, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(f.Name()); err != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	if err := errors.Join(saveBackup(ctx, docker, f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

func saveBackup(ctx context.Context, docker command.Cli, w io.Writer) error {
	resp, err := request(ctx, docker, http.MethodGet, "/swarm/backup", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	return nil
}
