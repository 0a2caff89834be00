// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"satld/internal/fakefreebsd/world"
)

// oci is one run of ocijail.
type oci struct {
	*call
	root  string
	json  bool
	logTo string
}

// container is what ocijail keeps of one in its --root.
type container struct {
	Status string      `json:"status"`
	PID    int         `json:"pid"`
	JID    int         `json:"jid"`
	Bundle string      `json:"bundle"`
	Root   string      `json:"root_path"`
	Config *specs.Spec `json:"config"`
	// Mounted are the mount points that delete undoes.
	Mounted []string `json:"mounted"`
	Made    []string `json:"remove_on_unmount"`
}

// usage is how CLI11, the library ocijail reads its command line with, ends
// on one it cannot use: required 106, validation 105, unexpected 109.
type usage struct {
	exit int
	text string
}

func (u usage) Error() string { return u.text }

// rootUmask is what every container gets, whatever asks for another.
const rootUmask = 0o077

// ocijail: https://github.com/dfr/ocijail 0.6.0-dev, as facts/freebsd.md tells
// it. Each verb is here but features. Where the real one unmounts by force, this
// one refuses while somebody uses the mount, which is harder on its callers.
func ocijail(c *call) int {
	o := &oci{call: c, root: "/var/run/ocijail"}
	err := o.run()
	var u usage
	switch {
	case err == nil:
		return 0
	case errors.As(err, &u):
		fmt.Fprintf(os.Stderr, "%s\nRun with --help for more information.\n", u.text)
		return u.exit
	}
	o.complain(err.Error())
	return 1
}

func (o *oci) complain(text string) {
	now := time.Now().UTC()
	// std::setw(9) of microseconds, as on the real one: not RFC 3339.
	at := fmt.Sprintf("%s%09dZ", now.Format("2006-01-02T15:04:05"), now.Nanosecond()/1000)
	line := at + ": " + text + "\n"
	if o.json {
		b, _ := json.Marshal(map[string]string{"level": "error", "msg": text, "time": at})
		line = string(b) + "\n"
	}
	if o.logTo == "" {
		fmt.Fprint(os.Stderr, line)
		return
	}
	f, err := os.OpenFile(o.logTo, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		defer f.Close()
		_, err = f.WriteString(line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Fprintf(os.Stderr, "Error: %s\n", text)
}

func (o *oci) run() error {
	args, err := o.options(o.args, map[string]bool{"--root": true, "--log": true, "--log-format": true, "--log-level": true, "--version": false}, true)
	if err != nil {
		return err
	}
	if _, ok := args.given["--version"]; ok {
		o.printf("ocijail version 0.6.0-dev\n")
		return nil
	}
	if r, ok := args.given["--root"]; ok {
		o.root = r
	}
	o.json, o.logTo = args.given["--log-format"] == "json", args.given["--log"]
	if len(args.rest) == 0 {
		return usage{106, "A subcommand is required"}
	}
	verb, rest := args.rest[0], args.rest[1:]
	known, ok := verbs[verb]
	if !ok {
		return usage{109, "The following argument was not expected: " + verb}
	}
	if args, err = o.options(rest, known.options, false); err != nil {
		return err
	}
	if known.run == nil {
		return known.all(o, args)
	}
	if len(args.rest) == 0 {
		return usage{106, "container-id is required"}
	}
	if len(args.rest) > 1+known.more {
		return usage{109, "The following argument was not expected: " + args.rest[1+known.more]}
	}
	return known.run(o, args.rest[0], args)
}

type verb struct {
	options map[string]bool // true: with a value
	more    int             // arguments after the container's ID
	run     func(*oci, string, arguments) error
	all     func(*oci, arguments) error
}

var verbs map[string]verb

func init() {
	verbs = map[string]verb{
		"create": {options: map[string]bool{"-b": true, "--bundle": true, "--pid-file": true, "--console-socket": true, "--preserve-fds": true}, run: (*oci).create},
		"start":  {run: (*oci).start},
		"state":  {run: (*oci).state},
		"exec": {options: map[string]bool{"--process": true, "--pid-file": true, "--console-socket": true, "-d": false, "--detach": false,
			"-t": false, "--tty": false, "--preserve-fds": true}, run: (*oci).exec},
		"kill":   {options: map[string]bool{"-a": false, "--all": false, "-p": true, "--pid": true}, more: 1, run: (*oci).kill},
		"delete": {options: map[string]bool{"--force": false}, run: (*oci).delete},
		"list":   {options: map[string]bool{"-f": true, "--format": true, "-q": false, "--quiet": false}, all: (*oci).list},
	}
}

// arguments are a parsed command line.
type arguments struct {
	given map[string]string
	rest  []string
}

func (a arguments) has(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { _, ok := a.given[n]; return ok })
}

func (a arguments) get(names ...string) string {
	for _, n := range names {
		if v, ok := a.given[n]; ok {
			return v
		}
	}
	return ""
}

// options reads options and, up to the first word when stop is set, the rest.
func (o *oci) options(args []string, known map[string]bool, stop bool) (arguments, error) {
	out := arguments{given: map[string]string{}}
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") || len(name) == 1 {
			if stop {
				out.rest = args[i:]
				return out, nil
			}
			out.rest = append(out.rest, args[i])
			continue
		}
		takes, ok := known[name]
		if !ok {
			return out, usage{109, "The following argument was not expected: " + args[i]}
		}
		if takes && !joined {
			if i++; i == len(args) {
				return out, usage{114, name + ": 1 required TEXT missing"}
			}
			value = args[i]
		}
		out.given[name] = value
	}
	return out, nil
}

