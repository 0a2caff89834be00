// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

func (o *oci) create(id string, args arguments) error {
	if exists(o.fileOf(id)) {
		return fmt.Errorf("container %s exists", id)
	}
	bundle, err := filepath.Abs(args.get("-b", "--bundle"))
	if err != nil {
		return err
	}
	config, err := readConfig(bundle)
	if err != nil {
		return err
	}
	console := args.get("--console-socket")
	if err := checkProcess(config.Process, console, true); err != nil {
		return err
	}
	root := filepath.Join(bundle, "root")
	if config.Root != nil && config.Root.Path != "" {
		root = config.Root.Path
	}
	if st, err := os.Stat(root); err != nil || !st.IsDir() {
		return fmt.Errorf("root directory %q must be a directory", root)
	}
	j, err := o.prison(id, root, config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.dirOf(id), 0o700); err != nil {
		return say("create state directory", err)
	}
	k := container{Status: "created", Bundle: bundle, Root: root, Config: config}
	if err := o.mountAll(id, &k, j); err != nil {
		return err
	}
	if err := o.jailSet(j); err != nil {
		return err
	}
	if o.fault != nil && o.fault.Crash {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // jail and mounts are left, no state
	}
	if err := unix.Mkfifo(o.fifoOf(id), 0o600); err != nil {
		return say("error creating start fifo", err)
	}
	in := into(j, config.Process)
	in.NetNS = "" // made by the fork
	in.Console, in.Fifo, in.Session = console, o.fifoOf(id), true
	var flags uintptr
	if j.NetNS != "" {
		flags |= unix.CLONE_NEWNET
	}
	pid, wait, err := fork(id, in, flags)
	if err != nil {
		return err
	}
	if j.NetNS != "" {
		if err := pin(pid, j.NetNS); err != nil {
			return err
		}
	}
	if err := o.writePid(args.get("--pid-file"), pid); err != nil {
		return err
	}
	k.JID, k.PID = j.JID, pid
	if err := o.save(id, k); err != nil {
		return err
	}
	if wait() == 0 {
		return nil
	}
	// It said why itself.
	o.update(func(w *world.World) {
		if err = o.remove(w, w.Jail(id)); err == nil {
			err = o.unmountAll(w, k)
		}
	})
	if err == nil {
		err = os.RemoveAll(o.dirOf(id))
	}
	if err != nil {
		return err
	}
	os.Exit(o.end(1))
	return nil
}

func readConfig(bundle string) (*specs.Spec, error) {
	if st, err := os.Stat(bundle); err != nil || !st.IsDir() {
		return nil, usage{105, "--bundle: Directory does not exist: " + bundle}
	}
	b, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, errors.New("create: bundle directory must contain config.json")
	}
	config := new(specs.Spec)
	if err := json.Unmarshal(b, config); err != nil {
		return nil, fmt.Errorf("[json.exception.parse_error.101] %w", err)
	}
	if config.Version == "" {
		return nil, errors.New("create: malformed config: no ociVersion")
	}
	if v := strings.Split(config.Version, "."); len(v) != 3 || v[0] != "1" || !slices.Contains([]string{"0", "1", "2", "3"}, v[1]) {
		return nil, fmt.Errorf("create: unsupported OCI version %s", config.Version)
	}
	return config, nil
}

// allowed are the jail parameters that an annotation may set.
var allowed = []string{
	"adjtime", "chflags", "extattr", "mlock", "mount", "mount.devfs", "mount.fdescfs", "mount.nullfs", "mount.procfs",
	"mount.tmpfs", "mount.zfs", "nfsd", "quotas", "raw_sockets", "read_msgbuf", "reserved_ports", "routing", "set_hostname",
	"setaudit", "settime", "socket_af", "suser", "sysvipc", "unprivileged_parent_tampering", "unprivileged_proc_debug",
}

// prison reads out of a config what jail_set(2) is to make.
func (o *oci) prison(id, root string, config *specs.Spec) (*world.Jail, error) {
	j := &world.Jail{Name: id, Path: root, Hostname: config.Hostname, Params: []string{"allow.raw_sockets", "allow.chflags"}}
	for key, value := range config.Annotations {
		name, ok := strings.CutPrefix(key, "org.freebsd.jail.")
		if !ok {
			continue
		}
		bad := fmt.Errorf("bad value for %s: %s", key, value)
		switch param, allow := strings.CutPrefix(name, "allow."); {
		case allow && !slices.Contains(allowed, param):
			o.complain(fmt.Sprintf("warning: unknown jail allow annotation '%s', ignoring", key))
		case allow:
			if value == "true" || value == "1" {
				j.Params = append(j.Params, name)
			}
		case name == "vnet" && value == "new":
			j.VNET = true
		case name == "vnet" && value != "inherit":
			return nil, bad
		case name == "sysvmsg" || name == "sysvsem" || name == "sysvshm":
			if !slices.Contains([]string{"new", "inherit", "disable"}, value) {
				return nil, bad
			}
			j.Params = append(j.Params, name+"="+value)
		case name == "ip4.addr":
			j.Params = append(j.Params, "ip4.addr="+value)
		}
	}
	slices.Sort(j.Params)
	return j, nil
}

