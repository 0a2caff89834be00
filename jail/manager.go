// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"satld/jail/shim"
)

// Config is what a Manager is opened with.
type Config struct {
	StateDir    string   // the daemon's; bundles, logs, the runtime's state and the shim's socket live in its jail/
	RuntimePath string   // "" looks for runc or ocijail in PATH
	Self        string   // the satld binary, run as `Self shim --state-dir DIR`; "" is this program
	ShimArgs    []string // instead of "shim"; for tests
	// ShimPatience is how long the shim may be silent before it is taken to
	// hang; 0 is shim.DefaultPatience.
	ShimPatience time.Duration
	InitPath     string // satl-init; "" looks beside Self and beside this program
	Logger       *slog.Logger
}

// Manager is the node's containers. What it knows is on disk and in the shim:
// a new one finds everything that an earlier one made.
type Manager struct {
	cfg    Config
	dir    shim.Dir
	shim   *shim.Client
	driver driver
	host   host
	log    *slog.Logger
	probes prober
	// memories is the directory of the file systems that hold containers'
	// files, a real path.
	memories string

	attempts attempts // probes that run
	pausing  marks    // containers that are being paused
	deleting marks    // containers that are being deleted

	cancel context.CancelFunc
	done   sync.WaitGroup

	starting sync.Mutex // of the shim alone

	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{} // by container: nudged when it may have ended
	order   map[string]*turn                      // by container: calls that change it, one at a time
}

// ShimMain is the `satld shim` command.
func ShimMain(ctx context.Context, args []string) error { return shim.Main(ctx, args) }

