// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"satld/jail/logfile"
)

// ReadyEnv names the descriptor on which a starting shim tells its parent
// that it listens ("ok"), or why it does not.
const ReadyEnv = "SATL_SHIM_READY_FD"

// InJailFlag and SetFlag make the command do something else: enter a jail, set
// a number by sysctl(3), end. It is a process of its own, as a jail is entered
// for good.
const (
	InJailFlag = "--in-jail"
	SetFlag    = "--set"
)

// Main is `satld shim --state-dir DIR`: it returns when the shim has ended.
// One that runs in the directory already is no error.
func Main(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("shim", flag.ContinueOnError)
	dir := fs.String("state-dir", "", "state directory of the containers")
	jid := fs.Int(strings.TrimPrefix(InJailFlag, "--"), 0, "instead: enter this jail")
	setting := fs.String(strings.TrimPrefix(SetFlag, "--"), "", "and there set NAME=NUMBER")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *jid > 0 {
		return setInJail(*jid, *setting)
	}
	if *dir == "" || fs.NArg() > 0 {
		return fmt.Errorf("usage: shim --state-dir DIR")
	}
	// It moves bytes inside the kernel and keeps a few small maps.
	debug.SetGCPercent(25)
	debug.SetMemoryLimit(24 << 20)
	debug.FreeOSMemory() // what the packages of the whole program made at their start
	// Handlers instead of SIG_IGN, so that what the containers run gets the defaults.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTERM)
	return run(ctx, Dir(*dir))
}

func run(ctx context.Context, dir Dir) (err error) {
	ready := func(string) {}
	if fd, ok := os.LookupEnv(ReadyEnv); ok {
		os.Unsetenv(ReadyEnv)
		var n uintptr
		if _, err := fmt.Sscan(fd, &n); err == nil {
			unix.CloseOnExec(int(n))
			f := os.NewFile(n, "ready")
			ready = func(text string) {
				f.WriteString(text)
				f.Close()
			}
		}
	}
	defer func() {
		if err != nil {
			ready(err.Error())
		}
	}()
	lock, err := os.OpenFile(dirFile(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	defer lock.Close()
	if err := takeLock(lock, 2*time.Second); err != nil {
		return fmt.Errorf("shim: another one runs in %s: %w", dir, err)
	}
	if err := becomeReaper(); err != nil {
		return fmt.Errorf("shim: become the parent of orphans: %w", err)
	}
	s := newServer(dir)
	children := make(chan os.Signal, 16)
	signal.Notify(children, syscall.SIGCHLD)
	go s.reaper.run(children)
	s.adopt()

	os.Remove(dirFile(dir, socketName)) // ours: we hold the lock
	old := unix.Umask(0o177)
	l, err := listen(string(dir), socketName)
	unix.Umask(old)
	if err != nil {
		return fmt.Errorf("shim: listen in %s: %w", dir, err)
	}
	l.SetUnlinkOnClose(false)
	ready("ok")
	ready = func(string) {}
	stop := context.AfterFunc(ctx, func() {
		// Asked to end by a signal: not while there is something to hold.
		if s.quit() {
			close(s.done)
		} else {
			complain("not ending: there are containers")
		}
	})
	defer stop()
	s.serve(l)
	os.Remove(dirFile(dir, socketName))
	return nil
}

func dirFile(d Dir, name string) string { return string(d) + "/" + name }

// takeLock waits a little for a shim that is ending.
func takeLock(f *os.File, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// adopt takes over what an earlier shim held when it was killed.
func (s *server) adopt() {
	entries, err := os.ReadDir(s.dir.Containers())
	if err != nil {
		return // there were none yet
	}
	for _, e := range entries {
		id := e.Name()
		if err := s.adoptOne(id); err != nil {
			complain("container %s: take over: %v", id, err)
		}
	}
}

func (s *server) adoptOne(id string) error {
	init, ok, err := s.dir.ReadInit(id)
	if !ok || err != nil {
		return err
	}
	if _, ok, err := s.dir.ReadExit(id); ok || err != nil {
		return err
	}
	log, err := logfile.NewWriter(s.dir.Logs(id), init.LogMaxSize, init.LogMaxFiles)
	if err != nil {
		return err
	}
	c := newContainer(id, init, log)
	if !init.TTY { // a terminal died with the shim that held it
		var p pipes
		if err := p.open(s.dir, id, init.Stdin); err != nil {
			complain("container %s: take over its output: %v", id, err)
		}
		c.stdin = p.ours[0]
		if p.ours[1] != nil {
			c.pump(p.ours[1], logfile.Stdout)
		}
		if p.ours[2] != nil {
			c.pump(p.ours[2], logfile.Stderr)
		}
	}
	s.add(c)
	ended, known, err := s.dir.readEnded(id)
	if err != nil {
		complain("container %s: %v", id, err)
	}
	go s.watch(c, func() Exit {
		if known {
			return ended
		}
		return c.exit(waitStranger(init.Pid, init.Ticks))
	})
	return nil
}
