// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"satld/internal/slowday"
	"satld/jail/cgroup"
)

// The parents of containers' groups stay while any daemon makes a container,
// between the runtime's making of them and of the container's own.
func TestParentsStayForACreate(t *testing.T) {
	if os.Getuid() != 0 || cgroup.Missing() != "" {
		t.Skip("SKIPPED: needs root and control groups")
	}
	parent := "/satl-test" + strconv.Itoa(os.Getpid())
	dirs, err := cgroup.At(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
	}
	left := func() (n int) {
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				n++
			}
		}
		return n
	}
	one, two := groups{}.creating(), groups{}.creating()
	one()
	removeParents(parent)
	if n := left(); n != len(dirs) {
		t.Errorf("%d of %d groups are there while a container is made", n, len(dirs))
	}
	two()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		removeParents(parent)
		if n := left(); n == 0 {
			return
		} else if slowday.Over(begun, 20*time.Second) { // others on this machine make containers too
			t.Fatalf("%d groups stay", n)
		}
	}
}
