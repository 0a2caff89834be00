// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
	"satld/jail/entry"
	"satld/jail/shim"
)

// nsProber runs commands in containers the cheap way: not through the runtime,
// but with satl-init, started right in the container's namespaces.
type nsProber struct {
	m      *Manager
	helper *os.File // a directory with nothing but satl-init in it, mounted nowhere, read-only
	null   *os.File
	noLeaf bool // for tests: as if there were no cgroup v2
	noV1   bool // for tests: as if there were nothing else

	mu      sync.Mutex
	targets map[string]*target
	count   uint64
}

// target is what is needed of a container, read once.
type target struct {
	init    shim.Init
	process *specs.Process
	rlimits []entry.Rlimit // the first process's, but for those its spec sets
}

const helperName = "satl-init"

// newNSProber copies satl-init into memory. It is executed from a mount that is
// in no mount namespace and cannot be written by anyone, so that a container
// can neither put another program in its place nor change it (CVE-2019-5736).
func newNSProber(m *Manager, path string) (*nsProber, error) {
	p := &nsProber{m: m, targets: make(map[string]*target)}
	if path == "" {
		return nil, errors.New("satl-init is not there: it belongs beside satld")
	}
	var err error
	if p.helper, err = privateCopy(path); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", path, err)
	}
	if p.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		p.helper.Close()
		return nil, err
	}
	return p, nil
}

func privateCopy(path string) (*os.File, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen tmpfs: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "mode", "0700"); err != nil {
		return nil, fmt.Errorf("fsconfig tmpfs: %w", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("fsconfig tmpfs: %w", err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return nil, fmt.Errorf("fsmount tmpfs: %w", err)
	}
	dir := os.NewFile(uintptr(mnt), "satl-init")
	fd, err := unix.Openat(mnt, helperName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o500)
	if err == nil {
		f := os.NewFile(uintptr(fd), helperName)
		_, err = f.Write(program)
		f.Close()
	}
	if err == nil {
		err = unix.FsconfigSetFlag(fs, "ro")
	}
	if err == nil {
		err = unix.FsconfigReconfigure(fs)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

func (p *nsProber) close() {
	p.helper.Close()
	p.null.Close()
}

func (p *nsProber) forget(id string) {
	p.mu.Lock()
	delete(p.targets, id)
	p.mu.Unlock()
}

func (p *nsProber) run(kill context.Context, id string, argv []string, out io.Writer, started func()) (int, error) {
	t, err := p.target(id)
	if err != nil {
		return -1, err
	}
	code, err := p.attempt(kill, t, argv, out, started)
	if err != nil && errors.Is(err, unix.ESRCH) {
		err = notRunning(id)
	}
	return code, err
}

func (p *nsProber) target(id string) (*target, error) {
	p.mu.Lock()
	t := p.targets[id]
	p.mu.Unlock()
	if t != nil {
		return t, nil
	}
	_, running, err := p.m.Running(context.Background(), id)
	if err != nil {
		return nil, err
	}
	if !running {
		return nil, notRunning(id)
	}
	config, err := p.m.process(id)
	if err != nil {
		return nil, err
	}
	init, _, err := p.m.dir.ReadInit(id)
	if err != nil {
		return nil, err
	}
	t = &target{init: init, process: config.Process, rlimits: rlimitsOf(init.Pid, config.Process.Rlimits)}
	p.mu.Lock()
	p.targets[id] = t
	p.mu.Unlock()
	return t, nil
}

// rlimitsOf reads a process's limits: what the spec does not set, the task
// got from the shim that made it, and its probe shall not get from the daemon.
func rlimitsOf(pid int, set []specs.POSIXRlimit) []entry.Rlimit {
	limits := make(map[int]entry.Rlimit)
	for _, n := range rlimitNumbers {
		var l unix.Rlimit
		if err := unix.Prlimit(pid, n, nil, &l); err == nil {
			limits[n] = entry.Rlimit{Resource: uint32(n), Soft: l.Cur, Hard: l.Max}
		}
	}
	for _, l := range set {
		if n, ok := rlimitNumber(l.Type); ok {
			limits[n] = entry.Rlimit{Resource: uint32(n), Soft: l.Soft, Hard: l.Hard}
		}
	}
	return slices.Collect(maps.Values(limits))
}

// helperLimit is how long the helper may take to kill before it is helped.
const helperLimit = 5 * time.Second

func (p *nsProber) attempt(kill context.Context, t *target, argv []string, out io.Writer, started func()) (code int, err error) {
	groups, err := cgroup.Of(t.init.Pid)
	if err != nil {
		return -1, unix.ESRCH
	}
	leaf, err := p.newLeaf(groups)
	if err != nil {
		return -1, err
	}
	defer leaf.remove()

	r, w, err := os.Pipe()
	if err != nil {
		return -1, fmt.Errorf("make the probe's output: %w", err)
	}
	defer r.Close()
	// The command must be able to open /dev/stdout anew.
	user := t.process.User
	err = w.Chown(int(user.UID), int(user.GID))
	var h *helper
	if err == nil {
		h, err = p.start(t, groups, leaf, w)
	}
	w.Close()
	if err != nil {
		return -1, err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		copyPipe(out, r)
	}()
	code, err = h.converse(kill, request(t, argv, leaf, h.tasks), started, leaf)
	// All that held the pipe is dead, but for a process that was handed it:
	// what is in the pipe is taken, and then it is over.
	endPipe(r, 100*time.Millisecond)
	<-drained
	return code, err
}
