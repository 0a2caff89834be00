// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"fmt"
	"slices"
	"sync"
)

// journal is what the fakes were asked to do, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// at is the position of the first line equal to one of lines, -1 without.
func (j *journal) at(line string) int { return slices.Index(j.all(), line) }
