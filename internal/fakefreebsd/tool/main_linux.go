// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"satld/internal/fakefreebsd/world"
)

// call is one run of a program.
type call struct {
	dir   string // of the world
	log   *world.Log
	name  string
	args  []string
	stdin string
	out   strings.Builder
	fault *world.Fault
	// inside is the jail that jexec(8) runs the program in.
	inside string
}

// programs are the names the tool answers to.
var programs = map[string]func(*call) int{
	"ocijail": ocijail, "jls": jls, "jail": jail, "jexec": jexec, "ps": ps,
	"ifconfig": ifconfig, "route": route, "netstat": netstat, "arp": arp,
	"pfctl": pfctl, "zfs": zfs, "mount": mount, "umount": umount, "devfs": devfs,
	"sysctl": sysctl, "kldstat": kldstat, "kldload": kldload, "rctl": rctl,
}

// The first thread does everything: it is the one that has the parent-death
// signal, and an exec from another one would lose that.
func init() { runtime.LockOSThread() }

func main() {
	if os.Getenv(childEnv) != "" {
		runChild()
		return
	}
	os.Exit(run())
}

func run() int {
	self := os.Args[0]
	if !strings.Contains(self, "/") {
		found, err := exec.LookPath(self)
		if err != nil {
			fmt.Fprintln(os.Stderr, "fake freebsd:", err)
			return 99
		}
		self = found
	}
	c := &call{
		dir: filepath.Join(filepath.Dir(filepath.Dir(self)), "state"), name: filepath.Base(self), args: os.Args[1:],
	}
	program := programs[c.name]
	if program == nil || !world.Exists(c.dir) {
		fmt.Fprintf(os.Stderr, "fake freebsd: no %s of a fake host here (%s)\n", c.name, c.dir)
		return 99
	}
	if c.name == "pfctl" && slices.Contains(c.args, "-") || c.name == "arp" && slices.Contains(c.args, "/dev/stdin") {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return c.fail(1, "%v", err)
		}
		c.stdin = string(text)
	}
	if os.Getenv(world.OperatorEnv) != "" {
		exit := program(c)
		fmt.Print(c.out.String())
		return exit
	}
	id := fmt.Sprintf("%d.%d", os.Getpid(), time.Now().UnixNano())
	var err error
	if c.log, err = world.Begin(c.dir, id, world.Call{Tool: c.name, Args: c.args, Stdin: c.stdin}); err != nil {
		fmt.Fprintln(os.Stderr, "fake freebsd:", err)
		return 99
	}
	return c.end(c.run(program))
}

// run does the program, or what a fault makes of it.
func (c *call) run(program func(*call) int) int {
	line := strings.Join(append([]string{c.name}, c.args...), " ")
	c.update(func(w *world.World) { c.fault = w.TakeFault(line) })
	if f := c.fault; f != nil {
		time.Sleep(f.Hang)
		lies := f.Exit == 0 && (f.Stdout != "" || f.Stderr != "")
		if f.Done {
			if exit := program(c); exit != 0 {
				return exit
			}
		}
		if f.Exit != 0 || lies {
			fmt.Print(f.Stdout)
			fmt.Fprint(os.Stderr, f.Stderr)
			return f.Exit
		}
	}
	exit := program(c)
	fmt.Print(c.out.String())
	return exit
}

// end writes the call's exit code down.
func (c *call) end(exit int) int {
	if err := c.log.End(exit); err != nil {
		fmt.Fprintln(os.Stderr, "fake freebsd:", err)
		return 99
	}
	return exit
}

// update changes the world, in which time has passed first.
func (c *call) update(change func(*world.World)) {
	err := world.Update(c.dir, func(w *world.World) error {
		c.pass(w)
		change(w)
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "fake freebsd:", err)
		os.Exit(99)
	}
}

// printf is the program's output, which comes when it is done.
func (c *call) printf(format string, args ...any) { fmt.Fprintf(&c.out, format, args...) }

// fail is err(3): a line on stderr, headed by the program's name.
func (c *call) fail(exit int, format string, args ...any) int {
	fmt.Fprintf(os.Stderr, c.name+": "+format+"\n", args...)
	return exit
}

// words is how the C library names an error on FreeBSD, where it differs.
func words(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	switch errno {
	case syscall.EBUSY:
		return "Device busy"
	case syscall.EPERM:
		return "Operation not permitted"
	case syscall.ENOENT:
		return "No such file or directory"
	case syscall.EACCES:
		return "Permission denied"
	case syscall.EINVAL:
		return "Invalid argument"
	case syscall.ESRCH:
		return "No such process"
	case syscall.EEXIST:
		return "File exists"
	case syscall.ENOTDIR:
		return "Not a directory"
	case syscall.ENOEXEC:
		return "Exec format error"
	}
	return errno.Error()
}
