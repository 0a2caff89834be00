// SPDX-License-Identifier: BSD-2-Clause

package jail

import "context"

// system makes what this platform runs containers with.
func system(ctx context.Context, m *Manager, daemonDir string) (driver, host, prober, error) {
	return jailSystem(ctx, m, daemonDir)
}
