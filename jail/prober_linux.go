// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"satld/jail/cgroup"
	"satld/jail/entry"
	"satld/jail/shim"
)

// prober runs commands in containers the cheap way: not through the runtime,
// but with satl-init, started right in the container's namespaces.
type prober struct {
	helper *os.File // a directory with nothing but satl-init in it, mounted nowhere, read-only
	null   *os.File
	noLeaf bool // for tests: as if there were no cgroup v2
	noV1   bool // for tests: as if there were nothing else

	mu      sync.Mutex
	targets map[string]*target
	running map[string]map[*attempt]struct{}
	count   uint64
}

// target is what is needed of a container, read once.
type target struct {
	init    shim.Init
	process *specs.Process
	rlimits []entry.Rlimit // the first process's, but for those its spec sets
}

const helperName = "satl-init"

// newProber copies satl-init into memory. It is executed from a mount that is
// in no mount namespace and cannot be written by anyone, so that a container
// can neither put another program in its place nor change it (CVE-2019-5736).
func newProber(path string) (*prober, error) {
	p := &prober{targets: make(map[string]*target), running: make(map[string]map[*attempt]struct{})}
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

func (p *prober) close() {
	p.helper.Close()
	p.null.Close()
}

func (p *prober) forget(id string) {
	p.mu.Lock()
	delete(p.targets, id)
	p.mu.Unlock()
}

// attempt is one command that runs.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// abort kills the probes of a container that run now and waits for their end.
func (p *prober) abort(ctx context.Context, id string) error {
	p.mu.Lock()
	var dones []chan struct{}
	for a := range p.running[id] {
		a.cancel()
		dones = append(dones, a.done)
	}
	p.mu.Unlock()
	for _, done := range dones {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *prober) enter(ctx context.Context, id string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{cancel: cancel, done: make(chan struct{})}
	p.mu.Lock()
	if p.running[id] == nil {
		p.running[id] = make(map[*attempt]struct{})
	}
	p.running[id][a] = struct{}{}
	p.mu.Unlock()
	return ctx, func() {
		cancel()
		p.mu.Lock()
		delete(p.running[id], a)
		if len(p.running[id]) == 0 {
			delete(p.running, id)
		}
		p.mu.Unlock()
		close(a.done)
	}
}

// RunProbe: see Runtime.
func (m *Manager) RunProbe(kill context.Context, id string, argv []string, out io.Writer, started func()) (int, error) {
	if err := checkID(id); err != nil {
		return -1, err
	}
	if len(argv) == 0 || argv[0] == "" {
		return -1, invalid("no command specified")
	}
	kill, leave := m.probes.enter(kill, id)
	defer leave()
	// After it was entered, so that Pause either sees the attempt or is seen.
	if err := m.mustNotPause(id); err != nil {
		return -1, err
	}
	t, err := m.target(id)
	if err != nil {
		return -1, err
	}
	code, err := m.probes.run(kill, t, argv, out, started)
	if err != nil && errors.Is(err, unix.ESRCH) {
		err = notRunning(id)
	}
	return code, err
}

func (m *Manager) target(id string) (*target, error) {
	m.probes.mu.Lock()
	t := m.probes.targets[id]
	m.probes.mu.Unlock()
	if t != nil {
		return t, nil
	}
	_, running, err := m.Running(context.Background(), id)
	if err != nil {
		return nil, err
	}
	if !running {
		return nil, notRunning(id)
	}
	config, err := m.process(id)
	if err != nil {
		return nil, err
	}
	init, _, err := m.dir.ReadInit(id)
	if err != nil {
		return nil, err
	}
	t = &target{init: init, process: config.Process, rlimits: rlimitsOf(init.Pid, config.Process.Rlimits)}
	m.probes.mu.Lock()
	m.probes.targets[id] = t
	m.probes.mu.Unlock()
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

// killLimit is how long a killed probe may take to be gone. A process that
// does not die within it hangs in the kernel, and the caller must not.
const killLimit = 30 * time.Second

// helperLimit is how long the helper may take to kill before it is helped.
const helperLimit = 5 * time.Second

func (p *prober) run(kill context.Context, t *target, argv []string, out io.Writer, started func()) (code int, err error) {
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
		io.Copy(writerOnly{out}, readerOnly{r})
	}()
	code, err = h.converse(kill, request(t, argv, leaf, h.tasks), started, leaf)
	// All that held the pipe is dead, but for a process that was handed it:
	// what is in the pipe is taken, and then it is over.
	select {
	case <-drained:
	case <-time.After(100 * time.Millisecond):
		r.SetReadDeadline(time.Unix(1, 0))
		<-drained
	}
	return code, err
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

// leaf is the pair of v2 groups of one attempt, below the container's own: the
// helper is born in the one, and the command in another below it, which can be
// killed at one go.
type leaf struct {
	path string   // the helper's
	dir  *os.File // the helper's
	cmd  *os.File // the command's
	kill *os.File // cgroup.kill of the command's; nil before Linux 5.14
}

// newLeaf makes the groups. Where there is no v2 there are none, and the helper
// kills by looking for children.
func (p *prober) newLeaf(groups []cgroup.Group) (*leaf, error) {
	i := slices.IndexFunc(groups, cgroup.Group.V2)
	if i < 0 || p.noLeaf {
		return nil, nil
	}
	p.mu.Lock()
	p.count++
	n := p.count
	p.mu.Unlock()
	l := &leaf{path: filepath.Join(groups[i].Dir, "probe-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(n, 10))}
	err := l.make()
	if err == nil {
		return l, nil
	}
	l.remove()
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) { // the container's own just went
		return nil, unix.ESRCH
	}
	return nil, fmt.Errorf("make the probe's cgroup %s: %w", l.path, err)
}

func (l *leaf) make() (err error) {
	cmd := l.command()
	for _, dir := range []string{l.path, cmd} {
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if l.dir, err = os.Open(l.path); err != nil {
		return err
	}
	if l.cmd, err = os.Open(cmd); err != nil {
		return err
	}
	l.kill, err = os.OpenFile(filepath.Join(cmd, "cgroup.kill"), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (l *leaf) command() string { return filepath.Join(l.path, "command") }

func (l *leaf) remove() {
	if l == nil {
		return
	}
	for _, f := range []*os.File{l.dir, l.cmd, l.kill} {
		if f != nil {
			f.Close()
		}
	}
	// The last process is reaped, and its place in the group is given up a
	// moment later.
	for range 100 {
		unix.Rmdir(l.command())
		if err := unix.Rmdir(l.path); err == nil || errors.Is(err, unix.ENOENT) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// empty kills what is left in the group and waits until it is.
func (l *leaf) empty(limit time.Duration) bool {
	if l == nil {
		return true
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		if l.kill != nil {
			l.kill.WriteString("1")
		}
		pids, err := cgroup.Procs(l.command())
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		if err == nil && len(pids) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// helper is a satl-init that runs.
type helper struct {
	pid     int
	control *os.File
	tasks   int
}

// start starts satl-init in the container's namespaces.
func (p *prober) start(t *target, groups []cgroup.Group, l *leaf, out *os.File) (*helper, error) {
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

// joined are the namespaces a probe shares with its container.
const joined = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// helperCaps are what satl-init needs besides what the command will have: to
// become the command's user, to drop capabilities, to set limits, to kill.
// searchCaps are for finding children by itself.
const (
	helperCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_SYS_RESOURCE | 1<<unix.CAP_KILL
	searchCaps = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
)

// inside is where and as what the helper starts.
//
// A container that was given CAP_SYS_PTRACE can take over any process that it
// sees, so the helper has no more than the container itself: its namespaces,
// its root, about its capabilities, and its limit on devices. The other
// limits are for the command alone; the helper is not counted by them where
// that can be helped (with v1 groups).
type inside struct {
	pidfd   int
	dir     int    // which holds the helper and nothing else
	keep    uint64 // capabilities
	devices int    // tasks of the v1 devices group; -1 without one
	group   int    // v2 group to be born in; -1 to stay in ours
}

// fork starts the helper. A thread enters the namespaces for that and ends
// with it: Go ends the thread of a goroutine that never unlocks it.
func (in inside) fork(attr *syscall.ProcAttr) (int, error) {
	type result struct {
		pid int
		err error
	}
	done := make(chan result, 1)
	var enter func()
	enter = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The first thread cannot end, and what /proc/self shows is its.
			again := make(chan struct{})
			go func() {
				defer close(again)
				enter()
			}()
			<-again
			runtime.UnlockOSThread()
			return
		}
		pid, err := in.forkOnThread(attr)
		done <- result{pid, err}
	}
	go enter()
	r := <-done
	return r.pid, r.err
}

func (in inside) forkOnThread(attr *syscall.ProcAttr) (int, error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("unshare: %w", err)
	}
	namespaces := joined
	if in.group >= 0 && cgroup.NamespacesDelegate() {
		// From inside it nothing may be born in a group outside, and the
		// helper comes from outside. The command only sees longer names.
		namespaces &^= unix.CLONE_NEWCGROUP
	}
	if err := unix.Setns(in.pidfd, namespaces); err != nil {
		return 0, fmt.Errorf("enter the container's namespaces: %w", err)
	}
	if in.devices >= 0 {
		// "0" is this thread, which is not frozen with the container: Go's
		// other threads would wait for it.
		if _, err := unix.Write(in.devices, []byte("0")); err != nil {
			return 0, fmt.Errorf("enter the container's devices cgroup: %w", err)
		}
	}
	if in.group >= 0 {
		attr.Sys = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: in.group}
	}
	for bit := range capNames {
		if in.keep&(1<<bit) == 0 {
			// EINVAL: this kernel does not know it. What a program started as
			// root gets is this set.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(bit), 0, 0, 0); err != nil && err != unix.EINVAL {
				return 0, fmt.Errorf("drop %s: %w", capNames[bit], err)
			}
		}
	}
	// Entering the mount namespace moved this thread's root and directory to
	// the container's; the program is reached through its own directory.
	if err := unix.Fchdir(in.dir); err != nil {
		return 0, fmt.Errorf("enter the helper's directory: %w", err)
	}
	pid, err := syscall.ForkExec(helperName, []string{helperName}, attr)
	if errors.Is(err, syscall.ENOMEM) { // the PID namespace's first process is gone
		return 0, fmt.Errorf("enter the container's PID namespace: %w", unix.ESRCH)
	}
	if err != nil {
		return 0, fmt.Errorf("start satl-init in the container: %w", err)
	}
	return pid, nil
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
