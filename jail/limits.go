// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// limitRules are the rctl(8) rules of a container's limits. Memory is enforced
// as Docker's users know it: the process that goes above is killed; denying
// would page it out instead. The CPU's share is in percent of one.
func limitRules(name string, s Spec) (rules []string) {
	add := func(resource, action string, amount int64) {
		rules = append(rules, fmt.Sprintf("jail:%s:%s:%s=%d", name, resource, action, amount))
	}
	if s.MemoryBytes > 0 {
		add("memoryuse", "sigkill", s.MemoryBytes)
	}
	if s.NanoCPUs > 0 {
		add("pcpu", "deny", max(1, s.NanoCPUs/1e7))
	}
	if s.Pids > 0 {
		add("maxproc", "deny", s.Pids)
	}
	return rules
}

// noLimits is what is said where the kernel does not count.
const noLimits = "Limits of memory, CPU and processes are accepted and not enforced: kern.racct.enable is not 1; " +
	"put kern.racct.enable=1 into /boot/loader.conf and restart the machine"

// countsResources tells whether rctl(4) is there and works.
func (t tool) countsResources(ctx context.Context) bool {
	out, err := t(ctx, "sysctl", "-n", "kern.racct.enable")
	return err == nil && strings.TrimSpace(string(out)) == "1"
}

// addLimits adds the rules of a jail.
func (t tool) addLimits(ctx context.Context, rules []string) error {
	for _, rule := range rules {
		if _, err := t(ctx, "rctl", "-a", rule); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	return nil
}

// removeLimits removes all rules of the jail of that name, which outlive it.
func (t tool) removeLimits(ctx context.Context, name string) error {
	_, err := t(ctx, "rctl", "-r", "jail:"+name)
	var failed *toolError
	if errors.As(err, &failed) && strings.Contains(failed.stderr, "No such process") { // there is none
		return nil
	}
	return err
}
