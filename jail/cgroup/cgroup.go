// SPDX-License-Identifier: BSD-2-Clause

// Package cgroup finds the control groups of a process and their files, for
// v1, v2 and both at once. It makes no policy: the runtime sets limits.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Group is one group of one hierarchy.
type Group struct {
	Controllers string // as /proc/PID/cgroup has it: "cpu,cpuacct", "name=systemd"; "" is v2
	Dir         string // below the hierarchy's mount point
}

// V2 tells a group of the unified hierarchy.
func (g Group) V2() bool { return g.Controllers == "" }

// Has tells whether the group's v1 hierarchy carries controller.
func (g Group) Has(controller string) bool {
	for c := range strings.SplitSeq(g.Controllers, ",") {
		if c == controller {
			return true
		}
	}
	return false
}

// hierarchies are where the host's are mounted.
type hierarchies struct {
	points   map[string]string // by v1 controller; "" is v2
	delegate bool              // v2 was mounted with nsdelegate
}

// known are the mounts as they were found: they stay while the program runs,
// once there are any.
var (
	knownMu sync.Mutex
	known   hierarchies
)

func mounts() (hierarchies, error) {
	knownMu.Lock()
	defer knownMu.Unlock()
	if len(known.points) > 0 {
		return known, nil
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return hierarchies{}, fmt.Errorf("find cgroup mounts: %w", err)
	}
	defer f.Close()
	found, err := parseMounts(f)
	if err == nil {
		known = found
	}
	return found, err
}

// unified is where runc looks for v2; elsewhere it is of no use to it.
const unified = "/sys/fs/cgroup"

// Missing says, in words for the operator, why the runtime can make no group and
// so no container; "" where it can.
func Missing() string {
	h, err := mounts()
	if err != nil {
		return err.Error()
	}
	return h.missing()
}

func (h hierarchies) missing() string {
	const remedy = "; containers cannot be started until you run: mount -t cgroup2 cgroup2 " + unified + " (systemd mounts it by itself)"
	v2, has := h.points[""]
	switch {
	case len(h.points) > 1 || !has && len(h.points) > 0: // v1, with or without v2 beside it
		return ""
	case !has:
		return "no cgroup is mounted" + remedy
	case v2 != unified:
		return "no cgroup is mounted at " + unified + ", where the runtime looks for it (there is one at " + v2 + ")" + remedy
	}
	return ""
}

// NamespacesDelegate tells whether v2 lets nobody move a process into or out
// of the groups of his cgroup namespace (cgroups(7), nsdelegate).
func NamespacesDelegate() bool {
	h, err := mounts()
	return err == nil && h.delegate
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)).
func parseMounts(r io.Reader) (hierarchies, error) {
	found := make(map[string]string)
	delegate := false
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		hf, tf := strings.Fields(head), strings.Fields(tail)
		if !ok || len(hf) < 5 || len(tf) < 3 || hf[3] != "/" {
			continue
		}
		switch tf[0] {
		case "cgroup2":
			if _, twice := found[""]; !twice {
				found[""] = hf[4]
				delegate = slices.Contains(strings.Split(tf[2], ","), "nsdelegate")
			}
		case "cgroup":
			for opt := range strings.SplitSeq(tf[2], ",") {
				if _, twice := found[opt]; !twice {
					found[opt] = hf[4]
				}
			}
		}
	}
	return hierarchies{points: found, delegate: delegate}, sc.Err()
}

// Of lists the groups of process pid, of every hierarchy that is mounted.
func Of(pid int) ([]Group, error) {
	h, err := mounts()
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read cgroups of process %d: %w", pid, err)
	}
	return parse(string(b), h.points), nil
}

func parse(text string, points map[string]string) []Group {
	var groups []Group
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		key, _, _ := strings.Cut(f[1], ",")
		point, ok := points[key]
		if !ok {
			continue
		}
		groups = append(groups, Group{Controllers: f[1], Dir: filepath.Join(point, f[2])})
	}
	return groups
}

// At lists the directories that the group of path has in all hierarchies,
// whether they exist or not.
func At(path string) ([]string, error) {
	h, err := mounts()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	var dirs []string
	for _, point := range h.points {
		if dir := filepath.Join(point, path); !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// Procs lists the processes of the group dir and of those below it. One that
// is not there has none.
func Procs(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it, or a group below, just went
		}
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			if gone(err) {
				return nil
			}
			return err
		}
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", dir, err)
	}
	return pids, nil
}

// OOMKills is how many processes of the group the kernel killed for lack of
// memory, as far as it can be told; file is what OOMFile gave.
func OOMKills(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == "oom_kill" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// OOMFile is the file in which the kernel counts them; "" where there is none.
func OOMFile(groups []Group) string {
	for _, g := range groups {
		if g.Has("memory") {
			return filepath.Join(g.Dir, "memory.oom_control")
		}
	}
	for _, g := range groups {
		if g.V2() {
			return filepath.Join(g.Dir, "memory.events")
		}
	}
	return ""
}

// gone tells the errors of a group that was removed while it was read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}
