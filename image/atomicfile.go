// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"fmt"
	"os"
	"path/filepath"
)

// unfinishedSuffix is of the file beside another that is about to replace it.
const unfinishedSuffix = ".new"

// writeFile replaces path by data so that a crash or a power cut at any moment
// leaves the old content or the new one: a temporary file beside it, fsync,
// rename, fsync of the directory. Calls for one path do not overlap.
func writeFile(path string, data []byte) (err error) {
	f, err := os.OpenFile(path+unfinishedSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir last through a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
