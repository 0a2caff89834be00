// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"fmt"
	"time"
)

// TCPProbe opens a connection to a port of the task: that it opens passes.
type TCPProbe struct {
	reach Reach
	port  uint16
}

// Attempt implements Probe. A connection that never opens is exit code -1,
// one that is refused is 1.
func (p *TCPProbe) Attempt(ctx context.Context, timeout time.Duration) Result {
	start := time.Now()
	r := p.connect(ctx, start, timeout)
	r.Start, r.End = start, time.Now()
	return r
}

func (p *TCPProbe) connect(ctx context.Context, start time.Time, timeout time.Duration) Result {
	if r, ok := p.reach.unreachable(); ok {
		return r
	}
	ctx, cancel := context.WithDeadline(ctx, start.Add(timeout))
	defer cancel()
	_, finish, err := p.reach.open(ctx, p.port)
	if err != nil {
		return broken(err, timeout, fmt.Sprintf("connect to port %d", p.port))
	}
	finish()
	return Result{Word: "connected", By: p.reach.by(), Output: fmt.Sprintf("port %d accepts connections", p.port)}
}
