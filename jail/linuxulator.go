// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"strings"
)

// runsLinux tells whether programs of Linux can be run: the module is there
// (linux(4); on amd64 its name is linux64elf), and says which kernel it plays.
func (t tool) runsLinux(ctx context.Context) error {
	if _, err := t(ctx, "kldstat", "-q", "-m", "linux64elf"); err != nil {
		if failed := new(toolError); !errors.As(err, &failed) {
			return err
		}
		return unsupported("this is an image for Linux and the Linuxulator is not loaded: " +
			"sysrc linux_enable=YES and service linux start, or use an image for FreeBSD")
	}
	out, err := t(ctx, "sysctl", "-n", "compat.linux.osrelease")
	if err != nil {
		return unsupported("this is an image for Linux and the Linuxulator does not answer: %v", err)
	}
	if strings.TrimSpace(string(out)) == "" {
		return unsupported("this is an image for Linux and the Linuxulator plays no kernel: compat.linux.osrelease is empty")
	}
	return nil
}