// jailSet is jail_set(2): the jail is there, with nobody in it.
func (o *oci) jailSet(j *world.Jail) (err error) {
	if j.RootDev, j.RootIno, err = rootOf(j.Path); err != nil {
		return say("error calling jail_set", err)
	}
	o.update(func(w *world.World) {
		if old := w.Jail(j.Name); old != nil {
			err = fmt.Errorf("error calling jail_set: jail %d already exists: File exists", old.JID)
			return
		}
		w.NextJID++
		j.JID = w.NextJID
		if j.VNET {
			w.Links = append(w.Links, &world.Link{Name: "lo0", Kind: "lo", Jail: j.Name, MTU: 16384, Groups: []string{"lo"}, Index: 1})
			if w.RealNetwork {
				j.NetNS = filepath.Join(o.dir, fmt.Sprintf("netns-%d", j.JID))
			}
		}
		w.Jails = append(w.Jails, j)
	})
	return err
}

// fork starts the other half of the tool with this one's stdio. wait gives
// the one byte by which it says whether it can do what it is to.
func fork(name string, in entrance, unshare uintptr) (pid int, wait func() byte, err error) {
	specR, specW, err := os.Pipe()
	if err != nil {
		return 0, nil, say("error creating socket pair", err)
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return 0, nil, say("error creating socket pair", err)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"ocijail: " + name}, Env: append(os.Environ(), childEnv+"=1"),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{specR, statusW},
		SysProcAttr: &syscall.SysProcAttr{Unshareflags: unshare},
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, say("fork", err)
	}
	specR.Close()
	statusW.Close()
	if err := json.NewEncoder(specW).Encode(in); err != nil {
		return 0, nil, say("write to create socket", err)
	}
	specW.Close()
	return cmd.Process.Pid, func() byte {
		b := []byte{1} // it is gone without a word
		_, _ = statusR.Read(b)
		return b[0]
	}, nil
}

// pin keeps a process's network stack for as long as the jail lives.
func pin(pid int, at string) error {
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		return say("make a VNET", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", pid), at, "", unix.MS_BIND, ""); err != nil {
		return say("make a VNET", err)
	}
	return nil
}

// writePid writes a pid file, which is not done in one step: a late one is
// there and empty before it holds the pid.
func (o *oci) writePid(file string, pid int) error {
	if file == "" {
		return nil
	}
	w, err := world.Read(o.dir)
	if err != nil {
		return err
	}
	late := w.Knobs.PidFileLate
	if late == 0 {
		return os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf(`/bin/sleep %.3f; [ ! -e "$1" ] || printf %d >"$1"`, late.Seconds(), pid), "late", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// exec: without --detach this very process becomes the command, in a session
// of its own; no pid file is written then.
func (o *oci) exec(id string, args arguments) error {
	file := args.get("--process")
	switch {
	case file == "":
		return usage{106, "--process is required"}
	case !exists(file):
		return usage{105, "--process: Path does not exist: " + file}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	process := new(specs.Process)
	if err := json.Unmarshal(b, process); err != nil {
		return fmt.Errorf("[json.exception.parse_error.101] %w", err)
	}
	process.Terminal = process.Terminal || args.has("-t", "--tty")
	console, detach := args.get("--console-socket"), args.has("-d", "--detach")
	if err := checkProcess(process, console, detach); err != nil {
		return err
	}
	k, lock, err := o.locked(id)
	if err != nil {
		return err
	}
	defer lock.Close()
	var in entrance
	o.update(func(w *world.World) {
		if j := w.LiveJail(strconv.Itoa(k.JID)); j != nil {
			in = into(j, process)
		}
	})
	in.Console, in.Session = console, true
	if detach {
		if in.Root == "" {
			return say("error calling jail_attach", syscall.EINVAL)
		}
		pid, wait, err := fork(id, in, 0)
		if err != nil {
			return err
		}
		if err := o.writePid(args.get("--pid-file"), pid); err != nil {
			return err
		}
		if wait() != 0 {
			os.Exit(o.end(1))
		}
		return nil
	}
	in.Process = process
	if err := in.prepare(); err != nil {
		return err
	}
	if in.Root == "" {
		return say("error calling jail_attach", syscall.EINVAL)
	}
	if err := in.attach(); err != nil {
		return err
	}
	path, err := in.find()
	if err != nil {
		return err
	}
	return in.become(path)
}
