// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"fmt"
	"os"
	"path/filepath"
)

// writeFile replaces path by data so that a crash at any moment leaves the old
// content or the new one: a temporary file in tmpDir (on the same file
// system, swept by Open), fsync, rename, fsync of the directory.
func writeFile(tmpDir, path string, data []byte) (err error) {
	f, err := os.CreateTemp(tmpDir, "file-")
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
