// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"errors"

	"golang.org/x/sys/unix"

	"satld/jail/shim"
)

// signalInit signals a container's first process and no other one that got
// its pid since; one that is gone is no error.
func signalInit(init shim.Init, sig int) error {
	f, err := shim.Open(init.Pid, init.Ticks)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.PidfdSendSignal(int(f.Fd()), unix.Signal(sig), nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
