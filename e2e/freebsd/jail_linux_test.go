// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/internal/fakefreebsd/world"
)

// jail-1: twenty jails of one slot, one after the other, each of which takes
// its time to die. No name comes twice, the next one starts while the last one
// dies, and nothing enters a jail that was removed.
func TestDyingJailsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.Dying(10 * time.Second)
	r.web()
	const cycles = 20
	overlaps, most := 0, 0
	ended := make(map[string]time.Time)
	for range cycles {
		task := r.awaitRunning("web", 1)[0]
		_, dying := r.Jails()
		if len(dying) > 0 {
			overlaps++
		}
		most = max(most, len(dying))
		jail := r.jailOf(task)
		r.Packet("tcp", from(len(ended)), hostAddr+":8080") // a client that stays connected
		kill(t, task.Status.ContainerStatus.PID)
		r.until("the task's end to be told", func() bool {
			return slices.ContainsFunc(r.tasks("web"), func(o swarm.Task) bool {
				return o.ID == task.ID && o.Status.State == swarm.TaskStateFailed
			}) || !slices.ContainsFunc(r.tasks("web"), func(o swarm.Task) bool { return o.ID == task.ID })
		})
		ended[jail] = time.Now()
	}
	if len(ended) != cycles {
		t.Errorf("%d names for %d jails", len(ended), cycles)
	}
	if overlaps == 0 {
		t.Error("no jail was started while another one was dying: nothing is shown")
	}
	t.Logf("%d of %d jails started while others were dying, at most %d at a time", overlaps, cycles, most)
	r.awaitRunning("web", 1)
	r.nobodyEntersTheDead()
	r.docker("service", "rm", "web")
	r.until("the end of all jails", func() bool { return r.jailsAre(0) })
}

// nobodyEntersTheDead looks in the log of command lines that no jail was
// entered or named again after its removal. A probe that was due in the moment
// of an unexpected end may come too late, and is refused.
func (r *ring) nobodyEntersTheDead() {
	r.t.Helper()
	removed := make(map[string]bool)
	made := make(map[string]bool)
	for _, c := range r.Calls() {
		line := c.String()
		last := c.Args[max(0, len(c.Args)-1):]
		switch {
		case c.Tool == "jail":
			removed[strings.Join(last, "")] = true
		case c.Tool == "ocijail" && slices.Contains(c.Args, "create"):
			name := strings.Join(last, "")
			if made[name] {
				r.t.Errorf("the name of a jail comes twice: %s", line)
			}
			made[name] = true
		case c.Tool == "ocijail" && slices.Contains(c.Args, "exec"):
			if name := c.Args[slices.Index(c.Args, "exec")+1]; removed[name] && c.Exit != 1 {
				r.t.Errorf("a jail is entered after its removal (exit %d): %s", c.Exit, line)
			}
		}
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if pid < 2 {
		t.Fatalf("pid %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// jail-2: an epair is destroyed when its jail is gone and its inner end is back
// on the host, and not before; the task's end does not wait for that.
func TestLinksWaitForTheJail(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.Dying(-1)
	r.web()
	task := r.awaitRunning("web", 1)[0]
	jail := r.jailOf(task)
	r.docker("service", "rm", "web")
	r.until("the jail's dying", func() bool { _, dying := r.Jails(); return slices.Contains(dying, jail) })
	r.until("the end of the task's container", func() bool { return r.docker("ps", "-q") == "" })
	inside := func() bool {
		return slices.ContainsFunc(r.World().Links, func(l *world.Link) bool { return l.Jail == jail && l.Kind == "epair" })
	}
	if !inside() {
		t.Error("its link is gone while the jail is dying")
	}
	// The daemon's end and start change nothing about that.
	r.end(syscall.SIGKILL)
	r.start()
	if !inside() {
		t.Error("its link is gone while the jail is dying")
	}
	r.Bury(jail)
	r.until("the end of its links", func() bool {
		return !slices.ContainsFunc(r.World().Links, func(l *world.Link) bool { return l.Kind == "epair" })
	})
}

// jail-3: a host process holds a file open in a bind mount of a task that is
// removed. Nothing is deleted across the mount, the trouble is told, and the
// rest follows when the file is closed.
func TestBusyBindMountIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	data := filepath.Join(r.dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(data, "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.web("--mount", "type=bind,source="+data+",destination=/data")
	task := r.awaitRunning("web", 1)[0]
	root := r.World().Jail(r.jailOf(task)).Path
	held, err := os.Open(filepath.Join(root, "data/precious"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	r.docker("service", "rm", "web")
	r.until("the end of the jail", func() bool { return r.jailsAre(0) })
	r.until("a word of the mount that is busy", func() bool { return r.logged("level=WARN", root+"/data") })
	intact := func(when string) {
		t.Helper()
		if got, err := os.ReadFile(precious); err != nil || string(got) != "precious" {
			t.Errorf("%s: %q, %v", when, got, err)
		}
	}
	intact("while it is held")
	if mounts, err := r.Run("mount", "-p"); err != nil || !strings.Contains(mounts, root+"/data") {
		t.Errorf("the mount is gone while it is held (%v)", err)
	}
	if _, err := os.Stat(root); err != nil {
		t.Errorf("the root is gone while something is mounted in it: %v", err)
	}
	held.Close()
	r.until("the end of its mounts", func() bool {
		mounts, err := r.Run("mount", "-p")
		return err == nil && !strings.Contains(mounts, root)
	})
	r.until("the end of its root", func() bool { _, err := os.Stat(root); return os.IsNotExist(err) })
	intact("at the end")
}

// jail-4: a task that does not want to end, with a child that left its session.
// One stop ends it all, also when the daemon is killed in the middle of it, and
// no zombie is left.
func TestStubbornTaskIsStoppedWhole(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"in one go": false, "across a daemon's death": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRing(t)
			r.docker("service", "create", "--detach", "--no-resolve-image", "--name", "mule", "--stop-grace-period", "2s", "app:1",
				"/bin/sh", "-c", "trap '' TERM; setsid sleep 4321 & sleep 4322 & while :; do wait; done")
			task := r.awaitRunning("mule", 1)[0]
			jail := r.jailOf(task)
			r.until("its children", func() bool {
				pids, err := r.Run("ps", "-J", jail, "-o", "pid=")
				return err == nil && len(strings.Fields(pids)) == 3
			})
			pids, err := r.Run("ps", "-J", jail, "-o", "pid=")
			if err != nil {
				t.Fatal(err)
			}
			r.docker("service", "rm", "mule")
			if killed {
				r.until("the stop signal", func() bool { return r.logged("stop signal sent") })
				r.end(syscall.SIGKILL)
				r.start()
			}
			r.until("the end of its jail", func() bool { return r.jailsAre(0) })
			for _, pid := range strings.Fields(pids) {
				if _, err := os.Stat("/proc/" + pid); err == nil {
					t.Errorf("process %s is left, a zombie perhaps", pid)
				}
			}
			r.until("the end of its mounts and links", func() bool {
				return !slices.ContainsFunc(r.Leftovers(), func(l string) bool {
					return strings.HasPrefix(l, "mount ") || strings.Contains(l, "interface s") && !bridge(l)
				})
			})
			r.nobodyEntersTheDead()
		})
	}
}