func (o *oci) dirOf(id string) string  { return filepath.Join(o.root, id) }
func (o *oci) fileOf(id string) string { return filepath.Join(o.root, id, "state.json") }
func (o *oci) fifoOf(id string) string { return filepath.Join(o.root, id, "start_wait") }
func exists(path string) bool          { _, err := os.Lstat(path); return err == nil }
func say(what string, err error) error { return fmt.Errorf("%s: %s", what, words(err)) }
func (o *oci) save(id string, k container) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(o.fileOf(id), b, 0o600)
}

// locked takes the container's lock and reads its state. The lock goes with
// the file, and with an exec.
func (o *oci) locked(id string) (k container, lock *os.File, err error) {
	if lock, err = os.OpenFile(filepath.Join(o.dirOf(id), "state.lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return k, nil, say("opening state lock", err)
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		var b []byte
		if b, err = os.ReadFile(o.fileOf(id)); err == nil {
			err = json.Unmarshal(b, &k)
		}
	}
	if err != nil {
		lock.Close()
		return k, nil, fmt.Errorf("container %s not found", id)
	}
	return k, lock, nil
}

// check is all that ocijail knows of a process: whether there is one.
func (o *oci) check(id string, k *container) error {
	if k.Status == "stopped" || syscall.Kill(k.PID, 0) != syscall.ESRCH && !zombie(k.PID) {
		return nil
	}
	k.Status = "stopped"
	return o.save(id, *k)
}

// zombie: an ended process whose parent is slow. On the real system it is the
// caller's reaper that it waits for too; there kill(2) of a zombie is ESRCH.
func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func (o *oci) start(id string, _ arguments) error {
	k, lock, err := o.locked(id)
	if err != nil {
		return err
	}
	defer lock.Close()
	if k.Status != "created" {
		return fmt.Errorf("start: container not in \"created\" state (currently %q)", k.Status)
	}
	k.Status = "running"
	if err := o.save(id, k); err != nil {
		return err
	}
	// O_RDWR: whether anybody reads is not looked at.
	fifo, err := os.OpenFile(o.fifoOf(id), os.O_RDWR, 0)
	if err != nil {
		return say("open start fifo", err)
	}
	defer fifo.Close()
	if _, err := fifo.Write([]byte{0}); err != nil {
		return say("write to start fifo", err)
	}
	return nil
}

func (o *oci) state(id string, _ arguments) error {
	k, lock, err := o.locked(id)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := o.check(id, &k); err != nil {
		return err
	}
	annotations := maps.Clone(k.Config.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["org.freebsd.jail.jid"] = strconv.Itoa(k.JID)
	report := map[string]any{"annotations": annotations, "bundle": k.Bundle, "id": id, "ociVersion": "1.0.2", "status": k.Status}
	if k.Status != "stopped" {
		report["pid"] = k.PID
	}
	b, err := json.Marshal(report)
	o.printf("%s", b)
	return err
}

func (o *oci) kill(id string, args arguments) error {
	sig := syscall.SIGTERM
	if len(args.rest) > 1 {
		n, err := strconv.Atoi(args.rest[1])
		if err != nil {
			n = int(unix.SignalNum("SIG" + args.rest[1])) // upper case, without SIG
		}
		if n == 0 {
			return fmt.Errorf("Unknown signal name %s", args.rest[1])
		}
		sig = syscall.Signal(n)
	}
	k, lock, err := o.locked(id)
	if err != nil {
		return err
	}
	defer lock.Close()
	if k.Status == "created" || k.Status == "running" {
		if err := syscall.Kill(k.PID, sig); err != nil && err != syscall.ESRCH {
			return say(fmt.Sprintf("sending signal to pid %d", k.PID), err)
		}
	}
	return nil
}

func (o *oci) delete(id string, args arguments) error {
	if !exists(o.fileOf(id)) {
		return os.RemoveAll(o.dirOf(id)) // an unknown ID is no error
	}
	k, lock, err := o.locked(id)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := o.check(id, &k); err != nil {
		return err
	}
	switch {
	case k.Status == "stopped":
	case k.Status == "created", k.Status == "running" && args.has("--force"):
		_ = syscall.Kill(k.PID, syscall.SIGKILL) // whoever has the pid by now
	default:
		return fmt.Errorf("delete: container not in \"stopped\" or \"created\" state (currently %q)", k.Status)
	}
	o.update(func(w *world.World) {
		if j := w.Jail(strconv.Itoa(k.JID)); j != nil && !j.Dying { // gone already: EINVAL, ignored
			err = o.remove(w, j)
		}
		if err == nil {
			err = o.unmountAll(w, k)
		}
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(o.dirOf(id))
}

func (o *oci) list(args arguments) error {
	entries, err := os.ReadDir(o.root)
	if err != nil {
		return fmt.Errorf("filesystem error: in directory_iterator::directory_iterator(...): %s [%q]", words(err), o.root)
	}
	type row struct {
		Bundle string `json:"bundle"`
		ID     string `json:"id"`
		PID    int    `json:"pid"`
		Status string `json:"status"`
	}
	var rows []row // nil prints null, as on the real one
	for _, e := range entries {
		if !exists(o.fileOf(e.Name())) {
			continue
		}
		k, lock, err := o.locked(e.Name())
		if err != nil {
			return err
		}
		err = o.check(e.Name(), &k)
		lock.Close()
		if err != nil {
			return err
		}
		if k.Status == "stopped" {
			k.PID = 0
		}
		rows = append(rows, row{k.Bundle, e.Name(), k.PID, k.Status})
	}
	if args.get("-f", "--format") == "json" {
		b, err := json.Marshal(rows)
		o.printf("%s", b)
		return err
	}
	width := 1
	for _, r := range rows {
		width = max(width, len(r.ID))
	}
	o.printf("%-*s %-10s %-8s %-40s\n", width, "ID", "PID", "STATUS", "BUNDLE")
	for _, r := range rows {
		o.printf("%-*s %-10d %-8s %-40s\n", width, r.ID, r.PID, r.Status, r.Bundle)
	}
	return nil
}
