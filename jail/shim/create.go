// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

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
	if pid, err = awaitPid(req.PidFile); err != nil {
		return 0, err
	}
	c.init.Pid = pid
	c.init.Ticks, _ = StartTicks(pid) // 0 when it has ended already: then nobody will ask
	c.init.OOMFile = oomFile(pid)
	c.init.Waiting = commandLine(pid)
	if err := s.dir.writeInit(id, c.init); err != nil {
		signalPid(pid)
		return 0, err
	}
	status := s.reaper.claim(pid)
	s.add(c)
	go s.watch(c, func() Exit { return c.exit(code(<-status)) })
	return pid, nil
}

// pidLimit is how long after its command's end a runtime may take to write the
// pid file.
const pidLimit = 5 * time.Second

// awaitPid reads a pid file that may be late.
func awaitPid(file string) (pid int, err error) {
	for deadline := time.Now().Add(pidLimit); ; time.Sleep(10 * time.Millisecond) {
		if pid, err = ReadPid(file); err == nil || time.Now().After(deadline) {
			return pid, err
		}
	}
}

// ReadPid reads the pid file that a runtime wrote.
func ReadPid(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the pid the runtime wrote: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("read the pid the runtime wrote: %q is none", b)
	}
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
	console, err := ListenConsole(s.dir.Container(c.id))
	if err != nil {
		return err
	}
	defer console.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	words := null
	if req.Errors != "" {
		if words, err = os.OpenFile(req.Errors, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return err
		}
		defer words.Close()
	}
	argv := slices.Clone(req.Argv)
	for i, a := range argv {
		if a == ConsoleArg {
			argv[i] = console.Path
		}
	}
	if err := s.command(argv, req.Timeout, [3]*os.File{null, null, words}); err != nil {
		return err
	}
	master, err := console.Receive()
	if err != nil {
		return err
	}
	if req.Rows > 0 {
		if err := setSize(master, req.Columns, req.Rows); err != nil {
			complain("container %s: size of its terminal: %v", c.id, err)
		}
	}
	c.console = master
	if req.Init.Stdin {
		c.stdin = master
	}
	c.pumpConsole(master)
	return nil
}

// command runs a command of the runtime to its end, at most for limit.
func (s *server) command(argv []string, limit time.Duration, stdio [3]*os.File) error {
	if limit <= 0 {
		limit = commandLimit
	}
	files := []uintptr{stdio[0].Fd(), stdio[1].Fd(), stdio[2].Fd()}
	// It dies with us, rather than making a container that nobody holds. (The
	// signal comes when the thread that forked ends; ours end with the process.)
	pid, status, err := s.reaper.start(argv, files, &syscall.SysProcAttr{Setsid: commandSetsid, Pdeathsig: syscall.SIGKILL})
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
		killCommand(pid)
		<-status
		return refuse(KindRuntime, "%s: killed after %v", strings.Join(argv, " "), limit)
	}
}
