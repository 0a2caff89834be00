// SPDX-License-Identifier: BSD-2-Clause

package orchestrator

import (
	"fmt"
	"time"

	"github.com/moby/swarmkit/v2/api"
)

// Waits is what a task waits for before it is started, or tried again where it
// could not be prepared, in words: "restart delay, starts in 4s". It is "" for a
// task that runs or is to, and for one that waits for no time.
func Waits(t *api.Task, now time.Time) string {
	left := labelTime(t, LabelDue).Sub(now)
	if t.DesiredState >= api.TaskStateRunning || left <= 0 {
		return ""
	}
	then := "starts"
	if ended(t) {
		then = "next try"
	}
	return fmt.Sprintf("restart delay, %s in %v", then, (left + time.Second - 1).Truncate(time.Second))
}