// Open prepares the state directory and connects to the node's shim, starting
// it if it does not run. One that is there and does not answer is waited for in
// the background. ctx bounds the opening alone.
func Open(ctx context.Context, cfg Config) (*Manager, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.StateDir == "" {
		return nil, errors.New("jail: a state directory is required")
	}
	daemonDir, err := filepath.Abs(cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	cfg.StateDir = filepath.Join(daemonDir, "jail")
	if cfg.RuntimePath, err = findRuntime(cfg.RuntimePath); err != nil {
		return nil, err
	}
	if cfg.Self == "" {
		if cfg.Self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
	}
	if cfg.ShimArgs == nil {
		cfg.ShimArgs = []string{"shim"}
	}
	if cfg.InitPath == "" {
		cfg.InitPath = findInit(cfg.Self)
	}
	dir := shim.Dir(cfg.StateDir)
	for _, d := range []string{cfg.StateDir, dir.Containers(), filepath.Join(cfg.StateDir, "runtime")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	m := &Manager{
		cfg: cfg, dir: dir, shim: shim.NewClient(dir, cfg.ShimPatience), log: cfg.Logger,
		waiters: make(map[string]map[chan struct{}]struct{}), order: make(map[string]*turn),
	}
	// What the kernel tells of mounts are real paths.
	if m.memories, err = filepath.EvalSymlinks(cfg.StateDir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	m.memories = filepath.Join(m.memories, "memory")
	if m.driver, m.host, m.probes, err = system(ctx, m, daemonDir); err != nil {
		return nil, err
	}
	if err := m.ensureShim(ctx); errors.Is(err, shim.ErrSilent) {
		m.shim.Lose(err)
		m.shimChanged(err)
	} else if err != nil {
		m.probes.close()
		return nil, err
	}
	m.host.reconcile(ctx)
	run, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	_, silent := m.shim.Away()
	m.done.Go(func() { m.shim.Watch(run, m.shimChanged) })
	listening := make(chan struct{})
	m.done.Go(func() { m.listen(run, sync.OnceFunc(func() { close(listening) })) })
	m.done.Go(func() { m.host.work(run) })
	select {
	case <-listening:
	case <-silent:
	case <-ctx.Done():
		m.Close()
		return nil, fmt.Errorf("listen to the shim: %w", ctx.Err())
	}
	return m, nil
}

// findInit looks where satl-init is installed: beside satld.
func findInit(self string) string {
	for _, bin := range []string{self, os.Args[0]} {
		if path, err := filepath.EvalSymlinks(bin); err == nil {
			bin = path
		}
		path := filepath.Join(filepath.Dir(bin), "satl-init")
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// Close lets go of the containers, which run on. The shim stays too if it
// holds any, and ends otherwise.
func (m *Manager) Close() error {
	m.cancel()
	m.done.Wait()
	m.probes.close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	busy, err := m.shim.Quit(ctx)
	if errors.Is(err, shim.ErrSilent) {
		m.log.Warn("the shim is left as it is", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("end the shim: %w", err)
	}
	if !busy {
		m.awaitShimGone(ctx)
		m.host.close()
	}
	return nil
}

// awaitShimGone waits until the shim has removed its socket, its last act.
func (m *Manager) awaitShimGone(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := os.Lstat(filepath.Join(m.cfg.StateDir, "shim.sock")); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// shimChanged is called when the shim falls silent, and with nil when it
// answers again.
func (m *Manager) shimChanged(why error) {
	if why != nil {
		m.log.Error(why.Error())
	} else {
		m.log.Info("the shim answers again")
	}
	m.nudgeAll() // how to wait for an end depends on it
}

// listen hears of containers' ends, and starts the shim anew when it dies.
func (m *Manager) listen(ctx context.Context, listening func()) {
	var gone time.Time // since when none runs
	for wait := 10 * time.Millisecond; ctx.Err() == nil; {
		err := m.shim.Events(ctx, func() {
			wait, gone = 10*time.Millisecond, time.Time{}
			listening()
			if m.shim.Regain() {
				m.shimChanged(nil)
			}
			m.nudgeAll() // what ended while nobody listened
		}, m.nudge)
		if ctx.Err() != nil {
			return
		}
		if gone.IsZero() {
			gone = time.Now()
		}
		m.log.Warn("the shim is gone, starting another one", "error", err)
		if err := m.ensureShim(ctx); err != nil && ctx.Err() == nil {
			m.log.Error("the shim cannot be started", "error", err)
			wait = min(2*wait, 5*time.Second)
			if time.Since(gone) > m.shim.Patience() && m.shim.Lose(fmt.Errorf("there is no shim and none can be started: %w", err)) {
				m.nudgeAll()
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// ensureShim starts the shim unless one answers.
func (m *Manager) ensureShim(ctx context.Context) error {
	m.starting.Lock()
	defer m.starting.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if why, _ := m.shim.Away(); errors.Is(why, shim.ErrSilent) {
		return why
	}
	if _, _, err := m.shim.Hello(ctx); err == nil {
		return nil
	} else if errors.Is(err, shim.ErrSilent) {
		return err
	} else if shim.IsKind(err, shim.KindUnsupported) {
		return fmt.Errorf("the running shim is of another version; stop the containers and then it: %w", err)
	} else if ctx.Err() != nil {
		// It was not asked. A second one would wait for the lock, and stay
		// for good when the first ends.
		return fmt.Errorf("ask the shim: %w", ctx.Err())
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the shim: %w", err)
	}
	defer r.Close()
	log, err := os.OpenFile(m.dir.ShimLog(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		w.Close()
		return fmt.Errorf("start the shim: %w", err)
	}
	cmd := exec.Command(m.cfg.Self, append(m.cfg.ShimArgs, "--state-dir", m.cfg.StateDir)...)
	cmd.Env = append(os.Environ(), shim.ReadyEnv+"=3")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	err = cmd.Start()
	w.Close()
	log.Close()
	if err != nil {
		return fmt.Errorf("start the shim: %w", err)
	}
	go cmd.Wait() // no zombie when it ends before us
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	said, err := io.ReadAll(r)
	if string(said) == "ok" {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("start the shim: %w", ctx.Err())
	}
	return fmt.Errorf("start the shim: %s %s ended before it was ready: %s%v", m.cfg.Self, m.cfg.ShimArgs, said, err)
}

// withShim does what asks the shim, and starts that first where it does not run.
func (m *Manager) withShim(ctx context.Context, ask func() error) error {
	err := ask()
	if !errors.Is(err, shim.ErrNoShim) {
		return err
	}
	if serr := m.ensureShim(ctx); serr != nil {
		return serr
	}
	return ask()
}

// again is withShim for requests that can be made twice: also a shim that died
// while it was asked is replaced.
func (m *Manager) again(ctx context.Context, ask func() error) error {
	err := m.withShim(ctx, ask)
	var refusal *shim.Error
	if err == nil || errors.As(err, &refusal) || ctx.Err() != nil {
		return err
	}
	return m.withShim(ctx, ask)
}

// nudge wakes those who wait for a container, nudgeAll those of all.
func (m *Manager) nudge(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ch := range m.waiters[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (m *Manager) nudgeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, set := range m.waiters {
		for ch := range set {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func (m *Manager) await(id string) (nudges <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiters[id] == nil {
		m.waiters[id] = make(map[chan struct{}]struct{})
	}
	m.waiters[id][ch] = struct{}{}
	return ch, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.waiters[id], ch)
		if len(m.waiters[id]) == 0 {
			delete(m.waiters, id)
		}
	}
}

// turn is the right to change one container.
type turn struct {
	free  chan struct{} // holds one token while nobody has it
	users int
}

// takeTurn waits for the right to change a container: create, start, delete
// and forget of one container follow each other, those of two do not.
func (m *Manager) takeTurn(ctx context.Context, id string) (release func(), err error) {
	m.mu.Lock()
	t := m.order[id]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		m.order[id] = t
	}
	t.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(m.order, id)
		}
	}
	select {
	case <-t.free:
		return func() {
			t.free <- struct{}{}
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("container %s is busy: %w", id, ctx.Err())
	}
}
