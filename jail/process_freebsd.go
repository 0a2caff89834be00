// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"satld/jail/shim"
)

// signalInit signals a jail's first process; one that is gone is no error.
// There is no handle of a process here: its start time is looked at just
// before. Unverified on FreeBSD.
func signalInit(init shim.Init, sig int) error {
	ticks, err := shim.StartTicks(init.Pid)
	if err != nil || ticks != init.Ticks {
		return nil
	}
	if err := syscall.Kill(init.Pid, syscall.Signal(sig)); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func thaw(int) error { return nil } // there is no freezer

func frozen(int) bool { return false }

// pidsOf lists the processes of the jail named id. Unverified on FreeBSD.
func pidsOf(ctx context.Context, id string, _ int) ([]int, error) {
	out, err := exec.CommandContext(ctx, "ps", "-J", id, "-o", "pid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps -J %s: %w", id, err)
	}
	var pids []int
	for field := range strings.FieldsSeq(string(out)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// sweep: a jail that ocijail's create left without state, and the mounts under
// its root, are removed by the FreeBSD side of the daemon's start (to come).
func sweep(context.Context, string) error { return nil }

func removeParents() {}
