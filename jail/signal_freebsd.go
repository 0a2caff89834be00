// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"errors"
	"syscall"

	"satld/jail/shim"
)

// signalInit signals a jail's first process; one that is gone is no error.
// There is no handle of a process here: its start time is looked at just
// before. A pid is not used again within moments, as they are given in turn.
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
