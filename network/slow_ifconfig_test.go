// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"satld/platform/command"
)

// On a host where ifconfig takes longer than its bound what it says is had all
// the same, after attempts that were too short.
func TestSlowIfconfig(t *testing.T) {
	b := newBSD()
	synctest.Test(t, func(t *testing.T) {
		l := newIfconfigLinks("01234567", nil, func(ctx context.Context, c command.Command) (string, error) {
			bound, takes := c.Bound, 25*time.Second
			if bound == 0 {
				bound = command.Bound
			}
			time.Sleep(min(bound, takes))
			if takes > bound {
				return "", &command.Error{Command: c, Status: -1, Err: context.DeadlineExceeded}
			}
			return b.run(ctx, c)
		}, nil)
		for attempts := 1; ; attempts++ {
			links, err := l.list(t.Context())
			if err == nil && len(links) > 0 {
				return
			}
			if attempts > 3 {
				t.Fatalf("with an ifconfig that takes 25 s the interfaces are never listed: %v", err)
			}
		}
	})
}
