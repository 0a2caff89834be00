// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
)

// leaf is the pair of v2 groups of one attempt, below the container's own: the
// helper is born in the one, and the command in another below it, which can be
// killed at one go.
type leaf struct {
	path string   // the helper's
	dir  *os.File // the helper's
	cmd  *os.File // the command's
	kill *os.File // cgroup.kill of the command's; nil before Linux 5.14
}

// newLeaf makes the groups. Where there is no v2 there are none, and the helper
// kills by looking for children.
func (p *nsProber) newLeaf(groups []cgroup.Group) (*leaf, error) {
	i := slices.IndexFunc(groups, cgroup.Group.V2)
	if i < 0 || p.noLeaf {
		return nil, nil
	}
	p.mu.Lock()
	p.count++
	n := p.count
	p.mu.Unlock()
	l := &leaf{path: filepath.Join(groups[i].Dir, "probe-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(n, 10))}
	err := l.make()
	if err == nil {
		return l, nil
	}
	l.remove()
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) { // the container's own just went
		return nil, unix.ESRCH
	}
	return nil, fmt.Errorf("make the probe's cgroup %s: %w", l.path, err)
}

func (l *leaf) make() (err error) {
	cmd := l.command()
	for _, dir := range []string{l.path, cmd} {
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if l.dir, err = os.Open(l.path); err != nil {
		return err
	}
	if l.cmd, err = os.Open(cmd); err != nil {
		return err
	}
	l.kill, err = os.OpenFile(filepath.Join(cmd, "cgroup.kill"), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (l *leaf) command() string { return filepath.Join(l.path, "command") }

func (l *leaf) remove() {
	if l == nil {
		return
	}
	for _, f := range []*os.File{l.dir, l.cmd, l.kill} {
		if f != nil {
			f.Close()
		}
	}
	// The last process is reaped, and its place in the group is given up a
	// moment later.
	for range 100 {
		unix.Rmdir(l.command())
		if err := unix.Rmdir(l.path); err == nil || errors.Is(err, unix.ENOENT) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// empty kills what is left in the group and waits until it is.
func (l *leaf) empty(limit time.Duration) bool {
	if l == nil {
		return true
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		if l.kill != nil {
			l.kill.WriteString("1")
		}
		pids, err := cgroup.Procs(l.command())
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		if err == nil && len(pids) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
