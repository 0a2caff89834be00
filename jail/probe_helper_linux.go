// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
	"satld/jail/entry"
	"satld/jail/shim"
)

// helper is a satl-init that runs.
type helper struct {
	pid     int
	control *os.File
	tasks   int
}

// start starts satl-init in the container's namespaces.
func (p *nsProber) start(t *target, groups []cgroup.Group, l *leaf, out *os.File) (*helper, error) {
	pidfd, err := shim.Open(t.init.Pid, t.init.Ticks)
	if err != nil {
		return nil, err
	}
	defer pidfd.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the probe's control socket: %w", err)
	}
	defer unix.Close(pair[1])
	null := p.null.Fd()
	files := []uintptr{null, out.Fd(), out.Fd(), uintptr(pair[1]), null, null}
	if l != nil {
		files[entry.LeafFD] = l.cmd.Fd()
		if l.kill != nil {
			files[entry.KillFD] = l.kill.Fd()
		}
	}
	h := &helper{}
	in := inside{pidfd: int(pidfd.Fd()), dir: int(p.helper.Fd()), group: -1, devices: -1}
	in.keep = capMask(t.process.Capabilities.Bounding) | helperCaps
	if l == nil || l.kill == nil {
		in.keep |= searchCaps
	}
	if l != nil {
		in.group = int(l.dir.Fd())
	}
	for _, g := range groups {
		if g.V2() || p.noV1 {
			continue
		}
		f, err := os.OpenFile(filepath.Join(g.Dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			unix.Close(pair[0])
			if errors.Is(err, os.ErrNotExist) {
				return nil, unix.ESRCH
			}
			return nil, fmt.Errorf("open the container's cgroup: %w", err)
		}
		defer f.Close()
		files = append(files, f.Fd())
		h.tasks++
		if g.Has("devices") {
			in.devices = int(f.Fd())
		}
	}
	h.pid, err = in.fork(&syscall.ProcAttr{
		Env: []string{"GOGC=off", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1"}, Files: files,
	})
	runtime.KeepAlive(pidfd)
	runtime.KeepAlive(out)
	runtime.KeepAlive(l)
	if err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	unix.SetNonblock(pair[0], true)
	h.control = os.NewFile(uintptr(pair[0]), "control")
	if adj := t.process.OOMScoreAdj; adj != nil {
		os.WriteFile("/proc/"+strconv.Itoa(h.pid)+"/oom_score_adj", []byte(strconv.Itoa(*adj)), 0)
	}
	return h, nil
}

// request translates a container's process.
func request(t *target, argv []string, l *leaf, tasks int) *entry.Request {
	p := t.process
	req := &entry.Request{
		Argv: argv, Env: p.Env, Cwd: p.Cwd,
		UID: p.User.UID, GID: p.User.GID, Groups: p.User.AdditionalGids,
		NoNewPrivs: p.NoNewPrivileges, Rlimits: t.rlimits, Leaf: l != nil, Kill: l != nil && l.kill != nil, Tasks: uint32(tasks),
	}
	if c := p.Capabilities; c != nil {
		req.Bounding, req.Effective, req.Permitted = capMask(c.Bounding), capMask(c.Effective), capMask(c.Permitted)
		req.Inherit, req.Ambient = capMask(c.Inheritable), capMask(c.Ambient)
	}
	return req
}

// converse sends the request and sees it to its end: when it returns, nothing
// of the attempt is left.
func (h *helper) converse(kill context.Context, req *entry.Request, started func(), l *leaf) (code int, err error) {
	reaped := make(chan struct{})
	defer func() {
		h.control.Close()
		select {
		case <-reaped:
		case <-time.After(killLimit):
			err = fmt.Errorf("satl-init does not die within %v", killLimit)
		}
	}()
	stop := context.AfterFunc(kill, func() {
		h.control.SetReadDeadline(time.Now().Add(helperLimit))
		h.hangUp()
	})
	defer stop()
	report, err := h.exchange(req, started)
	// It ends right after its last report; one that did not give it is made to.
	if err != nil {
		syscall.Kill(h.pid, syscall.SIGKILL)
	}
	go func() {
		defer close(reaped)
		for {
			if _, werr := syscall.Wait4(h.pid, nil, 0, nil); werr != syscall.EINTR {
				return
			}
		}
	}()
	if err != nil {
		if !l.empty(killLimit) {
			err = fmt.Errorf("%w; its processes do not die within %v", err, killLimit)
		}
		return -1, err
	}
	if report.Kind == entry.Failed {
		return -1, errors.New(report.Text)
	}
	ws := syscall.WaitStatus(report.Value)
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// hangUp tells the helper to kill everything: its reading end ends.
func (h *helper) hangUp() {
	if rc, err := h.control.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}

// exchange is the conversation up to the last report.
func (h *helper) exchange(req *entry.Request, started func()) (entry.Report, error) {
	if _, err := h.control.Write(req.Encode()); err != nil {
		return entry.Report{}, fmt.Errorf("satl-init does not listen: %w", err)
	}
	for {
		report, err := h.read()
		if err != nil {
			return report, fmt.Errorf("satl-init ended without a report: %w", err)
		}
		if report.Kind != entry.Started {
			return report, nil
		}
		if started != nil {
			started()
		}
	}
}

func (h *helper) read() (entry.Report, error) {
	var head [4]byte
	if _, err := io.ReadFull(h.control, head[:]); err != nil {
		return entry.Report{}, err
	}
	b := make([]byte, min(entry.Length(head[:]), entry.MaxLength))
	if _, err := io.ReadFull(h.control, b); err != nil {
		return entry.Report{}, err
	}
	return entry.DecodeReport(b)
}
