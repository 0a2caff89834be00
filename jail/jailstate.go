// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"satld/jail/shim"
)

// runtimeState is what is read of the state that ocijail keeps of a container.
type runtimeState struct {
	Pid      int    `json:"pid"`
	RootPath string `json:"root_path"`
}

// stateOf reads it; it is empty where there is none, or none that is whole.
func (j *jails) stateOf(id string) (s runtimeState) {
	b, err := os.ReadFile(filepath.Join(j.driver.root, id, "state.json"))
	if err != nil || json.Unmarshal(b, &s) != nil {
		return runtimeState{}
	}
	return s
}

func (s runtimeState) root() (path string, ok bool) { return s.RootPath, filepath.IsAbs(s.RootPath) }

// deleteState has ocijail unmount what it mounted and forget the container,
// whose jail was removed and has no process any more. It judges by the first
// process's pid alone, and kills: where that is another process's by now it is
// not asked.
func (j *jails) deleteState(ctx context.Context, id string) error {
	if _, err := os.Lstat(filepath.Join(j.driver.root, id)); err != nil {
		return nil
	}
	if pid := j.stateOf(id).Pid; pid > 0 {
		if _, err := shim.StartTicks(pid); err == nil {
			return fmt.Errorf("delete container %s: the pid of its first process, %d, is another one's now", id, pid)
		}
	}
	if _, err := j.tool(ctx, j.driver.remove(id)...); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return nil
}

// dropState removes ocijail's state of a container where ocijail cannot: file
// by file, never a tree, and only when nothing is mounted in it any more.
func (j *jails) dropState(id string) error {
	dir := filepath.Join(j.driver.root, id)
	for _, path := range []string{
		filepath.Join(dir, "state.json"), filepath.Join(dir, "state.lock"), filepath.Join(dir, "start_wait"),
		filepath.Join(dir, "readonly_root"), dir,
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove ocijail's state of container %s: %w", id, err)
		}
	}
	return nil
}
