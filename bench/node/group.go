// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// group is the directory of the cgroup (v2) that a daemon was started in. All
// that it starts is in it too, except for containers, which runtimes move to
// groups of their own. So what a daemon's work costs can be told from all that
// else the machine does.
type group string

// usage is the CPU time that the group's processes have used, ended ones included.
func (g group) usage() (time.Duration, error) {
	data, err := os.ReadFile(filepath.Join(string(g), "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of a cgroup: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("no usage_usec in cpu.stat of %s", g)
}

// groupOf is the v2 group of a process, in the hierarchy that root is in.
func groupOf(root string, pid int) (group, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return group(filepath.Join(root, strings.TrimSpace(path))), nil
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup of v2", pid)
}

// daemons are the programs that stay; the others in a daemon's group (runc,
// what a probe runs) come and go.
var daemons = []string{"satld", "dockerd", "containerd", "containerd-shim-runc-v2"}

// processes are the group's daemons, as directories in /proc.
func (g group) processes() []string {
	data, err := os.ReadFile(filepath.Join(string(g), "cgroup.procs"))
	if err != nil {
		return nil
	}
	var out []string
	for _, pid := range strings.Fields(string(data)) {
		exe, err := os.Readlink("/proc/" + pid + "/exe")
		if err == nil && slices.Contains(daemons, filepath.Base(exe)) {
			out = append(out, "/proc/"+pid)
		}
	}
	return out
}

// memory is what a group's daemons hold, in MiB.
type memory struct {
	RSS float64 // resident
	PSS float64 // resident, with pages that processes share divided among them
}

// memory is the median of some samples: a process that is being forked is
// counted as a second daemon for a moment.
func (g group) memory() memory {
	var rss, pss []float64
	for range 5 {
		var m memory
		for _, dir := range g.processes() {
			m.RSS += kib(dir+"/smaps_rollup", "Rss:") / 1024
			m.PSS += kib(dir+"/smaps_rollup", "Pss:") / 1024
		}
		rss, pss = append(rss, m.RSS), append(pss, m.PSS)
		time.Sleep(50 * time.Millisecond)
	}
	return memory{median(rss), median(pss)}
}

// kib reads one "Name:  N kB" line; a process that ended meanwhile has none.
func kib(path, name string) float64 {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return n
		}
	}
	return 0
}

// daemonCPU is the CPU time of the daemons themselves, without what they
// started and waited for.
func (g group) daemonCPU() time.Duration {
	const tick = time.Second / 100 // USER_HZ
	var total time.Duration
	for _, dir := range g.processes() {
		data, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		text := string(data)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		for _, i := range []int{11, 12} { // utime, stime
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			total += time.Duration(n) * tick
		}
	}
	return total
}

func median[T int64 | float64 | time.Duration](v []T) T {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
