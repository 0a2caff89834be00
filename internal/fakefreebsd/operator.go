// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// Run calls a tool as the operator would: no fault hits it, and Calls does not
// have it.
func (f *Fake) Run(tool string, args ...string) (stdout string, err error) {
	cmd := exec.Command(filepath.Join(f.Bin, tool), args...)
	cmd.Env = append(f.Env(), world.OperatorEnv+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Pool makes a ZFS pool. Datasets in it are the operator's to make, with Run.
func (f *Fake) Pool(name string) {
	f.t.Helper()
	f.update(func(w *world.World) {
		w.Datasets = append(w.Datasets, &world.Dataset{Name: name, Props: map[string]string{"mountpoint": "none", "canmount": "off"}})
		w.Modules = append(w.Modules, "zfs")
	})
}

// Datasets are the names of all file systems and snapshots.
func (f *Fake) Datasets() (names []string) {
	f.t.Helper()
	for _, d := range f.read().Datasets {
		names = append(names, d.Name)
	}
	return names
}
