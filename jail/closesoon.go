// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"runtime"
	"strconv"

	"satld/jail/shim"
)

// closeSoonIn has the closed connections of a jail with a network stack of its
// own linger for 4 s instead of 60, as they keep it from dying (facts/
// freebsd.md, "A dying jail"). The root of the jail need not have sysctl(8):
// a process of ours enters it for that.
func closeSoonIn(ctx context.Context, cfg Config, jid int) error {
	if runtime.GOOS != "freebsd" { // stand-ins have no connections
		return nil
	}
	argv := append([]string{cfg.Self}, cfg.ShimArgs...)
	_, err := runTool(ctx, append(argv, shim.InJailFlag, strconv.Itoa(jid), shim.SetFlag, "net.inet.tcp.msl=2000")...)
	return err
}
