// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"golang.org/x/sys/unix"
)

// stallingDisk is a file system whose writes can be made to wait.
func stallingDisk(t *testing.T) (dir string, stall, goOn func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a file system")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	dir = t.TempDir()
	tool := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: %s: %v %s", argv[0], err, out)
		}
	}
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 64<<20); err != nil {
		t.Fatal(err)
	}
	tool("mkfs.ext4", "-q", "-F", disk)
	tool("mount", "-o", "loop", disk, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	stalled := false
	stall = func() { t.Helper(); tool("fsfreeze", "--freeze", dir); stalled = true }
	goOn = func() {
		if stalled {
			stalled = false
			tool("fsfreeze", "--unfreeze", dir)
		}
	}
	t.Cleanup(goOn)
	return dir, stall, goOn
}

// The leader's disk stands still for longer than a write may take. What became
// of tasks meanwhile is in the store once it goes on.
func TestStalledDisk(t *testing.T) {
	t.Parallel()
	disk, stall, goOn := stallingDisk(t)
	const bound = time.Second
	n := startNode(t, filepath.Join(disk, "state"), newFake(), func(c *Config) { c.proposeTimeout = bound })
	f, fail := newFake(), make(chan struct{})
	f.wait = func(ctx context.Context, x *api.Task) error {
		select {
		case <-fail:
			return errFake
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	worker := startNode(t, stateDir(t), f, nil)
	join(t, worker, n, api.NodeRoleWorker)
	spec := replicas("web", 2)
	spec.Task.Placement = &api.Placement{Constraints: []string{"node.role==worker"}}
	spec.Task.Restart = &api.RestartPolicy{Condition: api.RestartOnNone}
	s := create(t, n, spec)
	awaitLive(t, n, s.ID, 2)
	stall()
	fail <- struct{}{} // the write of this one is in the log, and waits
	time.Sleep(2 * bound)
	fail <- struct{}{} // there is none of this one
	time.Sleep(2 * bound)
	goOn()
	eventually(t, 60*time.Second, "both ends are known", func() string {
		for _, x := range tasks(n, s.ID) {
			if x.Status.State != api.TaskStateFailed {
				return fmt.Sprint(x.Status)
			}
		}
		return ""
	})
	for _, x := range tasks(n, s.ID) {
		if x.Status.Err != errFake.Error() {
			t.Errorf("%v", x.Status)
		}
	}
}
