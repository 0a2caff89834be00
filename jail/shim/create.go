// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"satld/jail/logfile"
)

// commandLimit is how long a runtime's command may take when the request does
// not say.
const commandLimit = 60 * time.Second

// create runs the runtime's create with the container's stdio, so that they
// are ours, and takes over the first process, which is ours when it ends.
func (s *server) create(id string, req CreateRequest) (pid int, err error) {
	log, err := logfile.NewWriter(s.dir.Logs(id), req.Init.LogMaxSize, req.Init.LogMaxFiles)
	if err != nil {
		return 0, err
	}
	c := newContainer(id, req.Init, log)
	defer func() {
		if err != nil {
			c.finish()
		}
	}()
	s.reaper.begin()
	defer s.reaper.end()
	if req.Init.TTY {
		err = s.runWithConsole(c, req)
	} else {
		err = s.runWithPipes(c, req)
	}
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(req.PidFile)
	if err != nil {
		return 0, fmt.Errorf("read the pid the runtime wrote: %w", err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil || pid <= 0 {
		return 0, fmt.Errorf("read the pid the runtime wrote: %q is none", b)
	}
	c.init.Pid = pid
	c.init.Ticks, _ = StartTicks(pid) // 0 when it has ended already: then nobody will ask
	c.init.OOMFile = oomFile(pid)
	c.init.Waiting = commandLine(pid)
	if err := writeJSON(s.dir.file(id, "init.json"), c.init); err != nil {
		signalPid(pid)
		return 0, err
	}
	status := s.reaper.claim(pid)
	s.add(c)
	go s.watch(c, func() Exit { return c.exit(code(<-status)) })
	return pid, nil
}

func (s *server) runWithPipes(c *container, req CreateRequest) error {
	p, err := s.dir.makePipes(c.id, req.Init.Stdin)
	if err != nil {
		return err
	}
	c.stdin = p.ours[0]
	c.pump(p.ours[1], logfile.Stdout)
	c.pump(p.ours[2], logfile.Stderr)
	err = s.command(req.Argv, req.Timeout, p.theirs)
	p.closeTheirs()
	return err
}

// runWithConsole lets the runtime make the terminal and send us its master.
func (s *server) runWithConsole(c *container, req CreateRequest) error {
	const name = "console.sock"
	os.Remove(s.dir.file(c.id, name))
	dirf, path, err := short(s.dir.Container(c.id), name)
	if err != nil {
		return err
	}
	defer dirf.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen for the console: %w", err)
	}
	defer l.Close()
	limit := req.Timeout
	if limit <= 0 {
		limit = commandLimit
	}
	l.SetDeadline(time.Now().Add(limit))
	masters := make(chan *os.File, 1)
	go func() {
		defer close(masters)
		if f, err := receiveFile(l); err == nil {
			masters <- f
		} else if !errors.Is(err, net.ErrClosed) {
			complain("container %s: receive its console: %v", c.id, err)
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	argv := slices.Clone(req.Argv)
	for i, a := range argv {
		if a == ConsoleArg {
			argv[i] = path
		}
	}
	if err := s.command(argv, limit, [3]*os.File{null, null, null}); err != nil {
		return err
	}
	master, ok := <-masters
	if !ok {
		return errors.New("the runtime sent no console")
	}
	c.console = master
	if req.Init.Stdin {
		c.stdin = master
	}
	c.pumpConsole(master)
	return nil
}

// receiveFile takes one connection and the one file sent over it.
func receiveFile(l *net.UnixListener) (*os.File, error) {
	cn, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer cn.Close()
	cn.SetDeadline(time.Now().Add(commandLimit))
	data, oob := make([]byte, 4096), make([]byte, 64)
	_, n, _, _, err := cn.ReadMsgUnix(data, oob)
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, fmt.Errorf("no file came with the console message (%v)", err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("no file came with the console message (%v)", err)
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "console"), nil
}

// command runs a command of the runtime to its end, at most for limit.
func (s *server) command(argv []string, limit time.Duration, stdio [3]*os.File) error {
	if limit <= 0 {
		limit = commandLimit
	}
	files := []uintptr{stdio[0].Fd(), stdio[1].Fd(), stdio[2].Fd()}
	pid, status, err := s.reaper.start(argv, files, &syscall.SysProcAttr{Setsid: commandSetsid})
	if err != nil {
		return fmt.Errorf("run %s: %w", strings.Join(argv, " "), err)
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case ws := <-status:
		if ws.Exited() && ws.ExitStatus() == 0 {
			return nil
		}
		return refuse(KindRuntime, "%s: exit status %d", strings.Join(argv, " "), code(ws))
	case <-late.C:
		signalPid(pid)
		<-status
		return refuse(KindRuntime, "%s: killed after %v", strings.Join(argv, " "), limit)
	}
}
