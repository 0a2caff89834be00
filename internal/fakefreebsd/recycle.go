// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Recycle gives a container of an ocijail --root another process's pid, as the
// kernel does with that of one that ended: `ocijail state` then says running,
// and kill and `delete --force` hit the stranger.
func (f *Fake) Recycle(root, id string, pid int) {
	f.t.Helper()
	file := filepath.Join(root, id, "state.json")
	var state map[string]any
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	state["pid"], state["status"] = pid, "running"
	if data, err = json.Marshal(state); err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
