// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/creack/pty"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// entrance is all that a process needs to know to get into a jail and become
// what it is to run there.
type entrance struct {
	Process  *specs.Process
	Root     string
	Hostname string // "": the host's
	NetNS    string // to join, "" for none
	Console  string // socket to send a terminal to, "" for the stdio as it is
	Fifo     string // to wait in before it runs, "" for none
	Session  bool   // a session of its own
}

// into makes the entrance of a jail.
func into(j *world.Jail, p *specs.Process) entrance {
	return entrance{Process: p, Root: j.Path, Hostname: j.Hostname, NetNS: j.NetNS}
}

// prepare is what comes before the jail: session and terminal. The order of
// these calls, and that setsid(2) fails in a group leader, are ocijail's.
func (e entrance) prepare() error {
	switch {
	case e.Process.Terminal && e.Console != "":
		return e.terminal()
	case e.Session && !e.Process.Terminal:
		if _, err := syscall.Setsid(); err != nil {
			return say("error calling setsid", err)
		}
	}
	return nil
}

// terminal makes a pty the controlling terminal and the stdio, and sends its
// master through the console socket.
func (e entrance) terminal() error {
	master, tty, err := pty.Open()
	if err != nil {
		return say("error from posix_openpt", err)
	}
	defer master.Close()
	if _, err := syscall.Setsid(); err != nil {
		return say("setsid", err)
	}
	if err := unix.IoctlSetInt(int(tty.Fd()), unix.TIOCSCTTY, 0); err != nil {
		return say("TIOCSCTTY", err)
	}
	// Through the directory: a path may be longer than sun_path.
	dir, err := os.Open(filepath.Dir(e.Console))
	if err != nil {
		return say("open "+filepath.Dir(e.Console), err)
	}
	defer dir.Close()
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(e.Console)))
	if err != nil {
		return say("connectat "+filepath.Base(e.Console), err)
	}
	defer conn.Close()
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte{0}, unix.UnixRights(int(master.Fd())), nil); err != nil {
		return say("sendmsg", err)
	}
	for fd := range 3 {
		if err := unix.Dup2(int(tty.Fd()), fd); err != nil {
			return say("dup2", err)
		}
	}
	return nil
}

// attach is jail_attach(2). Namespaces are a thread's: see init.
func (e entrance) attach() error {
	if e.NetNS != "" {
		ns, err := os.Open(e.NetNS)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err != nil {
			return say("error calling jail_attach", err)
		}
	}
	if e.Hostname != "" {
		err := unix.Unshare(unix.CLONE_NEWUTS)
		if err == nil {
			err = unix.Sethostname([]byte(e.Hostname))
		}
		if err != nil {
			return say("error calling jail_attach", err)
		}
	}
	err := unix.Chroot(e.Root)
	if err == nil {
		err = unix.Chdir("/")
	}
	if err != nil {
		return say("error calling jail_attach", err)
	}
	return nil
}

func env(list []string, key string) (string, bool) {
	for _, kv := range list {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v, true
		}
	}
	return "", false
}

func executable(path string) error {
	if err := unix.Access(path, unix.X_OK); err != nil {
		return err
	}
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return syscall.EACCES
	}
	return nil
}

// find is where args[0] is, by absolute path, PATH of process.env, or the
// working directory. Inside the jail.
func (e entrance) find() (string, error) {
	name := e.Process.Args[0]
	if strings.HasPrefix(name, "/") {
		if err := executable(name); err != nil {
			return "", say(name, err)
		}
		return name, nil
	}
	path, _ := env(e.Process.Env, "PATH")
	for _, dir := range append(filepath.SplitList(path), e.Process.Cwd) {
		if file := filepath.Join(dir, name); executable(file) == nil {
			return file, nil
		}
	}
	return "", say(fmt.Sprintf("'%s' not found in $PATH", name), syscall.ENOENT)
}

// become runs the process; it returns only when that failed.
func (e entrance) become(path string) error {
	p := *e.Process
	if home, _ := env(p.Env, "HOME"); home == "" {
		p.Env = append(slices.DeleteFunc(slices.Clone(p.Env), func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }), "HOME=/")
	}
	if err := os.Chdir(p.Cwd); err != nil {
		return say("error changing directory to"+p.Cwd, err)
	}
	groups := []int{int(p.User.GID)}
	for _, g := range p.User.AdditionalGids {
		groups = append(groups, int(g))
	}
	if err := syscall.Setgroups(groups); err != nil {
		return say("error calling setgroups", err)
	}
	if err := syscall.Setgid(int(p.User.GID)); err != nil {
		return say("error calling getgid", err)
	}
	if err := syscall.Setuid(int(p.User.UID)); err != nil {
		return say("error calling setuid", err)
	}
	syscall.Umask(rootUmask)
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return say("close_range", err)
	}
	return fmt.Errorf("ocijail: error executing container command: %s", words(syscall.Exec(path, p.Args, p.Env)))
}

// checkProcess is what ocijail wants of a process document.
func checkProcess(p *specs.Process, console string, detached bool) error {
	malformed := func(text string) error { return errors.New("create: malformed config: " + text) }
	switch {
	case p == nil:
		return malformed("no process")
	case p.Cwd == "":
		return malformed("no process.cwd")
	case p.Args == nil:
		return malformed("no process.args")
	case len(p.Args) == 0:
		return malformed("process.args must have at least one element")
	case p.Terminal && detached && console == "":
		return errors.New("--console-socket is required when detached if process.terminal is true")
	case !p.Terminal && console != "":
		return errors.New("--console-socket provided but process.terminal is false")
	}
	return nil
}

// childEnv makes the tool the forked half of `ocijail create` or of a detached
// exec: what to do comes through descriptor 3, whether it can be done is told
// through 4, one byte.
const childEnv = "FAKEFREEBSD_CHILD"

func runChild() {
	os.Unsetenv(childEnv)
	status := os.NewFile(4, "status")
	words := os.Stderr // as it was inherited; a terminal takes its place later
	if fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 10); err == nil {
		words = os.NewFile(uintptr(fd), "stderr")
	}
	refuse := func(err error) {
		fmt.Fprint(words, err) // as it is: this is the container's stderr
		_, _ = status.Write([]byte{1})
		os.Exit(1)
	}
	var e entrance
	if err := json.NewDecoder(os.NewFile(3, "entrance")).Decode(&e); err != nil {
		refuse(err)
	}
	if err := e.prepare(); err != nil {
		refuse(err)
	}
	fifo := -1
	if e.Fifo != "" {
		var err error
		if fifo, err = unix.Open(e.Fifo, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			refuse(say("open start fifo", err))
		}
	}
	if err := e.attach(); err != nil {
		refuse(err)
	}
	path, err := e.find()
	if err != nil {
		refuse(err)
	}
	if _, err := status.Write([]byte{0}); err != nil {
		refuse(say("error writing to create socket", err))
	}
	for err = syscall.EINTR; fifo >= 0 && err == syscall.EINTR; {
		_, err = unix.Read(fifo, make([]byte, 1))
	}
	fmt.Fprintln(os.Stderr, e.become(path))
	os.Exit(1)
}
