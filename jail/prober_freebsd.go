// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prober runs commands in jails with `ocijail exec`, which without --detach
// attaches and becomes the command itself: its pid is the probe's and its exit
// status too. Nothing here is verified on FreeBSD yet.
type prober struct{}

// newProber makes this process the reaper of what probes leave behind
// (procctl(2)).
func newProber(string) (*prober, error) {
	const pPid, reapAcquire = 0, 2
	_, _, errno := unix.Syscall6(unix.SYS_PROCCTL, pPid, uintptr(os.Getpid()), reapAcquire, 0, 0, 0)
	if errno != 0 && errno != unix.EBUSY { // EBUSY: it is one already
		return nil, fmt.Errorf("procctl PROC_REAP_ACQUIRE: %w", errno)
	}
	return &prober{}, nil
}

func (p *prober) close()                              {}
func (p *prober) forget(string)                       {}
func (p *prober) abort(context.Context, string) error { return nil } // there is no pause

// reaperKill is struct procctl_reaper_kill (sys/procctl.h).
type reaperKill struct {
	sig     int32
	flags   uint32
	subtree int32
	killed  uint32
	fpid    int32
	_       [15]uint32
}

// killSubtree kills every descendant of the child pid, also those that left
// its process group. The child must not have been reaped.
func killSubtree(pid int) {
	const pPid, reapKill, subtree = 0, 6, 2
	syscall.Kill(-pid, syscall.SIGKILL) // ESRCH before its setsid(2) ran
	syscall.Kill(pid, syscall.SIGKILL)
	req := reaperKill{sig: int32(syscall.SIGKILL), flags: subtree, subtree: int32(pid)}
	unix.Syscall6(unix.SYS_PROCCTL, pPid, uintptr(os.Getpid()), reapKill, uintptr(unsafe.Pointer(&req)), 0, 0)
}

// RunProbe: see Runtime.
func (m *Manager) RunProbe(kill context.Context, id string, argv []string, out io.Writer, started func()) (int, error) {
	if err := checkID(id); err != nil {
		return -1, err
	}
	if len(argv) == 0 || argv[0] == "" {
		return -1, invalid("no command specified")
	}
	if err := m.mustRun(kill, id); err != nil {
		return -1, err
	}
	config, err := m.process(id)
	if err != nil {
		return -1, err
	}
	process := *config.Process
	process.Args, process.Terminal = argv, false
	b, err := json.Marshal(&process)
	if err != nil {
		return -1, err
	}
	dir, err := os.MkdirTemp(m.dir.Container(id), "probe-")
	if err != nil {
		return -1, fmt.Errorf("probe container %s: %w", id, err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(dir+"/process.json", b, 0o600); err != nil {
		return -1, fmt.Errorf("probe container %s: %w", id, err)
	}
	args := m.driver.exec(id, dir+"/process.json", dir+"/pid", "", "", false)
	r, w, err := os.Pipe()
	if err != nil {
		return -1, err
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		w.Close()
		return -1, err
	}
	// No SysProcAttr: ocijail calls setsid(2) itself and fails in a group leader.
	pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), w.Fd(), w.Fd()},
	})
	null.Close()
	w.Close()
	if err != nil {
		return -1, fmt.Errorf("run %s: %w", strings.Join(args, " "), err)
	}
	var drained sync.WaitGroup
	drained.Go(func() { copyPipe(out, r) })
	if started != nil {
		started()
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(kill, func() { killSubtree(pid) })
	defer stop()
	var ws syscall.WaitStatus
	go func() {
		defer close(ended)
		waitUnreaped(pid)
		killSubtree(pid) // what is left, while the pid is still taken
		for {
			if _, err := syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}()
	<-ended
	endPipe(r, 100*time.Millisecond)
	drained.Wait()
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// waitUnreaped returns when the child has ended, without reaping it.
func waitUnreaped(pid int) {
	const pPid, wExited, wNoWait = 0, 16, 8
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAIT6, pPid, uintptr(pid), 0, wExited|wNoWait, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}
